"""The kinds of target, each with the members that it takes and no others.

`tests/unit/api/test_forms.py` holds them to the parser. Null is as if left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tickrail_api.schemas.base import Document, Json, one_of

Url = Annotated[str, Field(max_length=8192, pattern=r"^[hH][tT]{2}[pP][sS]?://.")]
Status = Annotated[int, Field(ge=200, le=599)]
StatusClass = Annotated[str, Field(pattern="^[1-5]xx$")]
_TEMPLATE = "A template: `{{ payload.id }}`, `{{ scheduled_at }}`."


class SecretName(Document):
    """A secret in place of a text."""

    secret: str = Field(pattern="^[a-z0-9][a-z0-9._-]{0,127}$")


class Tls(Document):
    """Certificates of a call, PEM in secrets; a client's certificate and key go together."""

    ca: SecretName | None = Field(None, description="Authorities in place of the usual ones.")
    client_certificate: SecretName | None = None
    client_key: SecretName | None = None


class Signature(Document):
    """The secrets that a call is signed with (Standard Webhooks)."""

    secrets: list[SecretName] = Field(min_length=1, max_length=4)


class Webhook(Document):
    """An HTTP call."""

    url: Url = Field(description=f"The host is fixed, the rest a template. {_TEMPLATE}")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = Field(
        None, description="POST unless said."
    )
    headers: dict[str, str | SecretName] | None = Field(
        None, max_length=50, description=f"A value is a template, or a secret. {_TEMPLATE}"
    )
    success: (
        StatusClass | Status | Annotated[list[StatusClass | Status], Field(min_length=1)] | None
    ) = Field(None, description='What counts as success: `"2xx"` unless said, or a list.')
    body: Json = Field(None, description="In place of the payload; its texts are templates.")
    content_type: str | None = Field(None, max_length=200)
    redirects: int | None = Field(None, ge=0, le=5, description="So many are followed; none.")
    tls: Tls | None = None
    signature: Signature | None = None


class Kafka(Document):
    """A message to a topic."""

    topic: str = Field(pattern="^[A-Za-z0-9._-]{1,249}$")
    key: str | None = Field(None, max_length=4096, description=_TEMPLATE)
    headers: dict[str, str] | None = Field(None, max_length=50, description="Texts are templates.")
    value: Json = Field(None, description="In place of the payload; its texts are templates.")
    partition: int | None = Field(None, ge=0, le=100_000, description="By the key unless said.")


class ProgramLimits(Document):
    """What each process of a command may use; sizes in bytes, or as `512MiB`."""

    cpu: str | None = Field(None, description="CPU time: `60s`.")
    memory: Annotated[int, Field(ge=1_048_576, le=1 << 50)] | str | None = None
    file_size: Annotated[int, Field(ge=0, le=1 << 50)] | str | None = None
    open_files: int | None = Field(None, ge=8, le=1_048_576)
    processes: int | None = Field(None, ge=1, le=1_048_576)


class _Program(Document):
    env: dict[str, str | SecretName] | None = Field(None, description="Variables, or secrets.")
    cwd: str | None = Field(None, max_length=4096, pattern="^/", description="A folder.")
    user: str | None = Field(None, pattern=r"^[a-z_][a-z0-9_-]{0,31}\$?$")
    stdin: str | None = Field(None, max_length=1_048_576)
    limits: ProgramLimits | None = None


class Command(_Program):
    """A program on a worker's machine: its arguments."""

    argv: list[str] = Field(min_length=1, max_length=1000)
    shell: None = None


class ShellCommand(_Program):
    """A program on a worker's machine: a line for the shell."""

    shell: str = Field(min_length=1, max_length=131_072)
    argv: None = None


class TaskCall(Document):
    """A Python function of the workers' app."""

    name: str = Field(pattern="^[A-Za-z_][A-Za-z0-9_.-]{0,199}$")
    args: dict[str, Json] | None = Field(None, description="Its arguments by name.")


class Noop(Document):
    """Nothing."""


class WebhookTarget(Document):
    """An HTTP call."""

    webhook: Webhook


class KafkaTarget(Document):
    """A message to a topic."""

    kafka: Kafka


class CommandTarget(Document):
    """A program; for queues and workers that allow it."""

    command: Command | ShellCommand = Field(json_schema_extra=one_of)


class TaskTarget(Document):
    """A Python function."""

    task: TaskCall


class NoopTarget(Document):
    """Nothing at all, which succeeds at once: for tests of load."""

    noop: Noop


Target = WebhookTarget | KafkaTarget | CommandTarget | TaskTarget | NoopTarget
_SECRET = {"secret": "partner"}
TARGETS: list[dict[str, Any]] = [
    {
        "webhook": {
            "url": "https://example.org/invoices/{{ payload.id }}",
            "method": "PUT",
            "headers": {"X-Team": "billing", "Authorization": _SECRET},
            "success": ["2xx", 404],
            "body": {"invoice": "{{ payload.id }}"},
            "content_type": "application/json",
            "redirects": 1,
            "tls": {"ca": _SECRET, "client_certificate": _SECRET, "client_key": _SECRET},
            "signature": {"secrets": [_SECRET]},
        }
    },
    {
        "kafka": {
            "topic": "orders.due",
            "key": "{{ payload.region }}",
            "headers": {"team": "billing"},
            "value": {"region": "{{ payload.region }}"},
            "partition": 3,
        }
    },
    {
        "command": {
            "argv": ["/usr/bin/backup", "--all"],
            "env": {"LANG": "C.UTF-8", "TOKEN": _SECRET},
            "cwd": "/srv",
            "user": "backup",
            "stdin": "all\n",
            "limits": {"cpu": "1m", "memory": "512MiB", "file_size": "1GiB", "open_files": 64,
                       "processes": 8},
        }
    },
    {
        "command": {
            "shell": "tar czf /tmp/notes.tgz notes/",
            "env": {"LANG": "C.UTF-8"},
            "cwd": "/srv",
            "user": "backup",
            "stdin": "",
            "limits": {"memory": 536870912},
        }
    },
    {"task": {"name": "import_orders", "args": {"shop": "north", "limit": 500}}},
    {"noop": {}},
]  # fmt: skip
"""One of each kind, with every member that it takes."""

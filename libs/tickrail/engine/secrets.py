"""Secrets of a tenant: put, delete, and which jobs name one.

Each use case runs in the caller's transaction. What is audited and answered is the name, never the
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tickrail.core.definition import instant_text
from tickrail.core.documents import text_problem, type_name
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionFailedError,
    Problem,
)
from tickrail.core.on_failures import Channel, ChannelKind, channels_of
from tickrail.core.ports_api import Transaction
from tickrail.core.secrets import MAX_SECRET, NAME_EXPECTED, SECRET_NAME, SecretRecord
from tickrail.core.targets import parse_target, target_secrets
from tickrail.engine.job_rules import ANY, Precondition

_NAMED: Final = 20
_EXPECTED: Final = f"a text of 1 to {MAX_SECRET} bytes"


def read_secret(name: str, document: object) -> bytes:
    """The value in a document of the API, `{"value": "..."}`.

    Raises:
        InvalidInputError: with every problem; no message holds the value.
    """
    problems: list[Problem] = []
    if not SECRET_NAME.fullmatch(name):
        problems.append(Problem("/name", f"is {name[:128]!r}", NAME_EXPECTED))
    value: object = None
    if not isinstance(document, dict):
        problems.append(Problem("", f"is {type_name(document)}", '{"value": "..."}'))
    else:
        value = document.get("value")
        problems += [
            Problem(f"/{key[:100]}", "is not a known field", "value")
            for key in document
            if key not in ("value", "name", "updated_at")
        ]
        if document.get("name", name) != name:
            problems.append(Problem("/name", "is not the name in the path", repr(name[:128])))
        if "value" not in document:
            problems.append(Problem("/value", "is missing", _EXPECTED))
        elif not isinstance(value, str):
            problems.append(Problem("/value", f"is {type_name(value)}", _EXPECTED))
        elif why := text_problem(value):
            problems.append(Problem("/value", why, _EXPECTED))
        elif not 0 < len(value.encode()) <= MAX_SECRET:
            problems.append(Problem("/value", f"has {len(value.encode())} bytes", _EXPECTED))
    if problems or not isinstance(value, str):
        raise InvalidInputError("The secret is not valid.", problems)
    return value.encode()


def require_secret(tx: Transaction, name: str) -> SecretRecord:
    """The secret, without its value.

    Raises:
        NotFoundError: this tenant has no such secret.
    """
    found = tx.secrets.find(name)
    if found is None:
        raise NotFoundError(f"There is no secret of the name {name!r}.")
    return found


def put_secret(
    tx: Transaction, name: str, value: bytes, wanted: Precondition = ANY
) -> tuple[SecretRecord, bool]:
    """Keep a value under a name, in place of what was there; whether the name is new.

    Secrets have no versions: of a precondition, only whether there must be one counts.

    Raises:
        SetupError: the installation has no keys for secrets.
        PreconditionFailedError: it is there and must not be, or the other way round.
    """
    if wanted.versions is not None:
        raise PreconditionFailedError("Secrets have no versions; If-Match takes * alone here.")
    before = tx.secrets.find(name, change=True)
    if before is not None and wanted.exists is False:
        raise PreconditionFailedError("The secret is there already.")
    if before is None and wanted.exists:
        raise PreconditionFailedError("There is no such secret.")
    created = tx.secrets.put(name, value)
    action = "secret.create" if created else "secret.change"
    tx.audit(action, f"secret:{name}", _told(before), _told(SecretRecord(name, tx.now)))
    return SecretRecord(name, tx.now), created


def delete_secret(tx: Transaction, name: str) -> None:
    """Delete a secret that nothing names; one that is not there is deleted already.

    Raises:
        ConflictError: live jobs name it, or the notices of quotas; says which.
    """
    before = tx.secrets.find(name, lock=True)
    if before is None:
        return
    if Channel(ChannelKind.WEBHOOK, name) in tx.quotas.channels():
        problem = Problem("", "the notices of quotas go there", "other channels for them")
        raise ConflictError("The secret is used by the notices of quotas.", [problem])
    users = jobs_naming(tx, name)
    if users:
        more = " and more" if len(users) > _NAMED else ""
        raise ConflictError(
            f"The secret is used by {', '.join(users[:_NAMED])}{more}.",
            [
                Problem("", f"the job {job!r} names it", "a job without this secret")
                for job in users[:_NAMED]
            ],
        )
    tx.secrets.delete(name)
    tx.audit("secret.delete", f"secret:{name}", _told(before))


def _told(record: SecretRecord | None) -> dict[str, Any] | None:
    """What the audit log keeps of a secret: since when it has its value, and never the value."""
    if record is None:
        return None
    return {"name": record.name, "updated_at": instant_text(record.updated_at)}


def jobs_naming(tx: Transaction, name: str) -> list[str]:
    """Names of live jobs that name a secret, at most one more than are told."""
    found: list[str] = []
    after = ""
    while len(found) <= _NAMED:
        page = tx.secrets.definitions_with(name, after)
        if not page:
            break
        after = page[-1][0]
        found += [job for job, definition in page if _names(definition, name)]
    return found[: _NAMED + 1]


def _names(definition: Mapping[str, object], name: str) -> bool:
    """Whether a job names the secret; a target that cannot be read is held to do so."""
    told = Channel(ChannelKind.WEBHOOK, name)
    if any(channel == told for _, channel in channels_of(definition["on_failures"])):
        return True
    try:
        target = parse_target(definition["target"])
    except InvalidInputError:
        return True
    return any(found == name for _, found in target_secrets(target))

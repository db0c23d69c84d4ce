"""What can be set: one flat list for every process, each with its default and its bounds."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticUndefined

from tickrail.core.durations import parse_duration

_URL_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^@\s]+@")
_WORD_PASSWORD = re.compile(r"(password=)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def _seconds(value: object) -> object:
    """`90`, `"90"`, `"1m30s"` -> 90.0; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return parse_duration(value).total_seconds()


def _items(value: object) -> object:
    """`"a, b"` -> `("a", "b")`."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Names = Annotated[tuple[str, ...], BeforeValidator(_items)]
Port = Annotated[int, Field(ge=0, le=65535)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", examples=["tickrail"])]
TargetKind = Literal["webhook", "kafka", "command", "task", "noop"]
Kinds = Annotated[tuple[TargetKind, ...], BeforeValidator(_items)]


def _secret(description: str) -> Any:  # noqa: ANN401 - what pydantic.Field returns
    return Field(default="", repr=False, description=description)


class Settings(BaseModel):
    """Everything that can be set.

    Durations are in seconds (a text such as `1m30s` is accepted too), lists are given with commas
    in flags and variables and as arrays in the file. `repr` shows no password.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    # PostgreSQL
    database_url: str = Field(
        default="postgresql://tickrail_engine@127.0.0.1:5432/tickrail",
        pattern=r"^(postgres(ql)?://\S+|.*\b(host|hostaddr|service|dbname)=.+)$",
        examples=["postgresql://user:password@host:5432/database"],
        description="Where PostgreSQL is: a libpq URL or keyword string, TLS in it (`sslmode`,"
        " `sslrootcert`). `migrate` and `bootstrap` need the owner's, the API that of"
        " `tickrail_api`, schedulers and workers that of `tickrail_engine`.",
    )
    prepare_statements: bool = Field(
        default=True,
        description="Prepare statements on the server; off behind a transaction pooler.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="How many schedule partitions (P) the installation has: fixed at the first"
        " `migrate` (64 there), refused by every process if it differs. Unset: what is stored.",
    )
    history_days: int = Field(
        default=30, ge=1, le=3650, description="Days that ended launches are kept."
    )

    # etcd
    etcd_endpoints: Names = Field(
        default=("127.0.0.1:2379",),
        min_length=1,
        examples=["host:2379,https://other:2379"],
        description="The servers of the etcd cluster: `host:port`, `http://` or `https://`.",
    )
    etcd_ca_file: str | None = Field(
        default=None,
        description="Certificates (PEM) that etcd's are checked against; turns TLS on.",
    )
    etcd_cert_file: str | None = Field(default=None, description="This client's certificate (PEM).")
    etcd_key_file: str | None = Field(default=None, description="Its private key (PEM).")
    etcd_username: str | None = Field(default=None, description="etcd's user; needs TLS.")
    etcd_password: str | None = Field(default=None, repr=False, description="Its password.")
    etcd_prefix: str = Field(
        default="/tickrail/default/",
        pattern=r"^/\S+/$",
        examples=["/tickrail/default/"],
        description="Every key begins with it; one for each installation on a cluster.",
    )

    # Kafka
    kafka_bootstrap: str = Field(
        default="127.0.0.1:9092",
        pattern=r"^\s*[^\s,]+:\d+(\s*,\s*[^\s,]+:\d+)*\s*$",
        examples=["host:9092,other:9092"],
        description="Brokers to begin with, `host:port` with commas.",
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="How the brokers are spoken to."
    )
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        Field(default="", description="How this client proves who it is; empty without SASL.")
    )
    kafka_sasl_username: str = Field(default="", description="For PLAIN and SCRAM.")
    kafka_sasl_password: str = _secret("For PLAIN and SCRAM.")
    kafka_ca_file: str = Field(
        default="", description="Certificates (PEM) that the brokers' are checked against."
    )
    kafka_cert_file: str = Field(default="", description="This client's certificate (PEM).")
    kafka_key_file: str = Field(default="", description="Its private key (PEM).")
    kafka_key_password: str = _secret("The password of that key.")
    kafka_group: Topic = Field(
        default="tickrail-workers", description="The workers' consumer group."
    )
    kafka_group_instance: str = Field(
        default="", description="A name that stays over restarts (static membership)."
    )
    kafka_group_protocol: Literal["auto", "classic", "consumer"] = Field(
        default="auto",
        description="How workers share what they read. `consumer` (KIP-848, brokers from 4.0) moves"
        " only what must move when a worker joins or leaves; `classic` takes everything away for a"
        " moment. `auto` is `consumer` where the broker drops silent members within 15 s"
        " (`group.consumer.session.timeout.ms`, 45 s where nobody changed it).",
    )
    kafka_group_assignor: Literal["roundrobin", "cooperative-sticky"] = Field(
        default="roundrobin",
        description="Who reads what, under `classic`: `roundrobin` gives each worker a share of"
        " every topic, `cooperative-sticky` moves less but may give one worker a whole topic.",
    )
    topic_prefix: Topic = Field(default="tickrail", description="First part of every topic's name.")
    topic_partitions: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Kafka partitions of each topic (K), a divisor of P; read by `migrate`."
        " Unset: 16, or P where that is smaller.",
    )

    # The API
    api_host: str = Field(default="127.0.0.1", description="Address that the API listens on.")
    api_port: Port = Field(default=8080, description="Its port; 0 takes any free one.")
    key_pepper: str = _secret(
        "Mixed into the stored hashes of API keys; the same for every API process for ever."
    )
    secret_keys: Names = Field(
        default=(),
        repr=False,
        description="Keys that secrets are encrypted with, for the API and the workers: the"
        " first encrypts, each decrypts. `tickrail secrets new-key` makes one.",
    )
    egress_allow: Names = Field(
        default=(),
        examples=["10.1.0.0/16,hooks.internal"],
        description="Addresses (CIDR) and host names that webhooks may reach although they are not"
        " public.",
    )
    egress_deny: Names = Field(
        default=(),
        examples=["198.51.100.0/24,*.example.org"],
        description="Addresses (CIDR) and host names that webhooks may not reach, whatever allows"
        " them.",
    )

    # Schedulers
    lease_ttl: int = Field(
        default=10, ge=2, le=600, description="Time to live of a scheduler's lease, seconds."
    )
    lease_margin: Seconds = Field(
        default=1.0, ge=0, description="How long before the lease's end a scheduler stops acting."
    )
    renew_every: Seconds = Field(
        default=3.0, gt=0, description="Time between two renewals of the lease."
    )
    member_weight: float = Field(
        default=1.0,
        ge=0,
        le=100,
        examples=["2"],
        json_schema_extra={"allowed": "a number from 0 to 100"},
        description="A scheduler's share of the partitions against the others'; 0 owns none.",
    )
    relay_outstanding: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Launches of one class of a queue that may wait in Kafka, over all schedulers.",
    )

    lost_after: Seconds = Field(
        default=300.0,
        ge=1,
        le=86400,
        description="How long a launch may wait in Kafka before its message is held for lost and"
        " published again; doubled at each further publication, up to an hour.",
    )

    # Workers
    worker_concurrency: int = Field(
        default=256, ge=1, le=100_000, description="Runs that one worker holds open at a time."
    )
    target_kafka_bootstrap: str = Field(
        default="",
        pattern=r"^(\S+:\d+)?$",
        examples=["kafka-1:9092,kafka-2:9092"],
        description="Brokers of another cluster that `kafka` targets go to, by the same protocol"
        " and credentials. Unset: Tickrail's own.",
    )
    command_concurrency: int = Field(
        default=16, ge=1, le=4096, description="Of these, commands (a process each)."
    )
    command_env: Names = Field(
        default=(),
        examples=["LANG,TZ,HTTPS_PROXY"],
        description="Names of the worker's own variables that commands get besides PATH, HOME,"
        " SHELL, LOGNAME and USER. None whose name begins with TICKRAIL_.",
    )
    command_limits: Names = Field(
        default=(),
        examples=["memory=2GiB,cpu=1h"],
        description="What each process of a command may use at most: `cpu`, `memory` (address"
        " space), `file_size`, `open_files`, `processes`. A target may ask for less.",
    )
    webhook_origin_concurrency: int = Field(
        default=2048,
        ge=1,
        le=100_000,
        description="Webhook calls that one worker holds open to one origin (scheme, host, port).",
    )
    webhook_breaker_failures: int = Field(
        default=50,
        ge=0,
        le=100_000,
        description="After so many webhook calls of a tenant to one origin that failed in a row (no"
        " answer, or 5xx), the origin is left alone for a while; 0: never.",
    )
    webhook_breaker_open: Seconds = Field(
        default=15.0,
        gt=0,
        le=3600,
        description="For so long at first; doubled while it goes on failing, up to two minutes.",
    )
    webhook_ca_file: str = Field(
        default="",
        description="Certificates (PEM) that webhooks trust besides the usual ones.",
    )
    worker_queues: Names = Field(
        default=("default",), min_length=1, description="Queues that this worker serves."
    )
    worker_targets: Kinds = Field(
        default=("webhook", "kafka"),
        min_length=1,
        description="Kinds of target that this worker runs, and `task` besides where it has an app;"
        " it refuses to start on a queue that serves more. `command` runs programs on its machine,"
        " `noop` does nothing (for load tests): both only where they are named here.",
    )
    worker_app: str = Field(
        default="",
        examples=["tasks:app"],
        description="The Python app whose tasks this worker runs: `module:app`, looked for in the"
        " present folder first; `module` alone where there is one app in it.",
    )
    task_concurrency: int = Field(
        default=32,
        ge=1,
        le=4096,
        description="Tasks at a time that are no `async` functions: in a thread or a process each.",
    )
    drain_grace: Seconds = Field(
        default=30.0,
        ge=0,
        le=86400,
        description="How long runs may go on after a stop is asked for.",
    )

    # Every process
    name: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        min_length=1,
        max_length=200,
        pattern=r"^[^\s/]+$",
        examples=["scheduler-1"],
        json_schema_extra={"allowed": "1 to 200 characters without spaces and slashes"},
        description="What logs, metrics and operators call this process. Default: host and pid.",
    )
    status_host: str = Field(
        default="127.0.0.1", description="Address of /healthz, /readyz and /metrics."
    )
    status_port: Port = Field(default=0, description="Their port; 0 takes any free one.")
    log_format: Literal["auto", "json", "color"] = Field(
        default="auto", description="`auto` is colour on a terminal and JSON lines elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important lines that are written."
    )

    failpoints: Names = Field(
        default=(),
        examples=["owner.tick.after=stop@3"],
        description="For tests of faults: places where a scheduler or a worker is to die, stop or"
        " wait, see docs/failpoints.md.",
    )

    # The command line
    api_url: str = Field(
        default="http://127.0.0.1:8080",
        pattern=r"^https?://[^\s/]+\S*$",
        examples=["https://tickrail.example.org"],
        description="The API that the command line speaks to.",
    )
    api_key: str = Field(
        default="",
        repr=False,
        pattern=r"^(trk_[!-~]+)?$",
        examples=["trk_<key id>_<secret>"],
        description="Its API key (`trk_...`).",
    )
    api_timeout: Seconds = Field(
        default=30.0, gt=0, le=3600, description="How long the command line waits for an answer."
    )
    data_dir: Path = Field(
        default=Path(".tickrail"), description="Where `tickrail up` keeps its servers' data."
    )
    cache_dir: Path | None = Field(
        default=None, description="Where downloads are kept. Unset: the user's cache folder."
    )

    @model_validator(mode="after")
    def _lease_holds(self) -> Self:
        if 2 * self.renew_every + self.lease_margin > self.lease_ttl:
            raise ValueError(
                f"lease_ttl is {self.lease_ttl} s; it must hold two renewals and the margin"
                f" (2 x {self.renew_every:g} s + {self.lease_margin:g} s)"
            )
        return self

    def group(self, prefix: str) -> dict[str, Any]:
        """The settings whose names begin with `<prefix>_`, named without it.

        So `KafkaSettings(**settings.group("kafka"), topic_prefix=settings.topic_prefix)`.
        """
        start = f"{prefix}_"
        return {
            name.removeprefix(start): getattr(self, name)
            for name in type(self).model_fields
            if name.startswith(start)
        }

    def variables(self) -> dict[str, str]:
        """These settings as `TICKRAIL_*` variables for a process of its own, defaults left out."""
        found: dict[str, str] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if value is None:
                continue
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            found[f"TICKRAIL_{name.upper()}"] = text.lower() if isinstance(value, bool) else text
        return found

    def __repr_args__(self) -> Any:  # noqa: ANN401 - pydantic's own signature
        """What `repr` shows: no password, not even one inside a URL."""
        for name, value in super().__repr_args__():
            yield name, mask_url(value) if isinstance(value, str) else value


def mask_url(text: str) -> str:
    """The text with each password of a URL or of a libpq keyword string replaced."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1***@", text)
    return _WORD_PASSWORD.sub(r"\1***", text) if "password=" in text.lower() else text


def default_text(name: str) -> str:
    """A setting's default as one would give it; empty where there is none to show."""
    default = Settings.model_fields[name].get_default()
    if default is PydanticUndefined or default in (None, "", ()):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return ",".join(default) if isinstance(default, tuple) else str(default)

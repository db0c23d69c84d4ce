"""What can be set: one flat list for every process, each with its default and its bounds."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticUndefined

from tickrail.runtime.settings_types import (
    Kinds,
    Names,
    Port,
    Seconds,
    Topic,
    mask_url,
    secret_field,
)


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
        " `tickrail_api`, schedulers, workers and the watchdog that of `tickrail_engine`.",
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
    audit_days: int = Field(
        default=400, ge=1, le=36500, description="Days that entries of the audit log are kept."
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
    kafka_sasl_password: str = secret_field("For PLAIN and SCRAM.")
    kafka_ca_file: str = Field(
        default="", description="Certificates (PEM) that the brokers' are checked against."
    )
    kafka_cert_file: str = Field(default="", description="This client's certificate (PEM).")
    kafka_key_file: str = Field(default="", description="Its private key (PEM).")
    kafka_key_password: str = secret_field("The password of that key.")
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
    api_reuse_port: bool = Field(
        default=False,
        description="Share the port with other API processes of this machine that say so too: one"
        " for each core, the kernel spreads connections over them.",
    )
    api_connections: int = Field(
        default=1000, ge=1, le=100_000, description="Connections of clients at once; 503 beyond."
    )
    api_head_timeout: Seconds = Field(
        default=10.0, gt=0, le=600, description="For a request's line and headers to arrive; 408."
    )
    api_body_timeout: Seconds = Field(
        default=30.0, gt=0, le=3600, description="For a request's body to arrive; 408."
    )
    api_idle_timeout: Seconds = Field(
        default=65.0,
        ge=1,
        le=3600,
        description="Between two requests of a connection; longer than a balancer keeps its own.",
    )
    api_drain_delay: Seconds = Field(
        default=0.0,
        ge=0,
        le=30,
        description="How long a process that is asked to stop goes on taking requests after its"
        " /readyz has begun to say 503, so that balancers leave it first.",
    )
    api_cors_origins: Names = Field(
        default=(),
        examples=["https://console.example.org"],
        description="Origins (`https://host`, `*` for any) whose pages may read the API's answers"
        " in a browser. None: no CORS.",
    )
    api_hsts: int = Field(
        default=0,
        ge=0,
        le=63_072_000,
        description="Seconds that browsers shall speak TLS alone to this host"
        " (Strict-Transport-Security); 0: not said. Set it where a proxy in front speaks TLS.",
    )
    api_trusted_proxies: Names = Field(
        default=(),
        examples=["10.0.0.0/8,fd00::/8"],
        description="Networks (CIDR) of proxies before the API: what these say in X-Forwarded-For"
        " is taken for where a request comes from. Nobody else's word is.",
    )
    api_key_failures: int = Field(
        default=30,
        ge=0,
        le=1_000_000,
        description="Wrong keys a minute from one address (of IPv6, one /64) to one API process;"
        " then it is answered 429 for a while. 0: any number.",
    )
    oidc_issuer: str = Field(
        default="",
        pattern=r"^(https://\S+|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/\S*)?)?$",
        examples=["https://id.example.org"],
        description="The OpenID Connect issuer whose tokens the API takes beside keys, exactly as"
        " in their `iss`. Unset: none.",
    )
    oidc_audience: str = Field(default="", description="What `aud` of such a token must hold.")
    oidc_tenant_claim: str = Field(
        default="tickrail_tenant",
        min_length=1,
        description="The claim that names the tenant, by name or id; `a.b` is `b` inside `a`.",
    )
    oidc_scope_claim: str = Field(
        default="scope",
        min_length=1,
        description="The claim that holds scopes (`read`, `run`, `write`, `admin`, and `operator`"
        " for operators), in a text or a list.",
    )
    oidc_scope_map: Names = Field(
        default=(),
        examples=["team-leads=read+run+write,platform=operator+read+admin"],
        description="What other values of that claim grant, such as groups: `value=scope+scope`.",
    )
    oidc_default_scopes: Names = Field(
        default=(), description="Scopes of a token that lacks that claim."
    )
    key_pepper: str = secret_field(
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

    # The watchdog
    watchdog_every: Seconds = Field(
        default=15.0,
        ge=1,
        le=600,
        description="How often the watchdog looks; a pass over very many jobs takes longer.",
    )
    watchdog_late: Seconds = Field(
        default=30.0,
        ge=5,
        le=3600,
        description="So long after it was due a slot that is neither launched nor skipped is told.",
    )
    watchdog_look_back: Seconds = Field(
        default=3600.0,
        ge=60,
        le=86400,
        description="How far back the watchdog looks for such slots.",
    )
    watchdog_webhook: str = secret_field(
        "Where the watchdog tells operators what it finds: an http or https URL. It may be a"
        " private address. Unset: in its log and its metrics alone."
    )
    watchdog_webhook_secret: str = secret_field(
        "Signs these calls (Standard Webhooks): `whsec_` and a key in base64."
    )

    # Traces
    trace_endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^\s/]+\S*)?$",
        examples=["http://127.0.0.1:4318/v1/traces"],
        description="Where spans are sent, by OTLP over HTTP; needs the extra `tracing`. Unset: no"
        " traces.",
    )
    trace_sample: float = Field(
        default=0.01,
        ge=0,
        le=1,
        json_schema_extra={"allowed": "a number from 0 to 1"},
        examples=["0.01"],
        description="The share of traces begun here that is kept. One that a caller of the API"
        " began is kept where the caller keeps it.",
    )
    trace_headers: str = secret_field(
        "Headers sent with spans: `name=value` with commas, such as a collector's key."
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
        pattern=r"^(trk_[!-~]+|[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)?$",
        examples=["trk_<key id>_<secret>"],
        description="Its API key (`trk_...`), or a token of the issuer.",
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

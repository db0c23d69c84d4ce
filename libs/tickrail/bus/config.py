"""The settings of the Kafka clients, and what librdkafka calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import structlog

from tickrail.core.errors import Problem, SettingsError

_log = structlog.get_logger(__name__)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
GROUP_ASSIGNORS = ("roundrobin", "cooperative-sticky")
GROUP_PROTOCOLS = ("auto", "classic", "consumer")
REMOTE_ASSIGNOR = "range"
"""Of the broker's assignors, the one that gives each member its share of every topic."""

Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """How to reach Kafka, and how the clients behave.

    Attributes:
        bootstrap: `host:port[,host:port...]`.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; empty without SASL.
        sasl_username: for PLAIN and SCRAM.
        sasl_password: for PLAIN and SCRAM.
        ca_file: PEM of the authorities that are trusted; empty for the system's.
        cert_file: PEM of the client's certificate chain.
        key_file: PEM of the client's key.
        key_password: of key_file.
        group: name of the workers' consumer group.
        group_instance: a name that stays over restarts (static membership); empty for none.
        group_protocol: `classic` or `consumer` (KIP-848, brokers from 4.0); `auto` is for
            `bus.group.choose_group_protocol` to replace, and `classic` where nobody did.
        group_assignor: of the classic protocol. `roundrobin` gives each worker its share of every
            topic, at the price that a rebalance stops all of them for a moment;
            `cooperative-sticky` moves only what must move, but counts partitions alike, so one
            worker may get the whole topic that all the work is in.
        topic_prefix: first part of every topic's name.
        client_id: shown in the broker's logs.
        linger: seconds that the producer waits to fill a batch.
        delivery_timeout: seconds after which a message that was not acknowledged is given up.
        session_timeout: seconds without a sign of life until the group drops a member (classic).
        max_poll_interval: seconds without a poll until a member leaves the group by itself.
        queue_messages: messages that the producer holds before `publish` answers False.
        message_bytes: the largest message; not above the broker's limit.
        prefetch_kbytes: how much the consumer reads ahead in all, in KiB.
        extra: librdkafka properties set as they are, after all others.
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    group: str = "tickrail-workers"
    group_instance: str = ""
    group_protocol: str = "auto"
    group_assignor: str = "roundrobin"
    topic_prefix: str = "tickrail"
    client_id: str = "tickrail"
    linger: float = 0.005
    delivery_timeout: float = 20.0
    session_timeout: float = 10.0
    max_poll_interval: float = 60.0
    queue_messages: int = 20_000
    message_bytes: int = 1_000_000
    prefetch_kbytes: int = 4096
    extra: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work, naming each field.

        Raises:
            SettingsError: with one problem for each field.
        """
        problems = list(_problems(self))
        if problems:
            raise SettingsError("The Kafka settings are not valid.", tuple(problems))


def _problems(s: KafkaSettings) -> list[Problem]:
    wrong: list[Problem] = []

    def check(name: str, good: bool, expected: str) -> None:
        if not good:
            secret = not {f.name: f for f in fields(s)}[name].repr
            shown = "is not right" if secret else f"{getattr(s, name)!r} is not right"
            wrong.append(Problem(f"/kafka/{name}", shown, expected))

    servers = [part.strip().rpartition(":") for part in s.bootstrap.split(",")]
    check(
        "bootstrap",
        all(host and port.isdigit() and 0 < int(port) < 1 << 16 for host, _, port in servers),
        "host:port, several with commas",
    )
    check("security_protocol", s.security_protocol in SECURITY_PROTOCOLS, _one(SECURITY_PROTOCOLS))
    sasl = s.security_protocol.startswith("SASL")
    if sasl:
        check("sasl_mechanism", s.sasl_mechanism in SASL_MECHANISMS, _one(SASL_MECHANISMS))
        if s.sasl_mechanism != "OAUTHBEARER":
            check("sasl_username", bool(s.sasl_username), "the user's name")
            check("sasl_password", bool(s.sasl_password), "the user's password")
    else:
        check("sasl_mechanism", not s.sasl_mechanism, "empty, or security_protocol SASL_SSL")
    check("key_file", bool(s.key_file) == bool(s.cert_file), "cert_file and key_file together")
    check("group", bool(s.group), "the name of a consumer group")
    check("group_protocol", s.group_protocol in GROUP_PROTOCOLS, _one(GROUP_PROTOCOLS))
    check("group_assignor", s.group_assignor in GROUP_ASSIGNORS, _one(GROUP_ASSIGNORS))
    check("linger", 0 <= s.linger <= 1, "0 to 1 seconds")
    check("delivery_timeout", 1 <= s.delivery_timeout <= 300, "1 to 300 seconds")  # noqa: PLR2004 - said beside
    check("session_timeout", 6 <= s.session_timeout <= 300, "6 to 300 seconds")  # noqa: PLR2004 - said beside
    check("max_poll_interval", s.max_poll_interval >= s.session_timeout, "session_timeout or more")
    check("queue_messages", s.queue_messages >= 1, "1 or more")
    check("message_bytes", 1000 <= s.message_bytes <= 1_000_000_000, "1,000 or more bytes")  # noqa: PLR2004 - said beside
    check("prefetch_kbytes", s.prefetch_kbytes >= 1, "1 or more")
    return wrong


def _one(names: tuple[str, ...]) -> str:
    return "one of " + ", ".join(names)


def common_config(s: KafkaSettings) -> Config:
    """What every client needs: addresses, security, back-off."""
    config: Config = {
        "bootstrap.servers": s.bootstrap,
        "client.id": s.client_id,
        "security.protocol": s.security_protocol,
        # An absent broker is tried at most every two seconds: an outage costs no CPU to speak of.
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2000,
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "socket.timeout.ms": 10_000,
        "socket.connection.setup.timeout.ms": 5000,
        "topic.metadata.refresh.interval.ms": 10_000,
        "topic.metadata.propagation.max.ms": 5000,  # then a topic that is not there is an error
        "allow.auto.create.topics": False,
        "statistics.interval.ms": 3000,  # BrokerWatch and the consumer's lag live on them
        "logger": ClientLog(),
    }
    named = {
        "sasl.mechanism": s.sasl_mechanism,
        "sasl.username": s.sasl_username,
        "sasl.password": s.sasl_password,
        "ssl.ca.location": s.ca_file,
        "ssl.certificate.location": s.cert_file,
        "ssl.key.location": s.key_file,
        "ssl.key.password": s.key_password,
    }
    config.update({name: value for name, value in named.items() if value})
    return config


def producer_config(s: KafkaSettings) -> Config:
    """An idempotent producer that waits for all replicas."""
    return {
        **common_config(s),
        "enable.idempotence": True,  # implies acks=all
        "linger.ms": round(s.linger * 1000),
        "delivery.timeout.ms": round(s.delivery_timeout * 1000),
        "queue.buffering.max.messages": s.queue_messages,
        "message.max.bytes": s.message_bytes,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 1000,
        **s.extra,
    }


def consumer_config(s: KafkaSettings) -> Config:
    """A member of the group that commits by hand and starts at the earliest message."""
    config: Config = {
        **common_config(s),
        "group.id": s.group,
        "group.protocol": "consumer" if s.group_protocol == "consumer" else "classic",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
        "max.poll.interval.ms": round(s.max_poll_interval * 1000),
        "queued.max.messages.kbytes": s.prefetch_kbytes,
        "queued.min.messages": 2000,
        "fetch.queue.backoff.ms": 10,
        "fetch.error.backoff.ms": 200,
        "fetch.message.max.bytes": max(s.message_bytes, 1 << 18),
        "fetch.max.bytes": max(s.prefetch_kbytes << 10, s.message_bytes, 1 << 18),
    }
    if s.group_instance:
        config["group.instance.id"] = s.group_instance
    if s.group_protocol == "consumer":  # the broker holds the timeouts, and refuses ours
        config["group.remote.assignor"] = REMOTE_ASSIGNOR
    else:
        config["partition.assignment.strategy"] = s.group_assignor
        config["session.timeout.ms"] = round(s.session_timeout * 1000)
        config["heartbeat.interval.ms"] = max(500, round(s.session_timeout * 200))
    return {**config, **s.extra}


def admin_config(s: KafkaSettings) -> Config:
    """A client for topics."""
    return {**common_config(s), "statistics.interval.ms": 0, **s.extra}


class ClientLog:
    """Takes librdkafka's log lines.

    They repeat an outage for each connection and each try, so they go to debug level; what a person
    needs to hear is said once by the publisher and the consumer.
    """

    def log(self, _level: int, message: str, *args: object) -> None:
        """Called by confluent_kafka with a format string and its values."""
        _log.debug("librdkafka", line=message % args if args else message)

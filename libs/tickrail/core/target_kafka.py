"""The kafka target: one message to a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tickrail.core.documents import escape, json_problems
from tickrail.core.target_fields import TargetFields
from tickrail.core.templates import compile_value, parse_template

MAX_HEADERS = 50
MAX_HEADER_NAME = 200
MAX_HEADER_VALUE = 4096
MAX_KEY = 4096
MAX_PARTITION = 100_000
RESERVED_HEADERS = frozenset({"idempotency-key", "fencing-token", "traceparent"})
RESERVED_PREFIX = "tickrail-"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOPIC_EXPECTED = "1 to 249 letters, digits, . _ - (and not . or .. alone)"
_INTERNAL = "__"


@dataclass(slots=True, frozen=True)
class Kafka:
    """A message to a topic.

    Key, header values and the strings of the value are templates (`core/templates.py`).

    Attributes:
        topic: its name; the tenant must be allowed to use it.
        key: text, sent as UTF-8; None for a message without a key.
        headers: pairs of texts in the order given, sent as UTF-8 beside those of Tickrail.
        value: a JSON value; a string is sent as it is, any other as JSON. None: the payload as
            JSON.
        partition: the partition; None leaves it to the key, by the hash of Kafka's own clients.
    """

    topic: str
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    value: object = None
    partition: int | None = None


def kafka_document(target: Kafka) -> dict[str, object]:
    """The fields of its document."""
    document: dict[str, object] = {"topic": target.topic, "headers": dict(target.headers)}
    for name in ("key", "value", "partition"):
        if (value := getattr(target, name)) is not None:
            document[name] = value
    return document


def read_kafka(fields: TargetFields) -> Kafka | None:
    """The target; problems go to the fields."""
    fields.only("topic", "key", "headers", "value", "partition")
    topic = fields.text("topic", "the name of a topic", limit=4096)
    if not fields.has("topic"):
        fields.wrong("topic", "is missing", "the name of a topic")
    elif topic is not None and not _is_topic(topic):
        fields.wrong("topic", "is no name of a topic", _TOPIC_EXPECTED)
    elif topic is not None and topic.startswith(_INTERNAL):
        fields.wrong("topic", "is one of Kafka's own", "a topic whose name does not begin with __")
    key = fields.text("key", "a text", limit=MAX_KEY)
    if key is not None:
        _check_template(fields, "key", key)
    headers = _headers(fields)
    value = fields.get("value")
    problems = list(json_problems(value, ""))
    for problem in problems:
        fields.wrong(f"value{problem.pointer}", problem.message, problem.expected)
    if not problems:
        _check_template(fields, "value", value)
    partition = fields.get("partition")
    if partition is not None and (
        isinstance(partition, bool)
        or not isinstance(partition, int)
        or not 0 <= partition <= MAX_PARTITION
    ):
        fields.wrong("partition", "is no number of a partition", f"0 to {MAX_PARTITION}")
        partition = None
    return None if topic is None else Kafka(topic, key, headers, value, partition)


def topic_allowed(topic: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is this topic; `*` in a pattern stands for any characters."""
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), topic) for pattern in patterns
    )


def topic_refusal(topic: str, patterns: Iterable[str], prefix: str) -> str | None:
    """Why a tenant may not send to this topic, in words; None where it may.

    Args:
        topic: the topic.
        patterns: what the tenant may use (`orders.*`).
        prefix: first part of the names of Tickrail's own topics, which no tenant may use.
    """
    if topic == prefix or topic.startswith((f"{prefix}.", _INTERNAL)):
        return f"topic {topic} is for inside use only"
    if not topic_allowed(topic, patterns):
        return f"topic {topic} is not among those that this tenant may use"
    return None


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def _headers(fields: TargetFields) -> tuple[tuple[str, str], ...]:
    headers = fields.pairs("headers")
    if len(headers) > MAX_HEADERS:
        fields.wrong("headers", f"has {len(headers)} headers", f"at most {MAX_HEADERS}")
    for name, value in headers:
        where, lower = f"headers/{escape(name)}", name.lower()
        if not 0 < len(name) <= MAX_HEADER_NAME:
            fields.wrong(where, "is no name of a header", f"1 to {MAX_HEADER_NAME} characters")
        elif not fields.clean(where, name):
            continue
        elif lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIX):
            fields.wrong(where, "is set by Tickrail", "another name")
        if len(value) > MAX_HEADER_VALUE:
            fields.wrong(where, "is too long", f"at most {MAX_HEADER_VALUE} characters")
        else:
            _check_template(fields, where, value)
    return tuple(headers)


def _check_template(fields: TargetFields, where: str, value: object) -> None:
    try:
        if isinstance(value, str):
            parse_template(value)
        else:
            compile_value(value)
    except ValueError as error:
        fields.wrong(where, "is no template that can be filled", str(error))

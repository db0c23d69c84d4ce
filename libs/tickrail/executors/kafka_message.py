"""What a kafka target sends, where a tenant may send it, and what a report means."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from tickrail.core.clock import Clock
from tickrail.core.errors import InvalidInputError
from tickrail.core.execution import OK, Outcome, Run, one_line
from tickrail.core.ports_bus import BusError, Delivery, Headers, UnknownTopicError
from tickrail.core.target_kafka import Kafka, topic_refusal
from tickrail.core.targets import parse_target
from tickrail.core.templates import FillError, Room, compile_value, render_value, text_of
from tickrail.executors.http_rules import instant_text

Topics = Callable[[UUID], Sequence[str]]
"""The topics that a tenant may use, as patterns. Raises UnavailableError."""


class RefusedError(Exception):
    """The message is not sent; `outcome` says why."""

    def __init__(self, outcome: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.outcome = Outcome(
            ok=False, outcome=outcome, retryable=retryable, message=one_line(message)
        )


@dataclass(frozen=True, kw_only=True)
class KafkaTargetSettings:
    """How messages are sent.

    Attributes:
        prefix: first part of the names of Tickrail's own topics, which no target may use.
        topics_for: seconds that a tenant's topics are held for known.
        tenants: of how many tenants at most.
    """

    prefix: str
    topics_for: float = 5.0
    tenants: int = 10_000


class AllowedTopics:
    """The topics of tenants, held for known for a few seconds. For one thread."""

    def __init__(self, topics: Topics, clock: Clock, settings: KafkaTargetSettings) -> None:
        self._topics = topics
        self._clock = clock
        self._settings = settings
        self._known: OrderedDict[UUID, tuple[float, Sequence[str]]] = OrderedDict()

    def refusal(self, tenant: UUID, topic: str) -> str | None:
        """Why the tenant may not use the topic; None where it may.

        Raises:
            UnavailableError: what it may use cannot be read.
        """
        now = self._clock.monotonic()
        known = self._known.get(tenant)
        if known is None or now >= known[0]:
            known = (now + self._settings.topics_for, tuple(self._topics(tenant)))
            self._known[tenant] = known
            self._known.move_to_end(tenant)
            if len(self._known) > self._settings.tenants:
                self._known.popitem(last=False)
        return topic_refusal(topic, known[1], self._settings.prefix)


def target_of(run: Run) -> Kafka:
    """The target of a run.

    Raises:
        RefusedError: it is none.
    """
    try:
        target = parse_target(run.target)
    except InvalidInputError as error:
        raise RefusedError("invalid_target", str(error)) from error
    if not isinstance(target, Kafka):
        raise RefusedError("invalid_target", "not a kafka target")
    return target


def message_of(run: Run, target: Kafka) -> tuple[bytes | None, bytes, Headers]:
    """Key, value and headers of a run's message; Tickrail's own headers last.

    Raises:
        RefusedError: the payload has no place that a template names, or the message grows too long.
    """
    room = Room()
    try:
        key = None if target.key is None else _text(target.key, run, room).encode()
        headers = [(name, _text(value, run, room).encode()) for name, value in target.headers]
        value = run.payload
        if target.value is not None:
            value = render_value(compile_value(target.value), run, room)
    except FillError as error:
        raise RefusedError("invalid_target", str(error)) from error
    body = value if target.value is not None and isinstance(value, str) else json_text(value)
    return key, body.encode(), [*headers, *own_headers(run)]


def own_headers(run: Run) -> Headers:
    """What a webhook gets as HTTP headers, under the same names."""
    headers = [
        ("Idempotency-Key", str(run.launch_id)),
        ("Tickrail-Attempt", str(run.attempt)),
    ]
    if run.job_name:
        headers += [
            ("Fencing-Token", str(run.claim)),
            ("Tickrail-Job", run.job_name),
            ("Tickrail-Scheduled-At", instant_text(run.scheduled_at)),
        ]
    if run.trace:
        headers.append(("traceparent", run.trace))
    return [(name, value.encode()) for name, value in headers]


def json_text(value: object) -> str:
    """A JSON value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(text: str, run: Run, room: Room) -> str:
    return text_of(render_value(compile_value(text), run, room))


def landed(topic: str, report: Delivery) -> Outcome:
    """The outcome of a message that is in its topic."""
    return Outcome(
        ok=True,
        outcome=OK,
        message=f"topic {topic}, partition {report.partition}, offset {report.offset}",
        place={"topic": topic, "partition": report.partition, "offset": report.offset},
    )


def failed(error: BusError) -> Outcome:
    """The outcome of a message whose report is an error."""
    return Outcome(
        ok=False,
        outcome="not_acknowledged" if type(error) is BusError else error.code,
        certain=error.permanent or isinstance(error, UnknownTopicError),
        retryable=not error.permanent,
        message=one_line(error.detail),
    )

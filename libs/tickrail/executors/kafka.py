"""The kafka target: one message to a topic, ended by its delivery report.

One thread owns the publisher. A message that was handed over cannot be taken back: a run that is
stopped or out of time then ends as uncertain, and what comes of its message later changes nothing.

Certain and uncertain: a message that was refused before it was sent, that is too large, or whose
topic is not there, is certain not to be in the topic. Any other failure is uncertain.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import InvalidInputError, UnavailableError
from tickrail.core.execution import (
    INTERRUPTED,
    OK,
    TIMED_OUT,
    Done,
    Outcome,
    Run,
    one_line,
)
from tickrail.core.ports_bus import BusError, Delivery, Headers, Publisher, UnknownTopicError
from tickrail.core.target_kafka import Kafka, topic_refusal
from tickrail.core.targets import parse_target
from tickrail.core.templates import (
    MissingValueError,
    compile_value,
    render_value,
    text_of,
)
from tickrail.executors.http_rules import instant_text

_log = structlog.get_logger(__name__)

Topics = Callable[[UUID], Sequence[str]]
"""The topics that a tenant may use, as patterns. Raises UnavailableError."""

_REPORTS = 0.02
"""Seconds that reports are waited for before new runs are looked at again."""
_IDLE = 0.5
_EXPIRY = 0.1
"""How often runs out of time are looked for, seconds."""
_FULL = "queue_full"


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


class _Call:
    """One run under way."""

    __slots__ = ("done", "ended", "ends_at", "run", "sent", "topic")

    def __init__(self, run: Run, done: Done, ends_at: float) -> None:
        self.run = run
        self.done = done
        self.ends_at = ends_at
        self.sent = False
        self.ended = False
        self.topic = ""


class _RefusedError(Exception):
    """The message is not sent."""

    def __init__(self, outcome: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.outcome = Outcome(
            ok=False, outcome=outcome, retryable=retryable, message=one_line(message)
        )


class KafkaExecutor:
    """`core.execution.Executor` for `kafka`. `done` is called on its thread."""

    kinds = frozenset({"kafka"})

    def __init__(
        self, publisher: Publisher, topics: Topics, clock: Clock, settings: KafkaTargetSettings
    ) -> None:
        """Starts its thread.

        Args:
            publisher: sends; owned by this executor from now on, which closes it.
            topics: what a tenant may use.
            clock: measures how long a run takes.
            settings: the numbers.
        """
        self._publisher = publisher
        self._clock = clock
        self._allowed = _Allowed(topics, clock, settings)
        self._new: deque[_Call] = deque()
        self._stops: deque[tuple[Run, str]] = deque()
        self._calls: dict[Run, _Call] = {}
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._closing = False
        self._close_at = float("inf")
        self._next_expiry = 0.0
        self._thread = threading.Thread(target=self._serve, name="kafka targets", daemon=True)
        self._thread.start()

    def start(self, run: Run, done: Done) -> None:
        """Hand the run to the thread."""
        with self._lock:
            if not self._closing:
                self._new.append(_Call(run, done, self._clock.monotonic() + run.timeout))
                self._arrived.set()
                return
        done(run, Outcome(ok=False, outcome=INTERRUPTED, message="this worker is stopping"))

    def cancel(self, run: Run, reason: str) -> None:
        """End the run; a message that was handed over may still arrive."""
        self._stops.append((run, reason))
        self._arrived.set()

    def close(self, grace: float) -> None:
        """Wait `grace` seconds for reports, then end what is open."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._close_at = self._clock.monotonic() + grace
                self._arrived.set()
        self._thread.join()

    @property
    def open_calls(self) -> int:
        """Runs under way."""
        return len(self._calls) + len(self._new)

    # --- on its thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._over():
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - the border of the thread
                # A bug here must not end the thread: its runs would hang until their claims end.
                _log.exception("kafka targets failed inside")
                self._arrived.clear()
                self._arrived.wait(_IDLE)
        for call in list(self._calls.values()):
            self._end(call, _stopped(call, INTERRUPTED))
        while self._new:
            call = self._new.popleft()
            self._end(call, _stopped(call, INTERRUPTED))
        self._publisher.close(0.0)

    def _over(self) -> bool:
        if not self._closing:
            return False
        return not (self._calls or self._new) or self._clock.monotonic() >= self._close_at

    def _turn(self) -> None:
        self._arrived.clear()
        while self._new:
            call = self._new.popleft()
            self._calls[call.run] = call
            self._send(call)
        while self._stops:
            run, reason = self._stops.popleft()
            if (stopped := self._calls.get(run)) is not None:
                self._end(stopped, _stopped(stopped, reason))
        busy = self._publisher.outstanding > 0
        for report in self._publisher.poll(_REPORTS if busy else 0.0):
            self._report(report)
        self._expire()
        if not busy and not self._closing:
            self._arrived.wait(_IDLE)

    def _send(self, call: _Call) -> None:
        try:
            target = _target(call.run)
            call.topic = target.topic
            if why := self._allowed.refusal(call.run.tenant_id, target.topic):
                raise _RefusedError("refused_topic", why)  # noqa: TRY301 - one place ends a run
            key, value, headers = _message(call.run, target)
            taken = self._publisher.publish(
                target.topic,
                -1 if target.partition is None else target.partition,
                key,
                value,
                headers,
                call,
            )
        except _RefusedError as refused:
            self._end(call, refused.outcome)
            return
        except UnavailableError as error:
            outcome = Outcome(ok=False, outcome="unavailable", message=one_line(error.detail))
            self._end(call, outcome)
            return
        except Exception as error:  # noqa: BLE001 - the border of one run
            _log.exception("kafka target failed inside", launch=str(call.run.launch_id))
            text = one_line(f"{type(error).__name__}: {error}")
            self._end(call, Outcome(ok=False, outcome="internal", message=text))
            return
        if taken:
            call.sent = True
        else:
            text = "more messages wait to be sent than this worker holds"
            self._end(call, Outcome(ok=False, outcome=_FULL, message=text))

    def _report(self, report: Delivery) -> None:
        call = report.token
        if isinstance(call, _Call) and not call.ended:
            if report.error is None:
                self._end(call, _landed(call.topic, report))
            else:
                self._end(call, _failed(report.error))

    def _expire(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_expiry:
            return
        self._next_expiry = now + _EXPIRY
        for call in [c for c in self._calls.values() if now >= c.ends_at]:
            text = f"Kafka did not acknowledge the message within {call.run.timeout:g} s"
            self._end(
                call,
                Outcome(ok=False, outcome=TIMED_OUT, certain=not call.sent, message=text),
            )

    def _end(self, call: _Call, outcome: Outcome) -> None:
        call.ended = True
        self._calls.pop(call.run, None)
        try:
            call.done(call.run, outcome)
        except Exception:  # noqa: BLE001 - the border to the caller
            _log.exception("an outcome was not taken", launch=str(call.run.launch_id))


class _Allowed:
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


def _target(run: Run) -> Kafka:
    try:
        target = parse_target(run.target)
    except InvalidInputError as error:
        raise _RefusedError("invalid_target", str(error)) from error
    if not isinstance(target, Kafka):
        raise _RefusedError("invalid_target", "not a kafka target")
    return target


def _message(run: Run, target: Kafka) -> tuple[bytes | None, bytes, Headers]:
    """Key, value and headers of a run's message; Tickrail's own headers last."""
    try:
        key = None if target.key is None else _text(target.key, run).encode()
        headers = [(name, _text(value, run).encode()) for name, value in target.headers]
        value = run.payload
        if target.value is not None:
            value = render_value(compile_value(target.value), run)
    except MissingValueError as error:
        raise _RefusedError("invalid_target", str(error)) from error
    body = value if target.value is not None and isinstance(value, str) else json_text(value)
    return key, body.encode(), [*headers, *own_headers(run)]


def own_headers(run: Run) -> Headers:
    """What a webhook gets as HTTP headers, under the same names."""
    headers = [
        ("Idempotency-Key", str(run.launch_id)),
        ("Fencing-Token", str(run.claim)),
        ("Tickrail-Job", run.job_name),
        ("Tickrail-Scheduled-At", instant_text(run.scheduled_at)),
        ("Tickrail-Attempt", str(run.attempt)),
    ]
    if run.trace:
        headers.append(("traceparent", run.trace))
    return [(name, value.encode()) for name, value in headers]


def json_text(value: object) -> str:
    """A JSON value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(text: str, run: Run) -> str:
    return text_of(render_value(compile_value(text), run))


def _landed(topic: str, report: Delivery) -> Outcome:
    return Outcome(
        ok=True,
        outcome=OK,
        message=f"topic {topic}, partition {report.partition}, offset {report.offset}",
        place={"topic": topic, "partition": report.partition, "offset": report.offset},
    )


def _failed(error: BusError) -> Outcome:
    return Outcome(
        ok=False,
        outcome="not_acknowledged" if type(error) is BusError else error.code,
        certain=error.permanent or isinstance(error, UnknownTopicError),
        retryable=not error.permanent,
        message=one_line(error.detail),
    )


def _stopped(call: _Call, reason: str) -> Outcome:
    what = "the message was sent and may arrive" if call.sent else "the message was not sent"
    return Outcome(ok=False, outcome=reason, certain=not call.sent, message=what)

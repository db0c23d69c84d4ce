"""The kafka target: one message to a topic, ended by its delivery report.

One thread owns the publisher. A message that was handed over cannot be taken back: a run that is
stopped or out of time then ends as uncertain, and what comes of its message later changes nothing.

Certain and uncertain: a message that was refused before it was sent, that is too large, or whose
topic is not there, is certain not to be in the topic. Any other failure is uncertain.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import INTERRUPTED, TIMED_OUT, Done, Outcome, Run, one_line
from tickrail.core.ports_bus import Delivery, Publisher
from tickrail.executors.kafka_message import (
    AllowedTopics,
    KafkaTargetSettings,
    RefusedError,
    Topics,
    failed,
    landed,
    message_of,
    target_of,
)

_log = structlog.get_logger(__name__)

_REPORTS = 0.02
"""Seconds that reports are waited for before new runs are looked at again."""
_IDLE = 0.5
_EXPIRY = 0.1
"""How often runs out of time are looked for, seconds."""
_FULL = "queue_full"


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


class KafkaExecutor:
    """`core.execution.Executor` for `kafka`. `done` is called on its thread."""

    kinds = frozenset({"kafka"})

    def __init__(
        self,
        connect: Callable[[], Publisher],
        topics: Topics,
        clock: Clock,
        settings: KafkaTargetSettings,
    ) -> None:
        """Starts its thread.

        Args:
            connect: makes what sends, at the first run: a worker that has none for Kafka keeps no
                connections for them. It is closed by this executor.
            topics: what a tenant may use.
            clock: measures how long a run takes.
            settings: the numbers.
        """
        self._connect = connect
        self._publisher: Publisher | None = None
        self._clock = clock
        self._allowed = AllowedTopics(topics, clock, settings)
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
        if self._publisher is not None:
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
        busy = False
        if self._publisher is not None:
            busy = self._publisher.outstanding > 0
            for report in self._publisher.poll(_REPORTS if busy else 0.0):
                self._report(report)
        self._expire()
        if not busy and not self._closing:
            self._arrived.wait(_IDLE)

    def _send(self, call: _Call) -> None:
        try:
            target = target_of(call.run)
            call.topic = target.topic
            if why := self._allowed.refusal(call.run.tenant_id, target.topic):
                raise RefusedError("refused_topic", why)  # noqa: TRY301 - one place ends a run
            key, value, headers = message_of(call.run, target)
            self._publisher = self._publisher or self._connect()
            taken = self._publisher.publish(
                target.topic,
                -1 if target.partition is None else target.partition,
                key,
                value,
                headers,
                call,
            )
        except RefusedError as refused:
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
                self._end(call, landed(call.topic, report))
            else:
                self._end(call, failed(report.error))

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


def _stopped(call: _Call, reason: str) -> Outcome:
    what = "the message was sent and may arrive" if call.sent else "the message was not sent"
    return Outcome(ok=False, outcome=reason, certain=not call.sent, message=what)

"""The runs of a worker: from the claim to the recorded end.

`Runs` keeps what runs, starts it, keeps its claims (`heartbeat_once`) and records its end
(`finish_once`); the last two are loop bodies for a thread each. A result counts only while the
claim is ours in the database; else it is stale and changes nothing.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import CLAIM_LOST, INTERRUPTED, TIMED_OUT, Executor, Outcome, Run
from tickrail.core.ids import LaunchId
from tickrail.core.ports import OwedLetter
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import (
    NO_TRACER,
    NOTHING,
    Span,
    SpanKind,
    Tracer,
    trace_fields,
)
from tickrail.core.ports_worker import Extension, WorkerStore
from tickrail.engine.active import Active
from tickrail.engine.job_texts import JobTexts
from tickrail.engine.run_record import Recorder
from tickrail.engine.run_reports import RunReports

log = structlog.get_logger("tickrail.runs")

CEILING = timedelta(hours=12)
"""No run is kept for longer than this."""
_WATCH_SECONDS = 0.25
_LONG = 4096
"""Characters of a definition that are not kept for as long as its run lasts."""

NOT_SERVED = "not_served"


@dataclass(frozen=True, slots=True)
class RunsSettings:
    """How runs are kept.

    Attributes:
        overdue: seconds beyond its timeout after which a run that its executor let go on is
            stopped, whatever that executor does.
        stubborn: seconds beyond its timeout after which a run that does not stop is named.
        extensions: how often a claim is extended within its visibility timeout.
        margin: seconds before the claim's end at which a run must be stopped if not extended.
        gather: seconds that results are gathered for before they are written.
        batch: results written in one statement.
    """

    overdue: float = 3.0
    stubborn: float = 20.0
    extensions: int = 3
    margin: float = 1.0
    gather: float = 0.01
    batch: int = 500


class Runs:
    """Starts, keeps and ends runs. Safe to use from several threads."""

    def __init__(  # noqa: PLR0913 - the parts of a worker meet here
        self,
        store: WorkerStore,
        executors: Sequence[Executor],
        clock: Clock,
        metrics: Metrics,
        settings: RunsSettings,
        *,
        offset_done: Callable[[tuple[str, int, int], int], None],
        letters: Callable[[Sequence[OwedLetter]], Sequence[tuple[LaunchId, Any, int]]],
        reports: RunReports | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """No runs yet.

        Args:
            store: claims and ends.
            executors: one for each kind of target that this worker runs.
            clock: the clock.
            metrics: where runs are counted.
            settings: the numbers.
            offset_done: told that nothing more is owed for an offset.
            letters: publishes dead letters; answers those that arrived.
            reports: takes what runs tell while they go on.
            tracer: traces the runs of launches that are traced.
        """
        self.tracer = tracer
        self._store = store
        self._executors: dict[str, Executor] = {k: e for e in executors for k in e.kinds}
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._offset_done = offset_done
        self._recorder = Recorder(store, metrics, letters)
        self._reports = reports
        # Neither by launch nor by claim: after a pause, this worker may hold a later attempt of a
        # launch and still run the earlier one; and a database that lost its last transactions
        # gives the same claim number once more.
        self._active: dict[Active, None] = {}
        self._running: dict[Run, Active] = {}
        self._latest: dict[LaunchId, Active] = {}
        self._ended: deque[tuple[Active, Outcome]] = deque()
        self._arrived = threading.Event()
        self._texts = JobTexts()
        self._draining = False
        self._interrupted = 0

    @property
    def executors(self) -> Sequence[Executor]:
        """One for each kind of target, some perhaps for several."""
        return list({id(e): e for e in self._executors.values()}.values())

    @property
    def count(self) -> int:
        """Runs whose end is not recorded yet."""
        return len(self._active)

    @property
    def guarded(self) -> bool:
        """Whether every run is guarded by a claim that was extended, and no more by its offset."""
        return all(a.extended for a in list(self._active))

    @property
    def interrupted(self) -> int:
        """Runs that a stop of this worker interrupted."""
        return self._interrupted

    def drain(self) -> None:
        """From any thread: the next heartbeat extends every claim that was not extended yet."""
        self._draining = True

    # --- start ------------------------------------------------------------------------------------

    def start(self, a: Active) -> None:
        """Start a claimed attempt, if its claim still holds by our own clock."""
        c = a.claimed
        a.claimed_at = a.sent
        self._latest[c.id] = a
        self._active[a] = None
        try:
            a.job = self._texts.of(c)
            if len(c.definition) > _LONG:
                a.claimed = c._replace(definition="")  # up to 1 MiB, for as long as it runs
            executor = self._executors.get(next(iter(a.job.target), ""))
            payload = a.job.payload if c.payload is None else json.loads(c.payload)
        except Exception as e:
            log.exception("definition_unreadable", launch=str(c.id), job=str(c.job))
            self._end(a, Outcome(ok=False, outcome="unreadable", retryable=False, message=str(e)))
            return
        if executor is None:
            kind = next(iter(a.job.target), "?")
            self._end(
                a,
                Outcome(
                    ok=False,
                    outcome=NOT_SERVED,
                    retryable=True,
                    message=f"no worker setting allows {kind} targets here",
                ),
            )
            return
        if self._clock.monotonic() >= a.sent + c.visibility - self._settings.margin:
            # Paused between the claim and now: another worker may have it already.
            self._end(
                a, Outcome(ok=False, outcome=CLAIM_LOST, message="claim ran out before start")
            )
            return
        if a.trace is not None:
            a.span = self._span(a)
        a.run = Run(
            c.id,
            c.job,
            a.job.name,
            c.tenant,
            c.scheduled_at,
            c.attempt,
            c.claim,
            a.job.target,
            payload,
            a.job.timeout,
            a.span.traceparent or a.trace,
        )
        self._running[a.run] = a
        if self._reports is not None:
            self._reports.begin(a.run)
        a.run.began = self._clock.monotonic()
        try:
            executor.start(a.run, self._done)
        except Exception as e:
            log.exception("executor_failed", launch=str(c.id), job=str(c.job))
            message = f"{type(e).__name__}: {e}"
            self._done(a.run, Outcome(ok=False, outcome="internal", certain=False, message=message))

    def _span(self, a: Active) -> Span:
        c = a.claimed
        return self.tracer.begin(
            "run",
            a.trace,
            SpanKind.CONSUMER,
            links=[a.published],
            target="" if a.job is None else next(iter(a.job.target), ""),
            job=str(c.job),
            job_name=None if a.job is None else a.job.name,
            tenant=str(c.tenant),
            launch=str(c.id),
            attempt=c.attempt,
            claim=c.claim,
        )

    def _done(self, run: Run, outcome: Outcome) -> None:
        a = self._running.pop(run, None)
        if a is not None:
            if run.began is not None:
                a.took = max(0.0, self._clock.monotonic() - run.began)
            self._interrupted += outcome.outcome == INTERRUPTED
            if self._reports is not None:
                self._reports.end(run)
            self._end(a, outcome)

    def _end(self, a: Active, outcome: Outcome) -> None:
        if a.span is not NOTHING:
            a.span.note(outcome=outcome.outcome, code=outcome.code)
            a.span.end(None if outcome.ok else outcome.message or outcome.outcome)
        self._ended.append((a, outcome))
        if not self._arrived.is_set():
            self._arrived.set()

    # --- end --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End a wait of `finish_once`."""
        self._arrived.set()

    def finish_once(self, wait: float = 0.5) -> int:
        """Record what has ended; how many. Waits up to `wait` seconds for the first result.

        Raises:
            UnavailableError: the database does not answer; the results are kept for the next call.
        """
        if not self._ended:
            self._arrived.wait(wait)
            self._arrived.clear()
            if not self._ended:
                return 0
        if len(self._ended) < self._settings.batch and self._settings.gather:
            # Results come in crowds: one commit for those of the next moment too.
            threading.Event().wait(self._settings.gather)
        batch = [self._ended.popleft() for _ in range(min(len(self._ended), self._settings.batch))]
        self._recorder.record(
            batch, self._over, lambda kept: self._ended.extendleft(reversed(kept))
        )
        return len(batch)

    def _over(self, a: Active) -> None:
        self._forget(a)
        self._offset_done(a.place, a.offset)

    def _forget(self, a: Active) -> None:
        self._active.pop(a, None)
        if self._latest.get(a.claimed.id) is a:
            del self._latest[a.claimed.id]

    # --- keep -------------------------------------------------------------------------------------

    def heartbeat_once(self) -> float:
        """Extend the claims whose time it is; seconds until the next look.

        A claim is extended each third of its visibility timeout, unless `RunsSettings.extensions`
        says otherwise. Where that fails until a margin before its end, or the database says that it
        is gone or its cancel was asked for, the run is stopped.

        Raises:
            UnavailableError: the database does not answer; claims that are about to end were
                stopped.
        """
        now = self._clock.monotonic()
        active = list(self._active)
        for a in active:
            if self._latest.get(a.claimed.id, a) is not a:
                self._stop(a, CLAIM_LOST)  # a later attempt runs here already
        active = [a for a in active if self._latest.get(a.claimed.id) is a]
        due = [
            a
            for a in active
            if now >= a.sent + a.claimed.visibility / self._settings.extensions
            or (self._draining and not a.extended)
        ]
        if due:
            try:
                answer = self._store.extend(
                    [
                        Extension(
                            a.claimed.id,
                            a.claimed.scheduled_at,
                            a.claimed.claim,
                            a.claimed.visibility,
                        )
                        for a in due
                    ],
                    CEILING,
                )
            except UnavailableError:
                self._stop_expiring(due)
                raise
            self._metrics.count("claims_extended_total", len(answer.held))
            for a in due:
                if a.claimed.id not in answer.held:
                    over = a.run is not None and now - a.claimed_at >= CEILING.total_seconds()
                    self._stop(a, TIMED_OUT if over else CLAIM_LOST)
                    continue
                a.sent = now
                if not a.extended:
                    # From here on the claim guards the run: a long run holds up nobody's offsets.
                    a.extended = True
                    self._offset_done(a.place, a.offset)
        self._look_for_cancels(active, now)
        return 1.0

    def watch_once(self) -> float:
        """Stop runs whose claims are about to end or whose time is over; seconds until the next.

        In a thread that calls no server: the one that extends may be waiting for PostgreSQL, and
        a run must not outlive its claim because of that.
        """
        running = list(self._running.values())
        self._stop_expiring(running)
        self._stop_overdue(running)
        return _WATCH_SECONDS

    def _look_for_cancels(self, active: Sequence[Active], now: float) -> None:
        old = [a for a in active if not a.stopping and a.run is not None and now - a.sent > 1.0]
        if not old:
            return
        asked = self._store.asked_to_stop([(a.claimed.id, a.claimed.scheduled_at) for a in old])
        for a in old:
            if a.claimed.id in asked:
                self._stop(a, "cancelled")

    def _stop_expiring(self, due: Sequence[Active]) -> None:
        now = self._clock.monotonic()
        for a in due:
            if now >= a.sent + a.claimed.visibility - self._settings.margin:
                self._stop(a, CLAIM_LOST)

    def _stop_overdue(self, running: Sequence[Active]) -> None:
        """The timeout of an attempt holds whatever its executor does.

        What cannot be stopped (a thread) keeps its claim until it ends: a retry beside it would be
        a second effect at the same time.
        """
        now = self._clock.monotonic()
        for a in running:
            if a.run is None or a.run.began is None:
                continue
            over = now - a.run.began - a.run.timeout
            if over >= self._settings.overdue:
                self._stop(a, TIMED_OUT)
            if over >= self._settings.stubborn and not a.named:
                a.named = True
                self._metrics.count("runs_not_stopped_total", kind=a.run.kind)
                log.error(
                    "run_does_not_stop",
                    launch=str(a.claimed.id),
                    job=a.run.job_name,
                    kind=a.run.kind,
                    seconds_over=round(over, 1),
                    **trace_fields(a.run.trace),
                )

    def _stop(self, a: Active, reason: str) -> None:
        if a.stopping or a.run is None or a.run not in self._running:
            return  # what has ended only waits for its record
        a.stopping = True
        log.warning(
            "run_stopped",
            launch=str(a.claimed.id),
            job=str(a.claimed.job),
            reason=reason,
            **trace_fields(a.run.trace),
        )
        self._executors[a.run.kind].cancel(a.run, reason)

    # --- close ------------------------------------------------------------------------------------

    def close(self, grace: float) -> None:
        """Let runs go on for `grace` seconds, end the rest as interrupted.

        Their ends are still to be recorded by `finish_once`.
        """
        until = self._clock.monotonic() + grace
        for executor in {id(e): e for e in self._executors.values()}.values():
            executor.close(max(0.0, until - self._clock.monotonic()))

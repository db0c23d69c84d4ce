"""The ends of runs, written: many in one statement, and none of them at another's cost."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from tickrail.core.dead_letters import reason_of
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.execution import OK, Outcome, one_line
from tickrail.core.ids import LaunchId
from tickrail.core.ports import OwedLetter
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import trace_fields
from tickrail.core.ports_worker import Finish, FinishAnswer, WorkerStore
from tickrail.core.states import State
from tickrail.engine.active import Active
from tickrail.engine.isolate import each_apart
from tickrail.engine.run_ends import finish_of, reason_label

log = structlog.get_logger("tickrail.runs")

Ended = tuple[Active, Outcome]
_TENANTS_END = {
    State.SUCCEEDED: "succeeded",
    State.DUE: "retried",
    State.CANCELLED: "cancelled",
}
"""What an end is to its tenant; the others are `given_up`."""


@dataclass(frozen=True, slots=True)
class _Written:
    """An end, and what became of its launch by it; None: it changed nothing."""

    a: Active
    outcome: Outcome
    state: State | None
    result: str


class Recorder:
    """Writes the ends of runs, tells of them and publishes the dead letters they owe."""

    def __init__(
        self,
        store: WorkerStore,
        metrics: Metrics,
        letters: Callable[[Sequence[OwedLetter]], Sequence[tuple[LaunchId, Any, int]]],
    ) -> None:
        """A recorder.

        Args:
            store: takes the ends.
            metrics: where they are counted.
            letters: publishes dead letters; answers those that arrived.
        """
        self._store = store
        self._metrics = metrics
        self._letters = letters

    def record(
        self,
        batch: Sequence[Ended],
        over: Callable[[Active], None],
        keep: Callable[[Sequence[Ended]], None],
    ) -> None:
        """Write these ends.

        An end that cannot be written as it is told is written without what was told. Where not even
        that can be done, nothing is: its claim runs out, and the reaper decides.

        Args:
            batch: at least one.
            over: told of each whose end is written, or will never be.
            keep: told of those that are to be written later, when this raises.

        Raises:
            UnavailableError: the database does not answer.
            SetupError: it is not set up for this.
        """
        written: list[_Written] = []

        def done(part: Sequence[Ended], told: tuple[Sequence[Finish], FinishAnswer]) -> None:
            ends, answer = told
            for (a, outcome), end in zip(part, ends, strict=True):
                state = answer.states.get(a.claimed.id)
                written.append(_Written(a, outcome, state, end.result))

        def refused(ended: Ended, error: Exception) -> None:
            try:
                done([ended], self._write_bare(ended, error))
            except (UnavailableError, SetupError):
                later.append(ended)
                raise
            except Exception:
                log.exception("end_not_recorded", launch=str(ended[0].claimed.id))
                over(ended[0])

        later: list[Ended] = []
        try:
            each_apart(batch, self._write, done, refused, lambda rest: keep([*later, *rest]))
        finally:
            if written:
                self._tell(written)
            for w in written:
                over(w.a)
            if dead := [w.a for w in written if w.state in (State.DEAD, State.ABANDONED)]:
                self._post(dead)

    def _write(self, part: Sequence[Ended]) -> tuple[Sequence[Finish], FinishAnswer]:
        ends = [_finish(a, o) for a, o in part]
        return ends, self._store.finish(ends)

    def _write_bare(self, ended: Ended, error: Exception) -> tuple[Sequence[Finish], FinishAnswer]:
        a, o = ended
        message = one_line(f"how it ended cannot be written: {error}")
        log.error("end_not_recorded_as_told", launch=str(a.claimed.id), error=message)
        bare = Outcome(
            ok=o.ok,
            outcome=OK if o.ok else "internal",
            certain=o.certain,
            retryable=o.retryable,
            message=message,
            snooze=o.snooze,
            retry_after=o.retry_after,
        )
        try:
            verdict = _finish(a, o).verdict
            end = _finish(a, bare)._replace(verdict=verdict)
        except Exception:  # noqa: BLE001 - its own policy may be what cannot be read
            end = _finish(a, bare, readable=False)
        return [end], self._store.finish([end])

    def _tell(self, written: Sequence[_Written]) -> None:
        self._measure(written)
        succeeded = sum(w.state is State.SUCCEEDED for w in written)
        for w in written:
            if w.state is not State.SUCCEEDED:
                self._report(w.a, w.outcome, w.state)
            if w.state in (State.DEAD, State.ABANDONED):
                reason = reason_of(w.state, json.loads(w.result))
                self._metrics.count("dead_letters_total", reason=reason.value)
        if succeeded:
            self._metrics.count("launches_total", succeeded, outcome=State.SUCCEEDED.value)
        log.debug("finished", succeeded=succeeded, others=len(written) - succeeded)

    def _measure(self, written: Sequence[_Written]) -> None:
        """How long the runs took, and whose they were."""
        ends = Counter[tuple[str, str]]()
        seconds = dict[str, float]()
        for w in written:
            tenant = str(w.a.claimed.tenant)
            if w.a.run is not None and w.a.took is not None:
                self._metrics.observe("run_seconds", w.a.took, kind=w.a.run.kind)
                seconds[tenant] = seconds.get(tenant, 0.0) + w.a.took
            if w.state is not None:
                ends[tenant, _TENANTS_END.get(w.state, "given_up")] += 1
        for (tenant, outcome), n in ends.items():
            self._metrics.count("tenant_launches_total", n, tenant=tenant, outcome=outcome)
        for tenant, took in seconds.items():
            self._metrics.count("tenant_run_seconds_total", took, tenant=tenant)

    def _post(self, dead: Sequence[Active]) -> None:
        """Publish dead letters; what does not arrive stays owed, and the owner publishes it."""
        try:
            owed = self._store.owed([(a.claimed.id, a.claimed.scheduled_at) for a in dead])
            settled = self._letters(owed)
            if settled:
                self._store.settle(settled)
        except UnavailableError as e:
            log.warning("dead_letters_still_owed", count=len(dead), error=str(e))

    def _report(self, a: Active, o: Outcome, state: State | None) -> None:
        """Count and tell an end that is not a success."""
        c = a.claimed
        if state is None:
            self._metrics.count("stale_results_total")
            log.warning(
                "stale_result",
                launch=str(c.id),
                job=str(c.job),
                attempt=c.attempt,
                claim=c.claim,
                outcome=o.outcome,
                **trace_fields(a.trace if a.run is None else a.run.trace),
            )
            return
        if state is State.DUE:
            self._metrics.count("retries_total", reason=reason_label(o))
        else:
            self._metrics.count("launches_total", outcome=state.value)
        log.warning(
            "attempt_failed",
            launch=str(c.id),
            job=str(c.job),
            attempt=c.attempt,
            outcome=o.outcome,
            state=state.value,
            error=o.message,
            **trace_fields(a.trace if a.run is None else a.run.trace),
        )


def _finish(a: Active, o: Outcome, *, readable: bool = True) -> Finish:
    return finish_of(
        a.claimed,
        o,
        started=a.run is not None,
        retry=a.job.retry if readable and a.job is not None else None,
        wakes=a.job is None or a.job.wakes,
        spread=random.random(),  # noqa: S311 - spreads a backoff, keeps no secret
    )

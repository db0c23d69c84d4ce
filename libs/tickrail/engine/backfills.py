"""The owner's pass over backfills: the next slots of each -> launch records, one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from tickrail.core.backfill import (
    BackfillSituation,
    BackfillState,
    BackfillStep,
    Upcoming,
    cancelled,
    has_past_slots,
    step,
    upcoming_slots,
)
from tickrail.core.definition import Plan
from tickrail.core.errors import TickrailError
from tickrail.core.ids import launch_id
from tickrail.core.job_filter import JobState
from tickrail.core.plan import PlannedLaunch
from tickrail.core.policies import IfUncertain, Priority
from tickrail.core.ports import Calendars, DueJob, NewLaunch, Owned
from tickrail.core.ports_backfill import (
    Backfilled,
    BackfillStore,
    DueBackfill,
    Filled,
    Walk,
)
from tickrail.core.ports_metrics import Metrics
from tickrail.core.quotas import reached_document
from tickrail.engine.tick import CalendarCache, JobPlanner, PlanCache

log = structlog.get_logger("tickrail.backfills")

RETRY_UNPLANNABLE = timedelta(minutes=1)
_NOTHING = Upcoming((), last=False)


class JobFiller:
    """The port `BackfillPlanner`; one backfill's error stays its own."""

    def __init__(self) -> None:
        """Nothing is cached yet."""
        self._plans = PlanCache()
        self._calendars = CalendarCache()
        self._names = JobPlanner()

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that the job's slots need."""
        return self._names.calendars(job)

    def walk(self, due: DueBackfill, calendars: Calendars, now: datetime, limit: int) -> Walk:
        """The next slots of a backfill, at most `limit`."""
        if due.job_state == JobState.DELETED:
            return Walk(due, None, _NOTHING)
        try:
            plan = self._plans.get(due.job, now)
            plan = self._calendars.resolve(plan, due.job.tenant, calendars)
            if not has_past_slots(plan.schedule):
                return Walk(due, None, _NOTHING)
            upcoming = upcoming_slots(plan, due.backfill, due.next_run_at, limit)
        except Exception as e:  # noqa: BLE001 - one job's bad data must harm no other job
            text = str(e) if isinstance(e, TickrailError) else f"{type(e).__name__}: {e}"
            return Walk(due, None, _NOTHING, error=text[:1000])
        return Walk(due, plan, upcoming)

    def fill(self, walk: Walk, situation: BackfillSituation, now: datetime) -> Filled:
        """Decide on them."""
        due, b = walk.due, walk.due.backfill
        if walk.error is not None:
            log.warning("backfill_not_planned", backfill=str(b.id), error=walk.error)
            later = now + RETRY_UNPLANNABLE
            waits = BackfillStep(
                (), BackfillState.RUNNING, b.total, later, b.cursor_at, left_alone=0, moved=True
            )
            return Filled(due, waits, ())
        if walk.plan is None:
            return Filled(due, cancelled(b, now), ())
        taken = step(walk.plan, b, walk.upcoming, situation, now)
        return Filled(due, taken, [_new(due, walk.plan, x) for x in taken.launches])


def _new(due: DueBackfill, plan: Plan, planned: PlannedLaunch) -> NewLaunch:
    deadline = plan.start_deadline
    return NewLaunch(
        id=launch_id(due.job.id, planned.scheduled_at, due.backfill.origin),
        scheduled_at=planned.scheduled_at,
        due_at=planned.due_at,
        state=planned.state,
        queue=plan.queue,
        # Whatever the job's own is: live launches go first.
        priority=Priority.LOW.rank,
        max_attempts=plan.max_attempts,
        rerun=plan.if_uncertain is IfUncertain.RERUN,
        visibility=plan.visibility_timeout.total_seconds(),
        start_before=None if deadline is None else planned.due_at + deadline,
        concurrency=plan.concurrency,
    )


class Backfills:
    """One pass over what is running."""

    def __init__(self, store: BackfillStore, metrics: Metrics, *, batch: int = 50) -> None:
        """Passes of `batch` backfills at most."""
        self._store = store
        self._metrics = metrics
        self._batch = batch
        self._planner = JobFiller()

    def run_once(self, owned: Owned) -> Backfilled:
        """Carry on what may go on.

        Raises:
            UnavailableError: the database does not answer; nothing is lost.
        """
        done = self._store.backfill(owned, self._batch, self._planner)
        for tenant, level in done.reached:
            log.info("quota_reached", tenant=str(tenant), **reached_document(level))
        if done.inserted or done.left_alone or done.ended:
            self._metrics.count("backfill_launches_total", len(done.inserted))
            log.debug(
                "backfilled",
                launches=len(done.inserted),
                left_alone=done.left_alone,
                ended=done.ended,
            )
        return done

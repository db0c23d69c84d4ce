"""The tick: due jobs of owned partitions -> plan -> launch records, in one fenced transaction."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from tickrail.core.calendars import parse_calendar
from tickrail.core.catch_up import stored_catch_up
from tickrail.core.cron import NO_KEY
from tickrail.core.definition import Plan, parse_plan
from tickrail.core.errors import InvalidInputError, NotFoundError, TickrailError
from tickrail.core.ids import ORIGIN_SCHEDULE, JobId, TenantId, launch_id
from tickrail.core.plan import (
    Decision,
    PlannedLaunch,
    Situation,
    SkipReason,
    plan_completion,
    plan_job,
    plan_resume,
    within_quota,
)
from tickrail.core.policies import IfUncertain, Priority
from tickrail.core.ports import (
    Calendars,
    CalendarText,
    DueJob,
    EndedJob,
    NewLaunch,
    OpenCount,
    Owned,
    OwnerStore,
    Planned,
    Ticked,
)
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import NO_TRACER, Span, Tracer
from tickrail.core.quotas import reached_document
from tickrail.core.schedule import Cron, parse_schedule
from tickrail.core.timetable import Allowance, Times
from tickrail.engine.decisions import SharedDecisions

log = structlog.get_logger("tickrail.tick")

_TICK = timedelta(microseconds=1)
RETRY_UNPLANNABLE = timedelta(minutes=1)
ENOUGH = 1000
"""Launches that fill a transaction: a catch-up may make thousands for each of many jobs."""
COSTLY = 100_000
"""Steps of calendars' rules that fill a transaction: the worst ones cost a fraction of a second."""
_NOTHING_OPEN = OpenCount(0, 0)
_SECOND = timedelta(seconds=1)
_SHARED = 2000


class PlanCache:
    """Plans by job and version, the least recently used forgotten first.

    Jobs made by one program differ in little but their schedule; what is left without it is read
    once for all of them (one-off jobs are planned once each, so a cache by job does not help them).
    Jobs with the same cron expression and all else alike have one plan, so that what is decided for
    one holds for all (engine/decisions.py).
    """

    def __init__(self, size: int = 20_000) -> None:
        self._plans: OrderedDict[tuple[JobId, int], Plan] = OrderedDict()
        self._policies: dict[str, Plan] = {}
        self._shared: dict[str, Plan] = {}
        self._size = size

    def get(self, job: DueJob, now: datetime) -> Plan:
        """The plan of a due job.

        Raises:
            TickrailError: the stored plan cannot be read by this version.
        """
        key = (job.id, job.version)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._read(job, now)
            self._plans[key] = plan
            if len(self._plans) > self._size:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan

    def _read(self, job: DueJob, now: datetime) -> Plan:
        shared = self._shared.get(job.plan)
        if shared is not None:
            return shared
        doc = json.loads(job.plan)
        if not isinstance(doc, dict):
            raise InvalidInputError("The job's stored plan is not a JSON object.")
        schedule = parse_schedule(doc.pop("schedule", None), job=job.id, now=now, stored=True)
        text = repr(doc)
        policies = self._policies.get(text)
        if policies is None:
            policies = parse_plan(doc, job=job.id, now=now)
            if len(self._policies) >= self._size:
                self._policies.clear()
            self._policies[text] = policies
        plan = replace(policies, schedule=schedule)
        if isinstance(schedule, Cron) and schedule.hash_key == NO_KEY:
            if len(self._shared) >= _SHARED:
                self._shared.clear()
            self._shared[job.plan] = plan
        return plan


class CalendarCache:
    """Calendars by tenant, name, version and when they were made, read once."""

    def __init__(self, size: int = 2_000) -> None:
        self._read: OrderedDict[tuple[TenantId, str, int, int], Times] = OrderedDict()
        self._size = size

    def resolve(self, plan: Plan, tenant: TenantId, calendars: Calendars) -> Plan:
        """The plan with the calendars that it names.

        Raises:
            TickrailError: one of them is not there, or cannot be read by this version.
        """
        use = plan.calendars
        if use is None:
            return plan

        def found(names: Sequence[str]) -> tuple[Times, ...]:
            return tuple(self._get(tenant, name, calendars) for name in names)

        allowance = Allowance(found(use.exclude), found(use.include), use.on_excluded)
        return replace(plan, allowance=allowance)

    def _get(self, tenant: TenantId, name: str, calendars: Calendars) -> Times:
        text: CalendarText | None = calendars.get((tenant, name))
        if text is None:
            raise NotFoundError(f"The calendar {name!r} is not there.")
        key = (tenant, name, text.version, text.made)
        calendar = self._read.get(key)
        if calendar is None:
            calendar = parse_calendar(json.loads(text.document), name=name, version=text.version)
            self._read[key] = calendar
            if len(self._read) > self._size:
                self._read.popitem(last=False)
        else:
            self._read.move_to_end(key)
        return calendar


class JobPlanner:
    """The port `Planner`: `core.plan` for each job; one job's error stays its own."""

    def __init__(self, tracer: Tracer = NO_TRACER) -> None:
        self._cache = PlanCache()
        self._calendars = CalendarCache()
        self._steps = 0
        self._tracer = tracer
        self._spans: list[Span] = []
        self._plan_job = SharedDecisions(plan_job)

    def needs_open(self, job: DueJob) -> bool:
        """Whether planning the job needs the number of its open launches."""
        return not _says(job, "overlap", "allow") or _says(job, "measured_from", "completion")

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that planning the job needs."""
        return calendars_of(job)

    def plan(
        self,
        jobs: Sequence[DueJob],
        opened: Mapping[JobId, OpenCount],
        calendars: Calendars,
        now: datetime,
        oldest: datetime,
        rooms: dict[TenantId, int],
    ) -> Sequence[Planned]:
        """Decide for the due jobs in their order, until there is enough for one transaction."""

        def decide(job: DueJob, plan: Plan) -> Decision:
            if job.resume_at is not None:
                # It became due while its tenant was suspended: as if it had been paused so long.
                return _after_pause(job, plan, now, oldest)
            count = opened.get(job.id, _NOTHING_OPEN)
            situation = _situation(job, count, now, oldest)
            decision = self._plan_job(plan, situation, now)
            room = rooms.get(job.tenant)
            if room is None:
                return decision
            decision = within_quota(plan, situation, decision, room)
            rooms[job.tenant] = room - len(decision.launches)
            return decision

        planned: list[Planned] = []
        launches = self._steps = 0
        for job in jobs:
            if launches >= ENOUGH or self._steps >= COSTLY:
                break
            planned.append(self._planned(job, calendars, now, decide))
            launches += len(planned[-1].launches)
        return planned

    def resume(
        self, jobs: Sequence[DueJob], calendars: Calendars, now: datetime, oldest: datetime
    ) -> Sequence[Planned]:
        """Decide for paused jobs whose time to resume has come."""

        def decide(job: DueJob, plan: Plan) -> Decision:
            if job.awaits:
                return Decision(last_slot=job.last_slot, awaits=True)
            return _after_pause(job, plan, now, oldest)

        return [self._planned(job, calendars, now, decide) for job in jobs]

    def complete(
        self, jobs: Sequence[EndedJob], calendars: Calendars, now: datetime
    ) -> Sequence[Planned]:
        """Decide for jobs whose awaited launch has ended."""
        ended = {e.job.id: e.ended_at for e in jobs}

        def decide(job: DueJob, plan: Plan) -> Decision:
            return plan_completion(
                plan, _situation(job, _NOTHING_OPEN, now, None), min(ended[job.id], now)
            )

        return [self._planned(e.job, calendars, now, decide) for e in jobs]

    def _planned(
        self,
        job: DueJob,
        calendars: Calendars,
        now: datetime,
        decide: Callable[[DueJob, Plan], Decision],
    ) -> Planned:
        try:
            plan = self._calendars.resolve(self._cache.get(job, now), job.tenant, calendars)
            with self._counted(plan):
                decision = decide(job, plan)
            return Planned(job, decision, [self._new(job, plan, x) for x in decision.launches])
        except Exception as e:  # noqa: BLE001 - one job's bad data must harm no other job
            text = str(e) if isinstance(e, TickrailError) else f"{type(e).__name__}: {e}"
            log.warning("job_not_planned", job=str(job.id), version=job.version, error=text)
            again = None if job.awaits else now + RETRY_UNPLANNABLE
            return Planned(job, Decision(wake_at=again, awaits=job.awaits), [], error=text[:1000])

    def _new(self, job: DueJob, plan: Plan, planned: PlannedLaunch) -> NewLaunch:
        new = _new(job, plan, planned)
        if self._tracer is NO_TRACER:
            return new
        span = self._tracer.root(
            "schedule",
            launch=str(new.id),
            job=str(job.id),
            tenant=str(job.tenant),
            scheduled_at=new.scheduled_at.isoformat(),
        )
        if span.traceparent is None:
            return new
        self._spans.append(span)
        return new._replace(trace=span.traceparent)

    def written(self, *, done: bool) -> None:
        """What was planned last is committed, or it is not and nobody hears of its spans."""
        if done:
            for span in self._spans:
                span.end()
        self._spans.clear()

    @contextmanager
    def _counted(self, plan: Plan) -> Iterator[None]:
        """Count what working out the rules of the plan's calendars costs."""
        allowance = plan.allowance
        before = 0 if allowance is None else allowance.steps
        try:
            yield
        finally:
            if allowance is not None:
                self._steps += allowance.steps - before


def calendars_of(job: DueJob) -> Sequence[str]:
    """The calendars that a job's plan names."""
    if _says(job, "calendars", None) or '"calendars"' not in job.plan:
        return ()
    use = json.loads(job.plan)["calendars"]
    return [*use["exclude"], *use["include"]] if isinstance(use, dict) else ()


def _says(job: DueJob, name: str, value: str | None) -> bool:
    """Whether the plan's text has this member, as the database writes it or as json does."""
    text = json.dumps(value)
    return f'"{name}": {text}' in job.plan or f'"{name}":{text}' in job.plan


def _situation(job: DueJob, count: OpenCount, now: datetime, oldest: datetime | None) -> Situation:
    catch_up = None if job.catch_up is None else stored_catch_up(json.loads(job.catch_up))
    return Situation(
        job.id,
        job.due_at or now,
        job.launched,
        count.open,
        count.held,
        job.last_slot,
        oldest,
        count.backfilled,
        job.skip_next,
        catch_up,
    )


def _after_pause(job: DueJob, plan: Plan, now: datetime, oldest: datetime) -> Decision:
    """What becomes of a job whose pause, or whose tenant's suspension, ended at `resume_at`."""
    # The end of a pause is not part of it, and whoever lets the job go on may come late.
    edge = now if job.resume_at is None else min(now, job.resume_at - _TICK)
    return plan_resume(plan, _situation(job, _NOTHING_OPEN, now, oldest), edge)


def _new(job: DueJob, plan: Plan, planned: PlannedLaunch) -> NewLaunch:
    deadline = plan.start_deadline
    priority = plan.priority.rank
    if planned.due_at - planned.scheduled_at > plan.jitter + _SECOND:
        # Caught up with: it is due when it is planned, not at its slot. It goes a class lower, so
        # that after an outage the crowd of these does not stand before what is on time.
        priority = min(priority + 1, Priority.LOW.rank)
    return NewLaunch(
        id=launch_id(job.id, planned.scheduled_at, ORIGIN_SCHEDULE),
        scheduled_at=planned.scheduled_at,
        due_at=planned.due_at,
        state=planned.state,
        queue=plan.queue,
        priority=priority,
        max_attempts=plan.max_attempts,
        rerun=plan.if_uncertain is IfUncertain.RERUN,
        visibility=plan.visibility_timeout.total_seconds(),
        start_before=None if deadline is None else planned.due_at + deadline,
        concurrency=plan.concurrency,
    )


class Tick:
    """One pass: plans what is due, in batches until a short one."""

    def __init__(
        self,
        store: OwnerStore,
        metrics: Metrics,
        *,
        batch: int = 1000,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._batch = batch
        self._planner = JobPlanner(tracer)

    def run_once(self, owned: Owned) -> Ticked:
        """Plan one batch of due jobs.

        Raises:
            UnavailableError: the database does not answer; nothing is lost, the jobs stay due.
        """
        done = False
        try:
            ticked = self._store.tick(owned, self._batch, self._planner)
            done = True
        finally:
            self._planner.written(done=done)
        if ticked.jobs:
            self._report(ticked)
        return ticked

    def resume(self, owned: Owned) -> Ticked:
        """Let paused jobs go on whose time to resume has come."""
        return self._store.resume(owned, self._batch, self._planner)

    def complete(self, owned: Owned) -> Ticked:
        """Measure the next run of jobs whose awaited launch has ended."""
        return self._store.complete(owned, self._batch, self._planner)

    def _report(self, ticked: Ticked) -> None:
        for p in ticked.inserted:
            late = (ticked.now - max(p.scheduled_at, p.due_at)).total_seconds()
            self._metrics.observe("schedule_lag_seconds", max(0.0, late))
        for reason, count in ticked.skipped.items():
            self._metrics.count("slots_skipped_total", count, reason=reason)
        if ticked.errors:
            self._metrics.count("jobs_unplannable_total", ticked.errors)
        over = ticked.skipped.get(SkipReason.QUOTA, 0)
        if over:
            self._metrics.count("tenant_throttled_total", over, reason=SkipReason.QUOTA.value)
        for tenant, level in ticked.reached:
            log.info("quota_reached", tenant=str(tenant), **reached_document(level))
        log.debug(
            "ticked",
            jobs=ticked.jobs,
            launches=len(ticked.inserted),
            existed=ticked.existed,
            skipped=dict(ticked.skipped),
            errors=ticked.errors,
        )

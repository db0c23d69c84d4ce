"""The ledger of a job: one row for each due slot, launched, skipped or to come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import islice

from tickrail.core.definition import Plan, parse_plan
from tickrail.core.ids import ORIGIN_SCHEDULE, JobId
from tickrail.core.plan import spread
from tickrail.core.ports_api import (
    JobRecord,
    JobState,
    LaunchFilter,
    LaunchRecord,
    PageRequest,
    SkippedRun,
    Transaction,
)
from tickrail.core.schedule import Every, MeasuredFrom, Schedule, missed, next_after, slot_of
from tickrail.engine.job_rules import PAUSED

UPCOMING = 10
"""How many slots to come are shown where the range does not end."""
_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


class Kind(IntEnum):
    """What became of a slot; the order of rows at one instant."""

    LAUNCHED = 0
    SKIPPED = 1
    UPCOMING = 2


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot. `count` above 1: so many slots up to `last_at`, which cannot be told apart."""

    at: datetime
    kind: Kind
    launch: LaunchRecord | None = None
    reason: str | None = None
    last_at: datetime | None = None
    count: int = 1

    @property
    def key(self) -> tuple[datetime, int]:
        """The position of the row."""
        return self.at, self.kind


@dataclass(frozen=True, slots=True)
class LedgerRequest:
    """Which rows: `since <= at < until`, `limit` of them after a position."""

    since: datetime | None
    until: datetime | None
    ascending: bool
    limit: int
    after: tuple[datetime, int] | None = None


def slots(
    tx: Transaction, job: JobRecord, request: LedgerRequest
) -> tuple[Sequence[SlotRow], bool]:
    """A page of the ledger, and whether there is more."""
    low, high = request.since, request.until
    if request.after is not None:
        edge = request.after[0]
        if request.ascending:
            low = edge if low is None else max(low, edge)
        else:
            high = edge + _TICK if high is None else min(high, edge + _TICK)
    plan = parse_plan(job.plan, job=job.id, now=tx.now)
    take = request.limit + len(Kind)
    rows = list(_launched(tx, job, low, high, request.ascending, take))
    runs = tx.jobs.skips(job.id, low, high, PageRequest("at", request.ascending, take))
    for run in [*runs, *_passing(plan, job, tx.now)]:
        rows += _expand(plan.schedule, run, low, high, request.ascending, take)
    rows += _upcoming(plan, job, tx.now, request, low, high)
    rows.sort(key=lambda r: r.key, reverse=not request.ascending)
    if request.after is not None:
        after = request.after
        rows = [r for r in rows if (r.key > after if request.ascending else r.key < after)]
    return rows[: request.limit], len(rows) > request.limit


def upcoming_slots(plan: Plan, after: datetime) -> Iterator[datetime]:
    """The slots of a plan after an instant, between starts_at and ends_at."""
    if plan.schedule is None:
        return
    at = after if plan.starts_at is None else max(after, plan.starts_at - _TICK)
    while (slot := next_after(plan.schedule, at)) is not None:
        if plan.ends_at is not None and slot > plan.ends_at:
            return
        yield slot
        at = slot


def first_slots(plan: Plan, after: datetime, n: int) -> list[datetime]:
    """The next n slots of a plan; fewer when there are no more."""
    return list(islice(upcoming_slots(plan, after), n))


def _launched(
    tx: Transaction,
    job: JobRecord,
    low: datetime | None,
    high: datetime | None,
    ascending: bool,
    take: int,
) -> Iterator[SlotRow]:
    where = LaunchFilter(job=job.id, origin=ORIGIN_SCHEDULE, since=low, until=high)
    page = tx.launches.page(where, PageRequest("scheduled_at", ascending, take))
    for launch in page.items:
        yield SlotRow(launch.scheduled_at, Kind.LAUNCHED, launch)


def _waits_after(plan: Plan, job: JobId, due_at: datetime) -> datetime:
    """An instant just before the slot whose due instant this is."""
    if not plan.jitter or plan.schedule is None:
        return due_at - _TICK
    at: datetime | None = due_at - plan.jitter - _SECOND
    while at is not None and (slot := next_after(plan.schedule, at)) is not None:
        if slot + spread(plan, job, slot) >= due_at:
            return slot - _TICK
        at = slot
    return due_at - _TICK


def _passing(plan: Plan, job: JobRecord, now: datetime) -> list[SkippedRun]:
    """Slots of a paused job that have passed; they are recorded when it goes on."""
    if job.state is not JobState.PAUSED or job.next_run_at is None or plan.schedule is None:
        return []
    start = _waits_after(plan, job.id, job.next_run_at)
    end = now if plan.ends_at is None else min(now, plan.ends_at)
    found = missed(plan.schedule, start, end, 1)
    if found is None:
        return []
    return [SkippedRun(PAUSED, slot_of(found.first), slot_of(found.last), found.count)]


def _expand(
    schedule: Schedule | None,
    run: SkippedRun,
    low: datetime | None,
    high: datetime | None,
    ascending: bool,
    take: int,
) -> list[SlotRow]:
    """The rows of a run inside a range: one by one where the present schedule still tells them."""
    if run.count == 1 or schedule is None:
        rows = [SlotRow(run.first, Kind.SKIPPED, None, run.reason, run.last, run.count)]
    else:
        end = run.last + _SECOND - _TICK
        whole = missed(schedule, run.first - _TICK, end, 1)
        if whole is None or whole.count != run.count or not whole.exact:
            rows = [SlotRow(run.first, Kind.SKIPPED, None, run.reason, run.last, run.count)]
        else:
            start = run.first if low is None else max(run.first, low)
            stop = end if high is None else min(end, high - _TICK)
            part = missed(schedule, start - _TICK, stop, take)
            found = () if part is None else part.oldest if ascending else part.newest
            rows = [SlotRow(slot_of(at), Kind.SKIPPED, None, run.reason) for at in found]
    return [r for r in rows if (low is None or r.at >= low) and (high is None or r.at < high)]


def _upcoming(
    plan: Plan,
    job: JobRecord,
    now: datetime,
    request: LedgerRequest,
    low: datetime | None,
    high: datetime | None,
) -> list[SlotRow]:
    """Slots to come: of an active job, or after the end of a pause that has one.

    Newest first, the whole of what is to come must be known before its first row: where the range
    does not end, the next ten.
    """
    start = _next_slot_after(plan, job, now)
    if start is None or plan.schedule is None:
        return []
    if low is not None:
        start = max(start, low - _TICK)
    take = request.limit + len(Kind)
    if not request.ascending and request.until is None:
        take = UPCOMING
    if plan.max_launches is not None:
        take = min(take, max(0, plan.max_launches - job.launched))
    if isinstance(plan.schedule, Every) and plan.schedule.measured_from is MeasuredFrom.COMPLETION:
        take = min(take, 1)
    if not request.ascending and request.until is not None and high is not None:
        return _newest(plan, start, high, take)
    found: list[SlotRow] = []
    for slot in upcoming_slots(plan, start):
        if len(found) >= take or (high is not None and slot >= high):
            break
        found.append(SlotRow(slot_of(slot), Kind.UPCOMING))
    return found


def _newest(plan: Plan, start: datetime, high: datetime, take: int) -> list[SlotRow]:
    """The last slots before `high`, found without walking to them."""
    if plan.starts_at is not None:
        start = max(start, plan.starts_at - _TICK)
    end = high - _TICK if plan.ends_at is None else min(high - _TICK, plan.ends_at)
    part = missed(plan.schedule, start, end, take) if plan.schedule and take else None
    newest = () if part is None else part.newest
    return [SlotRow(slot_of(slot), Kind.UPCOMING) for slot in newest]


def _next_slot_after(plan: Plan, job: JobRecord, now: datetime) -> datetime | None:
    if job.state is JobState.ACTIVE and job.next_run_at is not None:
        return _waits_after(plan, job.id, job.next_run_at)
    if job.state is JobState.PAUSED and job.paused and job.paused.get("until"):
        return max(now, datetime.fromisoformat(job.paused["until"]) - _TICK)
    return None

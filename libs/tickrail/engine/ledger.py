"""The ledger of a job: one row for each due slot, launched, skipped or to come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import islice, takewhile

from tickrail.core.definition import Plan
from tickrail.core.ids import ORIGIN_BACKFILL, ORIGIN_SCHEDULE
from tickrail.core.job_filter import JobState
from tickrail.core.plan import from_completion, slot_waited_for, waiting
from tickrail.core.ports_api import (
    JobRecord,
    LaunchFilter,
    SkippedRun,
    Transaction,
)
from tickrail.core.records import LaunchRecord, PageRequest
from tickrail.core.schedule import Missed, Slot, slot_of
from tickrail.core.timetable import Timetable
from tickrail.engine.job_rules import EXCLUDED, PAUSED, SKIPPED_BY_HAND, UNDECIDED, plan_of

UPCOMING = 10
"""How many slots to come are shown where the range does not end."""
_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_A_WHILE = timedelta(days=366)


class Kind(IntEnum):
    """What became of a slot; the order of rows at one instant."""

    LAUNCHED = 0
    SKIPPED = 1
    UPCOMING = 2


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot. `count` above 1: so many slots up to `last_at`, which cannot be told apart.

    `reason`: why it was left out; of an upcoming one whose instant has passed, `undecided`.
    """

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
    plan = plan_of(tx, job)
    if job.next_run_at is not None:
        plan = waiting(plan, job.next_run_at)
    take = request.limit + len(Kind)
    launched = _launched(tx, job, low, high, request.ascending, take)
    rows = list(launched.values())
    runs = tx.jobs.skips(job.id, low, high, PageRequest("at", request.ascending, take))
    for run in [*runs, *_passing(plan, job, tx.now)]:
        found = _expand(plan.timetable, run, low, high, request.ascending, take)
        rows += [r for r in found if r.count > 1 or r.at not in launched]
    rows += _upcoming(plan, job, tx.now, request, low, high)
    rows.sort(key=lambda r: r.key, reverse=not request.ascending)
    if request.after is not None:
        after = request.after
        rows = [r for r in rows if (r.key > after if request.ascending else r.key < after)]
    return rows[: request.limit], len(rows) > request.limit


def upcoming_slots(plan: Plan, after: datetime) -> Iterator[datetime]:
    """The slots to launch of a plan after an instant, between starts_at and ends_at."""
    table = plan.timetable
    if table is None:
        return
    at = after if plan.starts_at is None else max(after, plan.starts_at - _TICK)
    while (slot := table.next_after(at)) is not None:
        if plan.ends_at is not None and slot > plan.ends_at:
            return
        yield slot
        if from_completion(plan):
            return  # the one after it is not known yet
        at = slot


def first_slots(plan: Plan, after: datetime, n: int) -> list[datetime]:
    """The next n slots to launch of a plan; fewer when there are no more."""
    return list(islice(upcoming_slots(plan, after), n))


def shown_slots(plan: Plan, after: datetime, n: int) -> list[Slot]:
    """The next n slots of a plan as they are shown, those that a calendar leaves out among them."""
    table = plan.timetable
    if table is None:
        return []
    start = after if plan.starts_at is None else max(after, plan.starts_at - _TICK)
    found = table.upcoming(start, 1 if from_completion(plan) else n)
    return [s for s in found if plan.ends_at is None or s.at <= plan.ends_at]


def job_slots(plan: Plan, job: JobRecord, after: datetime, n: int) -> list[Slot]:
    """The next n slots of a job; those to be left out by hand have the note `skipped_by_hand`."""
    if job.awaits:
        return []
    if job.next_run_at is not None:
        plan = waiting(plan, job.next_run_at)
    found = shown_slots(plan, after, n)
    hand = _by_hand(plan, job, after)
    return [replace(s, notes=(*s.notes, SKIPPED_BY_HAND)) if s.at in hand else s for s in found]


def _by_hand(plan: Plan, job: JobRecord, now: datetime) -> frozenset[datetime]:
    """The slots that are to be left out by hand."""
    start = _next_slot_after(plan, job, now) if job.skip_next else None
    return frozenset() if start is None else frozenset(first_slots(plan, start, job.skip_next))


def _launched(
    tx: Transaction,
    job: JobRecord,
    low: datetime | None,
    high: datetime | None,
    ascending: bool,
    take: int,
) -> dict[datetime, SlotRow]:
    """Launches by slot: the scheduled one, or the latest of a backfill."""
    found: dict[datetime, SlotRow] = {}
    for origin in (ORIGIN_SCHEDULE, ORIGIN_BACKFILL):
        where = LaunchFilter(job=job.id, origin=origin, since=low, until=high)
        page = tx.launches.page(where, PageRequest("scheduled_at", ascending, take))
        for launch in page.items:
            before = found.get(launch.scheduled_at)
            if before is None or _later(launch, before.launch):
                found[launch.scheduled_at] = SlotRow(launch.scheduled_at, Kind.LAUNCHED, launch)
    return found


def _later(launch: LaunchRecord, before: LaunchRecord | None) -> bool:
    return (
        before is not None
        and before.origin != ORIGIN_SCHEDULE
        and launch.created_at > before.created_at
    )


def _waits_after(plan: Plan, due_at: datetime) -> datetime:
    """An instant just before the slot whose due instant this is."""
    table = plan.timetable
    return (due_at if table is None else slot_waited_for(table, plan, due_at)) - _TICK


def _passing(plan: Plan, job: JobRecord, now: datetime) -> list[SkippedRun]:
    """What has passed and will be recorded later.

    The slots of a paused job, when it goes on; what a calendar left out, with the next slot.
    """
    table = plan.timetable
    if table is None or job.state not in (JobState.PAUSED, JobState.ACTIVE):
        return []
    end = now if plan.ends_at is None else min(now, plan.ends_at)
    runs: list[tuple[str, Missed | None]] = []
    if job.next_run_at is not None:
        start = _waits_after(plan, job.next_run_at)
        if job.state is JobState.PAUSED:
            until = _pause_end(job)
            end = end if until is None else min(end, until - _TICK)
            runs.append((PAUSED, table.missed(start, end, 1)))
        else:
            end = min(end, start)
    if job.last_slot_at is not None:
        runs.append((EXCLUDED, table.excluded(job.last_slot_at, end, 1)))
    return [
        SkippedRun(reason, slot_of(m.first), slot_of(m.last), m.count)
        for reason, m in runs
        if m is not None
    ]


def _expand(
    table: Timetable | None,
    run: SkippedRun,
    low: datetime | None,
    high: datetime | None,
    ascending: bool,
    take: int,
) -> list[SlotRow]:
    """The rows of a run inside a range: one by one where the present schedule still tells them."""
    rows = [SlotRow(run.first, Kind.SKIPPED, None, run.reason, run.last, run.count)]
    if run.count > 1 and table is not None:
        among = table.excluded if run.reason == EXCLUDED else table.missed
        end = run.last + _SECOND - _TICK
        whole = among(run.first - _TICK, end, 1)
        if whole is not None and whole.count == run.count and whole.exact:
            start = run.first if low is None else max(run.first, low)
            stop = end if high is None else min(end, high - _TICK)
            part = among(start - _TICK, stop, take)
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
    does not end, the next ten. Slots that will be left out are shown as skipped.
    """
    begin = _next_slot_after(plan, job, now)
    if begin is None or plan.timetable is None:
        return []
    start = begin if low is None else max(begin, low - _TICK)
    take = request.limit + len(Kind)
    if not request.ascending and request.until is None:
        take = UPCOMING
    most = take + job.skip_next
    if plan.max_launches is not None:
        most = min(most, max(0, plan.max_launches - job.launched) + job.skip_next)
    newest = not request.ascending and request.until is not None and high is not None
    if newest and high is not None:
        found = _newest(plan, start, high, min(most, take))
    else:
        walked = upcoming_slots(plan, start)
        inside = takewhile(lambda slot: high is None or slot < high, walked)
        found = list(islice(inside, min(most, take)))
    hand = _by_hand(plan, job, now)
    rows = [
        SlotRow(slot_of(s), Kind.SKIPPED, None, SKIPPED_BY_HAND)
        if s in hand
        else SlotRow(slot_of(s), Kind.UPCOMING, None, UNDECIDED if s <= now else None)
        for s in found
    ]
    # What a calendar leaves out: as far as the slots to launch are shown, or a while.
    end = high - _TICK if high is not None else None
    if end is None or (len(found) >= take and not newest):
        last = found[-1] if found else start + _A_WHILE
        end = last if end is None else min(end, last)
    if plan.ends_at is not None:
        end = min(end, plan.ends_at)
    since = begin if job.state is JobState.PAUSED else now
    since = max(since, low - _TICK if low is not None else since, plan.starts_at or since)
    left_out = plan.timetable.excluded(since, end, take)
    if left_out is not None:
        chosen = left_out.newest if newest else left_out.oldest
        rows += [SlotRow(slot_of(s), Kind.SKIPPED, None, EXCLUDED) for s in chosen]
    return rows


def _newest(plan: Plan, start: datetime, high: datetime, take: int) -> list[datetime]:
    """The last slots before `high`, found without walking to them."""
    if plan.starts_at is not None:
        start = max(start, plan.starts_at - _TICK)
    end = high - _TICK if plan.ends_at is None else min(high - _TICK, plan.ends_at)
    part = plan.timetable.missed(start, end, take) if plan.timetable and take else None
    return [] if part is None else list(part.newest)


def _next_slot_after(plan: Plan, job: JobRecord, now: datetime) -> datetime | None:
    if job.state is JobState.ACTIVE and job.next_run_at is not None:
        return _waits_after(plan, job.next_run_at)
    until = _pause_end(job)
    return None if until is None else max(now, until - _TICK)


def _pause_end(job: JobRecord) -> datetime | None:
    """When a paused job goes on by itself."""
    until = job.paused.get("until") if job.paused and job.state is JobState.PAUSED else None
    return None if until is None else datetime.fromisoformat(until)

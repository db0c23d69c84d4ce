"""Backfills: which slots of a past range are launched next, and when to look again.

Pure. A backfill walks the slots of its job's present definition from one end of the range to the
other; its cursor is the last slot that was dealt with. Each slot is launched, or left alone since
it has a launch already (or fell out of the history meanwhile). starts_at and ends_at bound it, as
they bound every slot; max_launches does not count its launches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tickrail.core.definition import Plan
from tickrail.core.ids import ORIGIN_BACKFILL
from tickrail.core.plan import PlannedLaunch
from tickrail.core.policies import CatchUpOrder, Overlap
from tickrail.core.recurrence import Missed, slot_of
from tickrail.core.schedule_values import AnyOf, Every, MeasuredFrom, Schedule
from tickrail.core.timetable import Timetable

MAX_SLOTS = 100_000
"""A range with more slots needs a `max_count`."""
SLOTS_AT_ONCE = 200
"""Slots that a pass over all backfills of an owner looks at: live work waits for no more."""
_TICK = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_BURST = timedelta(seconds=1)
"""Launches that a rate allows are made up for over this time, not over a longer one."""


class BackfillState(StrEnum):
    """The state of a backfill; finished: every slot is dealt with and no launch of it is open."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Existing(StrEnum):
    """What becomes of slots that have a launch already."""

    LEAVE = "leave"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill and how far it is.

    Attributes:
        id: its id; the origin of its launches is made of it.
        from_at: the first instant of the range.
        until_at: the end of the range, not included.
        order: which end comes first.
        existing: what becomes of slots that have a launch already.
        max_count: launches at most.
        max_open: open launches of it at most, where launches of the job may overlap.
        per_minute: launches a minute at most.
        total: slots of the range.
        next_at: when it wants to be looked at.
        cursor_at: the last slot that was dealt with.
        launched: launches made.
        left_alone: slots passed over.
    """

    id: UUID
    from_at: datetime
    until_at: datetime
    order: CatchUpOrder
    existing: Existing
    max_count: int | None
    max_open: int
    per_minute: int | None
    total: int
    next_at: datetime
    cursor_at: datetime | None = None
    launched: int = 0
    left_alone: int = 0

    @property
    def origin(self) -> str:
        """The origin of its launches."""
        return f"{ORIGIN_BACKFILL}{self.id}"

    @property
    def remaining(self) -> int:
        """Slots still to deal with, as far as is known."""
        left = max(0, self.total - self.launched - self.left_alone)
        return left if self.max_count is None else min(left, self.max_count - self.launched)


class Upcoming(NamedTuple):
    """The next slots of a backfill, in its order.

    `last`: none comes after them. `waits`: what comes after them is still the schedule's to decide.
    """

    slots: Sequence[datetime]
    last: bool
    waits: bool = False


@dataclass(frozen=True, slots=True)
class BackfillSituation:
    """What a step depends on besides the backfill.

    Attributes:
        open_launches: open launches of the job, held ones among them.
        own_open: those of them that are this backfill's.
        existing: scheduled instants of launches of slots, among the upcoming ones.
        oldest: the oldest instant that the history still has room for.
        room: how many launches the quotas of the tenant still leave room for; None: any number.
    """

    open_launches: int
    own_open: int
    existing: Collection[datetime]
    oldest: datetime
    room: int | None = None


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """What to write: launches, how the backfill stands then, and whether there is more to do now.

    `moved` False: nothing changed.
    """

    launches: Sequence[PlannedLaunch]
    state: BackfillState
    total: int
    next_at: datetime
    cursor_at: datetime | None
    left_alone: int
    moved: bool
    more: bool = False


def has_past_slots(schedule: Schedule | None) -> bool:
    """Whether slots of the past can be told: not by hand only, not measured from a run's end."""
    if isinstance(schedule, AnyOf):
        return all(has_past_slots(part) for part in schedule.parts)
    if isinstance(schedule, Every):
        return schedule.measured_from is MeasuredFrom.SCHEDULE
    return schedule is not None


def range_slots(plan: Plan, from_at: datetime, until_at: datetime, limit: int) -> Missed | None:
    """The slots of a range: how many, and the first and last few; None when there are none."""
    table = plan.timetable
    if table is None:
        return None
    low, high = _bounds(plan, from_at, until_at)
    return table.missed(low, high, limit) if low < high else None


def upcoming_slots(plan: Plan, b: Backfill, next_run_at: datetime | None, limit: int) -> Upcoming:
    """The next slots of a backfill, at most `limit`.

    Args:
        plan: the job's present plan.
        b: the backfill.
        next_run_at: what the job waits for, where it is active: slots from there on are the
            schedule's to decide, and are waited for.
        limit: how many at most.
    """
    low, high = _bounds(plan, b.from_at, b.until_at)
    edge = None if next_run_at is None else _undecided(plan, next_run_at) - _TICK
    waits = edge is not None and edge < high
    if edge is not None and waits:
        if b.order is CatchUpOrder.NEWEST:
            return Upcoming((), last=False, waits=True)
        high = edge
    if b.cursor_at is not None:
        if b.order is CatchUpOrder.NEWEST:
            high = min(high, b.cursor_at - _TICK)
        else:
            low = max(low, b.cursor_at)
    table = plan.timetable
    found: list[datetime] = []
    if table is not None and low < high:
        if b.order is CatchUpOrder.NEWEST:
            found = _newest(table, low, high, limit)
        else:
            slot = table.next_after(low)
            while slot is not None and slot <= high and len(found) < limit:
                found.append(slot)
                slot = table.next_after(slot)
    return Upcoming(found, last=len(found) < limit and not waits, waits=waits)


def step(
    plan: Plan, b: Backfill, upcoming: Upcoming, s: BackfillSituation, now: datetime
) -> BackfillStep:
    """Decide on the next slots.

    Where launches of the job may overlap, `max_open` bounds the open ones of the backfill. Under
    every other policy its next slot waits until no launch of the job is open at all, so live slots
    are never kept from running by more than one launch of it. Where a quota leaves no room, it goes
    on at the next full minute, at which every window of a quota ends.
    """
    room = _room(plan, b, s)
    over = s.room is not None and s.room < room
    room = s.room if s.room is not None and over else room
    pause = None if b.per_minute is None else _MINUTE / b.per_minute
    due = now if pause is None else max(b.next_at, now - _BURST)
    most = None if b.max_count is None else b.max_count - b.launched
    launches: list[PlannedLaunch] = []
    cursor, left, stopped, full = b.cursor_at, 0, False, False
    for slot in upcoming.slots:
        if most is not None and len(launches) >= most:
            break
        if slot < s.oldest or (b.existing is Existing.LEAVE and slot_of(slot) in s.existing):
            left += 1
        elif room <= len(launches) or due > now:
            stopped, full = True, over and room <= len(launches)
            break
        else:
            launches.append(PlannedLaunch(slot_of(slot), due))
            due = due if pause is None else due + pause
        cursor = slot
    spent = most is not None and len(launches) >= most
    done = spent or (upcoming.last and not stopped)
    ended = done and not launches and not s.own_open
    total = b.total
    if ended and not spent:
        # An edit on the way may have changed which slots there are.
        total = b.launched + b.left_alone + left
    next_at = due if launches else now
    if full:
        next_at = max(next_at, now.replace(second=0, microsecond=0) + _MINUTE)
    return BackfillStep(
        launches=launches,
        state=BackfillState.FINISHED if ended else BackfillState.RUNNING,
        total=total,
        next_at=next_at,
        cursor_at=cursor,
        left_alone=left,
        moved=bool(launches) or left > 0 or ended or full,
        more=not done and not stopped and not upcoming.waits,
    )


def cancelled(b: Backfill, now: datetime) -> BackfillStep:
    """The step of a backfill whose job has no slots any more, or is deleted."""
    return BackfillStep(
        (), BackfillState.CANCELLED, b.total, now, b.cursor_at, left_alone=0, moved=True
    )


def _newest(table: Timetable, low: datetime, high: datetime, limit: int) -> list[datetime]:
    """The last slots in `low < slot <= high`, the newest first.

    A schedule of many parts, or under calendars, is counted slot by slot: so the range is looked at
    from its end, in windows that grow.
    """
    span = _MINUTE
    while True:
        since = max(low, high - span)
        run = table.missed(since, high, limit)
        if since == low or (run is not None and run.count >= limit):
            return [] if run is None else [*reversed(run.newest)]
        span *= 8


def _room(plan: Plan, b: Backfill, s: BackfillSituation) -> int:
    if plan.overlap is Overlap.ALLOW:
        return b.max_open - s.own_open
    return 0 if s.open_launches else 1


def _bounds(plan: Plan, from_at: datetime, until_at: datetime) -> tuple[datetime, datetime]:
    """The range as `low < slot <= high`."""
    low, high = from_at - _TICK, until_at - _TICK
    if plan.starts_at is not None:
        low = max(low, plan.starts_at - _TICK)
    if plan.ends_at is not None:
        high = min(high, plan.ends_at)
    return low, high


def _undecided(plan: Plan, next_run_at: datetime) -> datetime:
    """The slot that the job waits for: its due instant is later by the jitter, if there is one.

    The jitter never reaches the following slot, so it is the last one up to the due instant.
    """
    table = plan.timetable
    if not plan.jitter or table is None:
        return next_run_at
    run = table.missed(next_run_at - plan.jitter - _BURST, next_run_at, 1)
    return next_run_at if run is None else run.last

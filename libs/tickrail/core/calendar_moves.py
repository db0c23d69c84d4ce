"""What a change of a calendar does to a job that uses it: pure, a value from values.

Slots that have passed are not decided on anew: what the calendar as it was left out until now is
recorded, and the job goes on from there. What is still undecided (to come, or due and not launched
yet) is decided by the calendar as it becomes. So no slot is lost, and none comes twice: nothing at
or before the job's last slot is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import first_due, from_completion, slot_waited_for, spread
from tickrail.core.recurrence import next_after, slot_of
from tickrail.core.schedule import Every
from tickrail.core.timetable import OnExcluded, Timetable
from tickrail.core.zones import EPOCH

SHOWN_SLOTS: Final = 20
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Where a job is in its schedule: what it waits for, and up to where slots are decided on."""

    job: JobId
    next_run_at: datetime | None
    last_slot: datetime | None
    launched: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Slots that the calendar as it was left out: first, last, how many."""

    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the job goes on. `next_run_at` None: no run is to come under the changed calendar."""

    next_run_at: datetime | None
    last_slot: datetime | None
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """How the next slots change: those that come, and those that fall away.

    `first`: the first slot after the change.
    """

    added: tuple[datetime, ...] = ()
    removed: tuple[datetime, ...] = ()
    first: datetime | None = None


def move_run(
    before: Plan, after: Plan, w: Waiting, now: datetime, changes: Changes | None = None
) -> Moved:
    """The next run of a job whose calendar changed.

    Args:
        before: the job's plan with the calendar as it was.
        after: the same with the calendar as it becomes.
        w: where the job is; one that waits for the end of a launch is not to be asked about.
        now: the present instant.
        changes: what `compare_slots` found of these plans; jobs with the same slots share it, and
            finding out that no slot will ever come takes long.
    """
    old = before.timetable
    unchanged = Moved(w.next_run_at, w.last_slot)
    if old is None or (after.max_launches is not None and w.launched >= after.max_launches):
        return unchanged
    if from_completion(after) and isinstance(after.schedule, Every):
        if w.next_run_at is None:
            return unchanged
        return Moved(first_due(after, w.job, w.next_run_at - after.schedule.period), w.last_slot)
    edge = now
    if w.next_run_at is not None:
        waited = slot_waited_for(old, before, w.next_run_at)
        edge = min(now, _origin(old, waited) - _TICK)
    left_out = _left_out(old, before, w.last_slot, edge)
    last = w.last_slot if left_out is None else left_out.last
    begin = edge if last is None else max(edge, last)
    begin = undecided(after, begin)
    if changes is None or begin != now:
        return Moved(first_due(after, w.job, begin), last, left_out)
    slot = changes.first
    due = None if slot is None else slot + spread(after, w.job, slot)
    return Moved(due, last, left_out)


def compare_slots(before: Plan, after: Plan, now: datetime, n: int = SHOWN_SLOTS) -> Changes:
    """How the next n slots of two plans differ, as far as both were looked at."""
    old, new = _next_slots(before, now, n), _next_slots(after, now, n)
    # Behind the last slot of a full list nothing is known of it.
    edge = min((s[-1] for s in (old, new) if len(s) == n), default=_LATEST)
    return Changes(
        added=tuple(s for s in new if s <= edge and s not in old),
        removed=tuple(s for s in old if s <= edge and s not in new),
        first=new[0] if new else None,
    )


def _next_slots(plan: Plan, after: datetime, n: int) -> Sequence[datetime]:
    table = plan.timetable
    if table is None:
        return ()
    found: list[datetime] = []
    if plan.starts_at is not None:
        after = max(after, plan.starts_at - _TICK)
    slot = table.next_after(after)
    while slot is not None and len(found) < n and (plan.ends_at is None or slot <= plan.ends_at):
        found.append(slot)
        slot = table.next_after(slot)
    return found


def _origin(table: Timetable, slot: datetime) -> datetime:
    """The first slot of the schedule that this one stands for: itself, unless it was moved.

    One that the schedule has itself stays whatever else was moved to it: it is still to come.
    """
    allowance = table.allowance
    if allowance is None or allowance.on_excluded is not OnExcluded.NEXT_ALLOWED:
        return slot
    before = (slot - EPOCH) // _SECOND - 1
    if allowance.at(before).by is None or next_after(table.schedule, slot - _TICK) == slot:
        return slot
    since = EPOCH + timedelta(seconds=max(allowance.forbidden_from(before), 0))
    first = next_after(table.schedule, since - _TICK)
    return slot if first is None else min(first, slot)


def undecided(after: Plan, begin: datetime) -> datetime:
    """From where slots count: one that was decided on is not to be moved behind that instant."""
    allowance = after.allowance
    if after.schedule is None or allowance is None:
        return begin
    if allowance.on_excluded is not OnExcluded.NEXT_ALLOWED:
        return begin
    slot = next_after(after.schedule, begin)
    return begin if slot is None else max(begin, slot - _TICK)


def _left_out(
    table: Timetable, plan: Plan, last_slot: datetime | None, edge: datetime
) -> LeftOut | None:
    """What the tick would record of slots that a calendar left out, up to an instant."""
    if last_slot is None:
        return None
    until = edge if plan.ends_at is None else min(edge, plan.ends_at)
    begin = last_slot if plan.starts_at is None else max(last_slot, plan.starts_at - _TICK)
    run = table.excluded(begin, until, 1)
    if run is None:
        return None
    return LeftOut(slot_of(run.first), slot_of(run.last), run.count)

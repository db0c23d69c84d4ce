"""What newer zone data does to the slot that a job waits for.

When the rules of a zone change, a local time falls on another instant. The job then waits for the
same local time under the new rules; a slot that was dealt with is never dealt with again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import from_completion, spread
from tickrail.core.schedule import AnyOf, At, CalendarInterval, Cron, Schedule
from tickrail.core.timetable import Timetable

_TICK: Final = timedelta(microseconds=1)
_REACH: Final = timedelta(days=2)
"""More than the offsets of one zone under two sets of rules differ."""
_STILL: Final = frozenset({"UTC", "Etc/UTC"})
"""Zones that zone data cannot move."""
_QUARTER: Final = timedelta(minutes=15)
_SIZES: Final = (*range(1, 13), 92, 96, 100)
"""How far offsets have moved, in quarters of an hour: up to three hours, or about a day."""
SHIFTS: Final[tuple[timedelta, ...]] = (
    timedelta(0),
    *(sign * size * _QUARTER for size in _SIZES for sign in (1, -1)),
)
"""How much an offset may have grown, the likeliest first."""


def zones_of(schedule: Schedule | None) -> tuple[str, ...]:
    """The zones by whose rules a schedule is due, each once."""
    if isinstance(schedule, AnyOf):
        return tuple(dict.fromkeys(name for part in schedule.parts for name in zones_of(part)))
    if isinstance(schedule, Cron | CalendarInterval):
        return (schedule.zone,)
    if isinstance(schedule, At) and schedule.local is not None:
        return (schedule.zone,)
    return ()


def moved_next(
    timetable: Timetable,
    last_slot: datetime | None,
    old_next: datetime,
    since: datetime | None = None,
) -> datetime | None:
    """The slot to wait for in the place of `old_next`, which older zone data gave.

    It is the same local time where that can be told: an offset that grew by some quarters of an
    hour carries `old_next`, and the slot before it, each onto a slot. Else it is the slot nearest
    to `old_next`, the earlier of two equally near.

    Args:
        timetable: the job's, under the new rules.
        last_slot: the last slot that was dealt with; what it returns is later.
        old_next: the slot waited for until now.
        since: when the schedule was written; no slot before it is waited for, unless no other is
            left (a one-off).

    Returns:
        The new slot, perhaps in the past (the misfire policy decides on it); None: no slot is left.
    """
    if since is not None and (last_slot is None or last_slot < since):
        return _nearest(timetable, since, old_next) or _nearest(timetable, last_slot, old_next)
    if last_slot is not None:
        for shift in SHIFTS:
            slot = old_next - shift
            if slot > last_slot and _is_slot(timetable, slot):
                for before in dict.fromkeys((last_slot - shift, last_slot)):
                    if _is_slot(timetable, before) and timetable.next_after(before) == slot:
                        return slot
    return _nearest(timetable, last_slot, old_next)


def moved_due(
    plan: Plan, job: JobId, last_slot: datetime | None, due_at: datetime, since: datetime | None
) -> datetime | None:
    """When a job is due that waits for `due_at` by older zone data; None: it has no slot left.

    `due_at` may hold the job's jitter: the slots are compared, not the due instants.
    """
    timetable = plan.timetable
    still = set(zones_of(plan.schedule)) <= _STILL
    if timetable is None or from_completion(plan) or (still and plan.allowance is None):
        return due_at
    old = _slot_behind(plan, job, timetable, due_at)
    if still:
        # The slots stay and only a calendar lies elsewhere: what it allows now is not passed over.
        decided = max((at for at in (last_slot, since) if at is not None), default=old - _TICK)
        new = timetable.next_after(decided)
    else:
        new = moved_next(timetable, last_slot, old, since)
    if new is not None and plan.starts_at is not None and new < plan.starts_at:
        new = timetable.next_after(plan.starts_at - _TICK)
    if new is None or (plan.ends_at is not None and new > plan.ends_at):
        return None
    return due_at if new == old else new + spread(plan, job, new)


def _is_slot(timetable: Timetable, instant: datetime) -> bool:
    return timetable.next_after(instant - _TICK) == instant


def _nearest(timetable: Timetable, low: datetime | None, old: datetime) -> datetime | None:
    """The slot after `low` that is nearest to `old`."""
    start = old - _REACH if low is None else max(low, old - _REACH)
    following = timetable.next_after(max(start, old - _TICK))
    if following is not None:
        start = max(start, old - (following - old) - _TICK)
    before = timetable.missed(start, old - _TICK, 1) if start < old - _TICK else None
    return following if before is None else before.last


def _slot_behind(plan: Plan, job: JobId, timetable: Timetable, due_at: datetime) -> datetime:
    """The slot, by the old rules, whose due instant this is.

    The jitter of a slot is a hash of it, so a slot by the new rules, carried back by the right
    shift, gives exactly this due instant.
    """
    if not plan.jitter:
        return due_at
    for shift in SHIFTS:
        edge = due_at - shift  # jitter ends before the next slot, so the latest one is meant
        found = timetable.missed(edge - plan.jitter - _TICK, edge, 1)
        if found is not None:
            old = found.last + shift
            if old + spread(plan, job, old) == due_at:
                return old
    return due_at

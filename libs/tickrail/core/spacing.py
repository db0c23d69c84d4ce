"""How close together the slots of a job can be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tickrail.core.definition import Plan
from tickrail.core.plan import from_completion
from tickrail.core.schedule import Every

MOST_SLOTS: Final = 500
"""So many slots ahead are looked at: of a daily job a year, clock changes with it."""
HORIZON: Final = timedelta(days=400)
_FAR: Final = datetime.max.replace(tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)


def closest(plan: Plan, after: datetime, least: timedelta) -> timedelta | None:
    """The distance of two slots closer than `least`, among the next `MOST_SLOTS` in `HORIZON`.

    Jitter aside: it may bring two slots together for once, not make more of them.

    Args:
        plan: the job's plan, its calendars with it.
        after: slots up to here do not matter.
        least: the distance that is wanted.
    """
    schedule, table = plan.schedule, plan.timetable
    if table is None or schedule is None:
        return None
    if isinstance(schedule, Every) and (from_completion(plan) or plan.allowance is None):
        # Its period is the distance of all its slots, or the least one that a run may leave.
        return schedule.period if schedule.period < least else None
    if plan.starts_at is not None:
        after = max(after, plan.starts_at - _TICK)
    slot = table.next_after(after)
    if slot is None:
        return None
    end = min(min(slot, _FAR - HORIZON) + HORIZON, plan.ends_at or _FAR)
    for _ in range(MOST_SLOTS):
        following = table.next_after(slot)
        if following is None or following > end:
            return None
        if following - slot < least:
            return following - slot
        slot = following
    return None

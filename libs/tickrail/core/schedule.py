"""Schedules: what a job is due by. The door to the files that hold the parts.

Values in `schedule_values`, when they are due in `recurrence` (rules of the missing and the doubled
hour in `walk`, fields in `cron`), their JSON documents in `schedule_document`.
"""

from __future__ import annotations

from tickrail.core.recurrence import (
    Missed,
    Slot,
    describe,
    latest_at_or_before,
    matches,
    missed,
    next_after,
    slot_of,
    upcoming,
)
from tickrail.core.schedule_document import parse_schedule, schedule_document
from tickrail.core.schedule_values import (
    AnyOf,
    At,
    CalendarInterval,
    Cron,
    Every,
    Fold,
    Gap,
    MeasuredFrom,
    Schedule,
    Unit,
)
from tickrail.core.zones import TZDATA_VERSION

__all__ = [
    "TZDATA_VERSION",
    "AnyOf",
    "At",
    "CalendarInterval",
    "Cron",
    "Every",
    "Fold",
    "Gap",
    "MeasuredFrom",
    "Missed",
    "Schedule",
    "Slot",
    "Unit",
    "describe",
    "latest_at_or_before",
    "matches",
    "missed",
    "next_after",
    "parse_schedule",
    "schedule_document",
    "slot_of",
    "upcoming",
]

"""The kinds of schedule, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from tickrail.core.cron import NO_KEY
from tickrail.core.walk import Fold, Gap

__all__ = [
    "AnyOf",
    "At",
    "CalendarInterval",
    "Cron",
    "Every",
    "Fold",
    "Gap",
    "MeasuredFrom",
    "Schedule",
    "Unit",
]


class MeasuredFrom(StrEnum):
    """From where an interval is measured."""

    SCHEDULE = "schedule"
    COMPLETION = "completion"


class Unit(StrEnum):
    """What a calendar interval counts."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True)
class Cron:
    """A cron expression on the wall clock of a zone.

    `hash_key` is the job's id, of which an `H` field is a stable hash.
    """

    expression: str
    zone: str = "UTC"
    gap: Gap = Gap.AFTER
    fold: Fold = Fold.FIRST
    hash_key: UUID = NO_KEY


@dataclass(frozen=True)
class Every:
    """A fixed period of real time.

    From `schedule`: due at anchor, anchor + period, and so on. From `completion`: first due at the
    anchor, then one period after whatever instant is asked about, the end of the last run.
    """

    period: timedelta
    anchor: datetime
    measured_from: MeasuredFrom = MeasuredFrom.SCHEDULE


@dataclass(frozen=True)
class CalendarInterval:
    """Every n days, weeks, months or years at a local time.

    `on` is None for days; a weekday (0-6, Sunday is 0) for weeks; a day number, `last`, or
    `2nd tue`, `last fri` inside the month or year; `MM-DD` for years. `at` is the second of the
    day. `anchor` is the local day whose period counts as the first; it matters where every > 1.
    """

    every: int
    unit: Unit
    on: int | str | None
    at: int
    zone: str = "UTC"
    gap: Gap = Gap.AFTER
    fold: Fold = Fold.FIRST
    anchor: str | None = None


@dataclass(frozen=True)
class At:
    """One instant, aware; its fraction of a second is kept.

    Where it was given as a local time, `local` is that time and the rest says how it was placed.
    """

    instant: datetime
    local: str | None = None
    zone: str = "UTC"
    gap: Gap = Gap.AFTER
    fold: Fold = Fold.FIRST


@dataclass(frozen=True)
class AnyOf:
    """Due whenever one of the parts is; parts due at one instant are one slot."""

    parts: tuple[Cron | Every | CalendarInterval | At, ...]


Schedule = Cron | Every | CalendarInterval | At | AnyOf

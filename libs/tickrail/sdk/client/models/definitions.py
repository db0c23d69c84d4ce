"""Calendars, schedules and secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tickrail.sdk.client.models.jobs import Warn
from tickrail.sdk.client.reading import Model, model


@model
class CalendarWindow(Model):
    """A time of the day, round midnight where `to` is not after `from_`."""

    from_: str
    to: str
    weekdays: tuple[str, ...] = ()


@model
class CalendarEvent(Model):
    """A span of time, once or at each occurrence of a rule; texts are local to its zone."""

    summary: str = ""
    start: str
    end: str | None
    duration: str | None
    time_zone: str | None
    rrule: str | None
    except_: tuple[str, ...] = ()


@model
class Calendar(Model):
    """A calendar: the union of its entries.

    Attributes:
        dates: local days (`2026-12-24`), or `{"from", "to"}`.
        yearly: days of each year (`12-25`), or `{"from", "to"}`.
        version: counts definitions; for `if_match`.
    """

    name: str
    description: str = ""
    time_zone: str = "UTC"
    dates: tuple[Any, ...] = ()
    yearly: tuple[Any, ...] = ()
    weekdays: tuple[str, ...] = ()
    windows: tuple[CalendarWindow, ...] = ()
    events: tuple[CalendarEvent, ...] = ()
    version: int
    created_at: datetime
    updated_at: datetime


@model
class JobName(Model):
    """Which job."""

    id: str
    name: str


@model
class NextRun(Model):
    """The next run before and after a change."""

    before: datetime | None
    after: datetime | None


@model
class MovedJob(Model):
    """A job whose slots a change moves, as far as its next 20 slots show it."""

    job: JobName
    state: str
    next_run_at: NextRun
    added: tuple[datetime, ...]
    removed: tuple[datetime, ...]


@model
class MovedJobs(Model):
    """How many jobs a change moves, and the first hundred of them."""

    jobs: int
    items: tuple[MovedJob, ...]


@model
class CalendarChange(Calendar):
    """A calendar as it was put, or would be, and the jobs whose runs that moves."""

    moved: MovedJobs


@model
class UpcomingSlot(Model):
    """A slot to come: `local` is the wall clock of the schedule's zone with its offset."""

    at: datetime
    local: str
    notes: tuple[str, ...]


@model
class Upcoming(Model):
    """Slots to come."""

    items: tuple[UpcomingSlot, ...]

    @classmethod
    def items_of(cls, document: object) -> tuple[UpcomingSlot, ...]:
        """The slots alone."""
        return cls.read(document).items


@model
class Difference(Model):
    """How the slots differ from those of a job, among the next ones of either."""

    added: tuple[datetime, ...]
    removed: tuple[datetime, ...]


@model
class Preview(Model):
    """What a schedule means; `schedule` has every default filled in."""

    items: tuple[UpcomingSlot, ...]
    words: str
    schedule: Mapping[str, Any] | None
    lint: tuple[Warn, ...]
    difference: Difference | None


@model
class Secret(Model):
    """What is told of a secret: its name, not its value."""

    name: str
    updated_at: datetime

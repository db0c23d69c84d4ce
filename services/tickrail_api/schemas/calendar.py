"""Documents of calendars."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, Document, Instant

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class DayRange(Document):
    """Days from one to another, both included."""

    begin: str = Field(alias="from", description="The first day.")
    to: str = Field(description="The last day.")


class CalendarWindow(Document):
    """A time of the day, round midnight where `to` is not after `from`."""

    begin: str = Field(alias="from", description="`HH:MM` or `HH:MM:SS`.")
    to: str = Field(description="The first moment after it; `24:00` is the end of the day.")
    weekdays: list[Weekday] = Field(
        default_factory=list, description="The days on which it begins; every day."
    )


class CalendarEvent(Document):
    """A span of time, once or at each occurrence of a rule."""

    summary: str = ""
    start: str = Field(description="A local day, a local time, or an instant with offset.")
    end: str | None = Field(
        None, description="The first moment after it, written as `start`; a day later for days."
    )
    duration: str | None = Field(None, description="Instead of `end`: `8h`, `2d`.")
    time_zone: str | None = Field(None, description="For local days and times; the calendar's.")
    rrule: str | None = Field(
        None, description="A recurrence rule of iCalendar, FREQ=DAILY or longer."
    )
    without: list[str] = Field(
        default_factory=list, alias="except", description="Starts that are left out of the rule."
    )


class CalendarBody(Document):
    """What a calendar holds: the union of its entries."""

    description: str = ""
    time_zone: str = "UTC"
    dates: list[str | DayRange] = Field(
        default_factory=list, description="Local days: `2026-12-24`, or from and to."
    )
    yearly: list[str | DayRange] = Field(
        default_factory=list, description="Days of each year: `12-25`, or from and to."
    )
    weekdays: list[Weekday] = Field(default_factory=list)
    windows: list[CalendarWindow] = Field(default_factory=list)
    events: list[CalendarEvent] = Field(default_factory=list)


class NewCalendar(CalendarBody):
    """A calendar to put."""

    name: str | None = Field(None, description="As in the path.")
    icalendar: str | None = Field(
        None, description="An iCalendar file; its events are added to those of the document."
    )
    dry_run: bool = Field(False, description="Answer what would change, and change nothing.")


class Calendar(CalendarBody):
    """A calendar, every default filled in."""

    name: str
    version: int
    created_at: Instant
    updated_at: Instant


class JobName(Document):
    """A job."""

    id: str
    name: str


class NextRun(Document):
    """The next run before and after a change."""

    before: Instant | None
    after: Instant | None


class MovedJob(Document):
    """A job whose slots a change moves, as far as its next 20 slots show it."""

    job: JobName
    state: str = Field(description="After the change; `finished` where no run is left.")
    next_run_at: NextRun
    added: list[Instant]
    removed: list[Instant]


class MovedJobs(Document):
    """Which jobs a change moves."""

    jobs: int = Field(description="How many.")
    items: list[MovedJob] = Field(description="The first hundred of them.")


class PutCalendar(Calendar):
    """A calendar as it was put, or would be."""

    moved: MovedJobs


class CalendarPage(Document):
    """A page of calendars."""

    items: list[Calendar]
    next_cursor: str | None


_BODY = {
    "description": "No deployments",
    "time_zone": "Europe/Berlin",
    "dates": ["2026-05-14", {"from": "2026-12-21", "to": "2026-12-31"}],
    "yearly": ["05-01", "10-03"],
    "weekdays": ["sat", "sun"],
    "windows": [{"from": "22:00", "to": "06:00"}],
    "events": [
        {
            "summary": "Company day",
            "start": "2026-11-26",
            "end": "2026-11-27",
            "rrule": "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
        }
    ],
}
NEW_CALENDAR = _BODY
ICALENDAR_TEXT = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//example.org//holidays//EN\r\nBEGIN:VEVENT\r\n"
    "UID:1@example.org\r\nDTSTAMP:20260101T000000Z\r\nSUMMARY:Labour day\r\n"
    "DTSTART;VALUE=DATE:20260501\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
ICALENDAR = {"time_zone": "Europe/Berlin", "icalendar": ICALENDAR_TEXT, "dry_run": True}
PATCH_CALENDAR = {"yearly": ["05-01"], "description": None}
CALENDAR = {
    "name": "no-deployments",
    "version": 2,
    **_BODY,
    "created_at": "2026-03-01T12:00:00Z",
    "updated_at": "2026-03-01T12:00:00Z",
}
PUT_CALENDAR = {
    **CALENDAR,
    "moved": {
        "jobs": 1,
        "items": [
            {
                "job": {"id": JOB_ID, "name": "nightly-invoice-run"},
                "state": "active",
                "next_run_at": {"before": INSTANT, "after": "2026-03-03T01:00:00Z"},
                "added": [],
                "removed": [INSTANT],
            }
        ],
    },
}

"""The forms of a schedule, each with the members that it takes and no others.

`tests/unit/api/test_forms.py` holds them to the parser. Null is as if left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tickrail_api.schemas.base import Document, Duration, one_of


class Placed(Document):
    """Of what has a local time: where, and what becomes of it when clocks change."""

    time_zone: str | None = Field(
        None, max_length=64, description="A name of the time zone database; UTC unless said."
    )
    gap: Literal["after", "shift", "skip"] | None = Field(
        None, description="A local time that does not exist: the first instant after it, moved by"
        " the length of the gap, or none.",
    )  # fmt: skip
    fold: Literal["first", "second", "both"] | None = Field(
        None, description="A local time that is there twice: which of the two."
    )


class CronSchedule(Placed):
    """A cron expression."""

    cron: str = Field(
        min_length=1, max_length=1000, description="Five to seven fields, or `@daily` and the like."
    )


class EverySchedule(Document):
    """An interval of real time."""

    every: Duration = Field(description="Whole seconds, from `1s` to 100 years.")
    anchor: str | None = Field(
        None, max_length=64,
        description="What it is counted from, RFC 3339; the instant at which the job is made.",
    )  # fmt: skip
    measured_from: Literal["schedule", "completion"] | None = Field(
        None, description="From the slot before, or from the end of its run."
    )


class _Pattern(Document):
    every: int | None = Field(None, ge=1, le=1000, description="So many of them; 1 unless said.")
    at: str = Field(
        pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$", description="A local time."
    )
    anchor: str | None = Field(
        None, max_length=10, description="The local day from which periods are counted."
    )


class DayPattern(_Pattern):
    """Every so many days at a local time."""

    unit: Literal["day"]
    on: None = None


class WeekPattern(_Pattern):
    """Every so many weeks on a weekday."""

    unit: Literal["week"]
    on: Annotated[int, Field(ge=0, le=7)] | str = Field(
        description="`sun` to `sat`, or cron's number (0 and 7 = Sunday)."
    )


class MonthPattern(_Pattern):
    """Every so many months on a day."""

    unit: Literal["month"]
    on: Annotated[int, Field(ge=1, le=31)] | str = Field(
        description="1 to 31, `last`, or a weekday such as `2nd tue` or `last fri`."
    )


class YearPattern(_Pattern):
    """Every so many years on a day."""

    unit: Literal["year"]
    on: Annotated[int, Field(ge=1, le=366)] | str = Field(
        description="A date such as `03-15`, 1 to 366, `last`, or a weekday such as `2nd tue`."
    )


class CalendarSchedule(Placed):
    """Days, weeks, months or years."""

    calendar: DayPattern | WeekPattern | MonthPattern | YearPattern = Field(
        json_schema_extra=one_of
    )


class AtSchedule(Placed):
    """One instant, RFC 3339, or a local time; only that has a zone, `gap` and `fold`."""

    at: str = Field(max_length=64)


Part = Annotated[
    CronSchedule | EverySchedule | CalendarSchedule | AtSchedule,
    Field(json_schema_extra=one_of),
]


class AnyOfSchedule(Document):
    """Several at once; an instant that two of them have is one slot."""

    any_of: list[Part] = Field(min_length=1, max_length=50)


Schedule = CronSchedule | EverySchedule | CalendarSchedule | AtSchedule | AnyOfSchedule
SCHEDULES: list[dict[str, Any]] = [
    {"cron": "0 2 * * *", "time_zone": "Europe/Berlin", "gap": "after", "fold": "first"},
    {"every": "15m", "anchor": "2026-03-01T00:00:00Z", "measured_from": "schedule"},
    {
        "calendar": {"every": 2, "unit": "week", "on": "mon", "at": "07:30",
                     "anchor": "2026-03-02"},
        "time_zone": "Europe/Berlin",
    },
    {"calendar": {"every": 1, "unit": "day", "at": "02:00:30", "anchor": "2026-03-02"}},
    {"calendar": {"every": 3, "unit": "month", "on": "last fri", "at": "18:00",
                  "anchor": "2026-03-02"}},
    {"calendar": {"every": 1, "unit": "year", "on": 60, "at": "00:00", "anchor": "2026-03-02"}},
    {"at": "2099-03-01T09:00:00Z"},
    {"at": "2099-03-01T09:00:00", "time_zone": "Europe/Berlin", "gap": "shift", "fold": "second"},
    {"any_of": [{"cron": "0 2 * * mon-fri"}, {"cron": "0 6 * * sat"}]},
]  # fmt: skip
"""Each form with every member that it takes."""

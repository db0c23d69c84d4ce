"""Schedules in plain English: `At 02:00 every day in Europe/Berlin`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, timedelta
from typing import Final

from tickrail.core.cron import CronExpression
from tickrail.core.cron_fields import FieldSet
from tickrail.core.schedule_document import clock_text
from tickrail.core.schedule_values import (
    AnyOf,
    At,
    CalendarInterval,
    Every,
    MeasuredFrom,
    Schedule,
    Unit,
)

_WEEKDAYS: Final = (
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
)
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NAMED_TIMES: Final = 6
_ALL_HOURS: Final = (1 << 24) - 1
_ALL_SIXTY: Final = (1 << 60) - 1
_ALL_WEEK: Final = (1 << 7) - 1
_ALL_MONTHS: Final = (1 << 13) - 2
_ALL_DAYS: Final = (1 << 32) - 2
_RUN: Final = 3


def in_words(schedule: Schedule | None) -> str:
    """The schedule as a sentence without the full stop."""
    if schedule is None:
        return "By hand only"
    if isinstance(schedule, AnyOf):
        parts = [in_words(part) for part in schedule.parts]
        return "; and ".join([parts[0], *(p[0].lower() + p[1:] for p in parts[1:])])
    if isinstance(schedule, Every):
        return _every(schedule)
    if isinstance(schedule, At):
        return _once(schedule)
    if isinstance(schedule, CalendarInterval):
        return f"{_calendar(schedule)} in {schedule.zone}"
    expression = CronExpression.parse(schedule.expression, hash_key=schedule.hash_key)
    return f"{cron_words(expression)} in {schedule.zone}"


def _once(s: At) -> str:
    if s.local is not None:
        return f"Once at {s.local.replace('T', ' ')} in {s.zone}"
    return f"Once at {s.instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def cron_words(e: CronExpression) -> str:
    """A cron expression as a sentence, without the zone."""
    times, each_day = _times(e)
    days = _days(e)
    if e.months != _ALL_MONTHS:
        days += f" in {_listed(e.months, lambda m: _MONTHS[m - 1])}"
    if e.years is not None:
        days += f" in {_listed(e.years, str)}"
    if not days:
        return f"{times} every day" if each_day else times
    return times + (days if days.startswith(" on") else f" every day{days}" if each_day else days)


def _every(s: Every) -> str:
    text = f"Every {_period(s.period)}"
    if s.measured_from is MeasuredFrom.COMPLETION:
        return f"{text} after the last run ended"
    return f"{text} from {s.anchor.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _period(period: timedelta) -> str:
    seconds = period.days * 86400 + period.seconds
    parts: list[str] = []
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {name}{'s' * (amount > 1)}")
    if parts and len(parts) == 1 and parts[0].startswith("1 "):
        return parts[0][2:]
    return _join(parts)


def _calendar(s: CalendarInterval) -> str:
    unit = s.unit.value
    every = f"every {unit}" if s.every == 1 else f"every {s.every} {unit}s"
    at = f"At {clock_text(s.at)}"
    if s.unit is Unit.DAY:
        return f"{at} {every}"
    if s.unit is Unit.WEEK:
        name = _WEEKDAYS[int(s.on or 0)]
        return f"{at} on {name} {every}" if s.every > 1 else f"{at} every {name}"
    if isinstance(s.on, int):
        return f"{at} on day {s.on} of {every}"
    if s.on == "last":
        return f"{at} on the last day of {every}"
    number, _, weekday = str(s.on).partition(" ")
    if weekday:
        name = next(day for day in _WEEKDAYS if day.lower().startswith(weekday))
        return f"{at} on the {number} {name} of {every}"
    month, _, day = str(s.on).partition("-")
    return f"{at} on {int(day)} {_MONTHS[int(month) - 1]} of {every}"


def _times(e: CronExpression) -> tuple[str, bool]:
    """The times of day, and whether "every day" is to follow."""
    if e.per_day <= _NAMED_TIMES:
        times = [
            clock_text(h * 3600 + m * 60 + s)
            for h in _bits(e.hours)
            for m in _bits(e.minutes)
            for s in _bits(e.seconds)
        ]
        return f"At {_join(times)}", True
    if e.seconds == 1:
        return _minutes(e)
    minutes, each_day = _minutes(e)
    if e.seconds == _ALL_SIXTY:
        second = "Every second"
    elif step := _step(e.seconds, 60):
        second = f"Every {step} seconds"
    else:
        second = f"At second{_s(e.seconds)} {_listed(e.seconds, str)}"
    if minutes == "Every minute":
        return (second if not second.startswith("At") else f"{second} of every minute"), each_day
    return f"{second}, {minutes[0].lower()}{minutes[1:]}", each_day


def _minutes(e: CronExpression) -> tuple[str, bool]:
    hours = _hours(e)
    if e.minutes == _ALL_SIXTY:
        return f"Every minute{hours and f' {hours}'}", bool(hours)
    step = _step(e.minutes, 60)
    if step:
        return f"Every {step} minutes{hours and f' {hours}'}", bool(hours)
    marks = f"minute{_s(e.minutes)} {_listed(e.minutes, str)}"
    if e.minutes == 1 and e.hours == _ALL_HOURS:
        return "Every hour", False
    every_few = _step(e.hours, 24)
    if every_few:
        start = "Every" if e.minutes == 1 else f"At {marks} of every"
        return f"{start} {every_few} hours", False
    return f"At {marks} {hours or 'of every hour'}", bool(hours)


def _hours(e: CronExpression) -> str:
    """Which hours, as `from 09:00 to 17:59`; empty for all."""
    if e.hours == _ALL_HOURS:
        return ""
    hours = _bits(e.hours)
    if len(hours) == 1:
        return f"from {hours[0]:02d}:00 to {hours[0]:02d}:59"
    if hours[-1] - hours[0] == len(hours) - 1:
        return f"from {hours[0]:02d}:00 to {hours[-1]:02d}:59"
    return f"in the hours {_join([f'{h:02d}' for h in hours])}"


def _days(e: CronExpression) -> str:
    days = _month_days(e.days)
    weekdays = _week_days(e.weekdays)
    if e.either_day:
        return f" on {days or 'any day'} or on {weekdays or 'any weekday'}"
    if days and weekdays:
        return f" on {days}, only when it is {weekdays}"
    return f" on {days or weekdays}" if days or weekdays else ""


def _month_days(days: FieldSet) -> str:
    parts: list[str] = []
    if days.mask == _ALL_DAYS:
        return ""
    if days.mask:
        parts.append(f"day{_s(days.mask)} {_listed(days.mask, str)} of the month")
    parts += [
        "the last day of the month"
        if back == 0
        else f"the day {back} day{'s' * (back > 1)} before the last of the month"
        for back in days.last
    ]
    if days.last_workday:
        parts.append("the last working day of the month")
    parts += [f"the working day nearest to day {near} of the month" for near in days.nearest]
    return _join(parts)


def _week_days(days: FieldSet) -> str:
    if days.mask == _ALL_WEEK:
        return ""
    parts = [_listed(days.mask, _WEEKDAYS.__getitem__)] if days.mask else []
    parts += [
        f"the {_ordinal(number) if number else 'last'} {_WEEKDAYS[day]} of the month"
        for day, number in days.nth
    ]
    return _join(parts)


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _step(mask: int, size: int) -> int:
    """The step of an evenly spaced set that begins at 0 and fills the field; else 0."""
    values = _bits(mask)
    if len(values) < _RUN - 1 or values[0] != 0 or size % len(values):
        return 0
    step = size // len(values)
    return step if step > 1 and values == list(range(0, size, step)) else 0


def _listed(mask: int, show: Callable[[int], str]) -> str:
    """The values of a set, runs of three or more as a range."""
    values = _bits(mask)
    parts: list[str] = []
    i = 0
    while i < len(values):
        j = i
        while j + 1 < len(values) and values[j + 1] == values[j] + 1:
            j += 1
        if j - i >= _RUN - 1:
            parts.append(f"{show(values[i])} to {show(values[j])}")
        else:
            parts += [show(v) for v in values[i : j + 1]]
        i = j + 1
    return _join(parts)


def _s(mask: int) -> str:
    return "s" if mask.bit_count() > 1 else ""


def _ordinal(number: int) -> str:
    return ("first", "second", "third", "fourth", "fifth")[number - 1]


def _join(parts: Sequence[str]) -> str:
    if len(parts) > 1:
        return f"{', '.join(parts[:-1])} and {parts[-1]}"
    return parts[0] if parts else ""

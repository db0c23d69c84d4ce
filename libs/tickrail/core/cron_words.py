"""Cron expressions in plain English: `Every 5 minutes from 09:00 to 17:59 every day`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tickrail.core.cron import CronExpression
from tickrail.core.cron_fields import FieldSet
from tickrail.core.schedule_document import clock_text

WEEKDAYS: Final = (
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
)
MONTHS: Final = (
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
_ONE_RUN: Final = re.compile(r"\w+ to \w+")
_MANY: Final = 5


def cron_words(e: CronExpression) -> str:
    """A cron expression as a sentence, without the zone."""
    times, each_day = _times(e)
    days = _days(e)
    if e.months != _ALL_MONTHS:
        months = _listed(e.months, lambda m: MONTHS[m - 1])
        # "of the month in May" is "of May", where the whole is about days of the month
        own = days.endswith(" of the month") and " or " not in days
        days = f"{days.removesuffix('the month')}{months}" if own else f"{days} in {months}"
    if e.years is not None:
        days += f" in {_listed(e.years, str)}"
    if not days:
        return f"{times} every day" if each_day else times
    if " from " in times and days.startswith(" from "):
        days = f" on{days.removeprefix(' from')}"
    dated = days.startswith((" on", " from"))
    return times + (days if dated else f" every day{days}" if each_day else days)


def _times(e: CronExpression) -> tuple[str, bool]:
    """The times of day, and whether "every day" is to follow."""
    if e.per_day <= _NAMED_TIMES:
        times = [
            clock_text(h * 3600 + m * 60 + s)
            for h in _bits(e.hours)
            for m in _bits(e.minutes)
            for s in _bits(e.seconds)
        ]
        return f"At {joined(times)}", True
    hours = _hours(e.hours)
    if e.seconds == 1:
        return _minutes(e, hours)
    if e.minutes == _ALL_SIXTY:
        return f"{_seconds(e.seconds, ' of every minute')}{hours and f' {hours}'}", bool(hours)
    if step := _step(e.minutes, 60):
        minutes = f" of every {step} minutes"
    else:
        minutes = f" of minute{_s(e.minutes)} {_listed(e.minutes, str)}"
    if e.seconds.bit_count() > 1 and _often(e.seconds):
        minutes = f" in minute{_s(e.minutes)} {_listed(e.minutes, str)}"
        return f"{_seconds(e.seconds, '')}{minutes} {hours or 'of every hour'}", bool(hours)
    return f"{_seconds(e.seconds, minutes)}{hours and f' {hours}'}", bool(hours)


def _often(seconds: int) -> bool:
    return seconds == _ALL_SIXTY or _step(seconds, 60) > 0


def _seconds(seconds: int, minutes: str) -> str:
    """Which seconds; those that are named one by one need to be told of which minutes."""
    if seconds == _ALL_SIXTY:
        return "Every second"
    if step := _step(seconds, 60):
        return f"Every {step} seconds"
    return f"At second{_s(seconds)} {_listed(seconds, str)}{minutes}"


def _minutes(e: CronExpression, hours: str) -> tuple[str, bool]:
    """Which minutes of which hours, where the second is 0."""
    if e.minutes == _ALL_SIXTY:
        return f"Every minute{hours and f' {hours}'}", bool(hours)
    if step := _step(e.minutes, 60):
        return f"Every {step} minutes{hours and f' {hours}'}", bool(hours)
    if e.minutes.bit_count() == 1:
        return _once_an_hour(e.minutes.bit_length() - 1, e.hours)
    if spaced := _spaced(e.minutes):
        first, step, last = spaced
        marks = f"Every {_nth(step)} minute from {first} to {last}"
    else:
        marks = f"At minutes {_listed(e.minutes, str)}"
    return f"{marks} {hours or 'of every hour'}", bool(hours)


def _once_an_hour(minute: int, hours: int) -> tuple[str, bool]:
    """One minute of many hours: `Every hour from 09:30 to 17:30`."""
    at = f" at minute {minute}" if minute else ""
    if hours == _ALL_HOURS:
        return f"Every hour{at}", False
    if step := _step(hours, 24):
        return f"Every {step} hours{at}", False
    found = _bits(hours)
    step = found[1] - found[0]
    if found == list(range(found[0], found[-1] + 1, step)):
        every = "hour" if step == 1 else f"{step} hours"
        return (
            f"Every {every} from {found[0]:02d}:{minute:02d} to {found[-1]:02d}:{minute:02d}",
            True,
        )
    return f"At minute {minute} {_hours(hours)}", True


def _hours(hours: int) -> str:
    """Which hours, as `from 09:00 to 17:59`; empty for all."""
    if hours == _ALL_HOURS:
        return ""
    found = _bits(hours)
    if found[-1] - found[0] == len(found) - 1:
        return f"from {found[0]:02d}:00 to {found[-1]:02d}:59"
    return f"in the hours {_listed(hours, lambda h: f'{h:02d}')}"


def _days(e: CronExpression) -> str:
    days = _month_days(e.days)
    weekdays = _week_days(e.weekdays)
    if e.either_day:
        return f" on {days or 'any day'} or on {weekdays or 'any weekday'}"
    if days and weekdays:
        return f" on {days}, only when it is {weekdays}"
    if _ONE_RUN.fullmatch(weekdays):
        return f" from {weekdays}"
    return f" on {days or weekdays}" if days or weekdays else ""


def _month_days(days: FieldSet) -> str:
    parts: list[str] = []
    if days.mask == _ALL_DAYS:
        return ""
    if spaced := _spaced(days.mask):
        first, step, last = spaced
        parts.append(f"every {_nth(step)} day from {first} to {last} of the month")
    elif days.mask:
        parts.append(f"day{_s(days.mask)} {_listed(days.mask, str)} of the month")
    parts += [
        "the last day of the month"
        if back == 0
        else f"the day {back} day{'s' * (back > 1)} before the last day of the month"
        for back in days.last
    ]
    if days.last_workday:
        parts.append("the last working day of the month")
    parts += [f"the working day nearest to day {near} of the month" for near in days.nearest]
    return joined(parts)


def _week_days(days: FieldSet) -> str:
    if days.mask == _ALL_WEEK:
        return ""
    mask = days.mask & ~1 | (days.mask & 1) << 7  # a week is told from Monday to Sunday
    parts = [_listed(mask, lambda day: WEEKDAYS[day % 7])] if mask else []
    parts += [
        f"the {_ordinal(number) if number else 'last'} {WEEKDAYS[day]} of the month"
        for day, number in days.nth
    ]
    return joined(parts)


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _step(mask: int, size: int) -> int:
    """The step of an evenly spaced set that begins at 0 and fills the field; else 0."""
    values = _bits(mask)
    if len(values) < _RUN - 1 or values[0] != 0 or size % len(values):
        return 0
    step = size // len(values)
    return step if step > 1 and values == list(range(0, size, step)) else 0


def _spaced(mask: int) -> tuple[int, int, int] | None:
    """First value, step and last value of five or more evenly spaced ones that are no run."""
    values = _bits(mask)
    if len(values) < _MANY:
        return None
    first, step, last = values[0], values[1] - values[0], values[-1]
    return (first, step, last) if step > 1 and values == [*range(first, last + 1, step)] else None


def _nth(number: int) -> str:
    if number // 10 % 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


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
    return joined(parts)


def _s(mask: int) -> str:
    return "s" if mask.bit_count() > 1 else ""


def _ordinal(number: int) -> str:
    return ("first", "second", "third", "fourth", "fifth")[number - 1]


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    if len(parts) > 1:
        return f"{', '.join(parts[:-1])} and {parts[-1]}"
    return parts[0] if parts else ""

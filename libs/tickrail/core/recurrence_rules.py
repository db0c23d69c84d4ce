"""Recurrence rules of iCalendar (RFC 5545): on which local times an event begins.

The only user of dateutil, which is asked for one year (or month) at a time; rules by days and weeks
do without it. So a rule costs as much in its fiftieth year as in its first, and one that never
matches ends.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import islice
from typing import Any, Final

from dateutil.rrule import MONTHLY, YEARLY, rrule, weekday

_FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_TOO_OFTEN: Final = ("HOURLY", "MINUTELY", "SECONDLY")
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_FOREVER: Final = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001 - a local time
_ONCE: Final = 10_000
"""An interval that leads out of the calendar: one period is looked at, and no other."""
MAX_COUNT: Final = 5000
COUNT_YEARS: Final = 100
"""A rule with COUNT must have come to its end within so many years."""
_PARTS: Final = (
    *("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"),
    *("BYDAY", "BYSETPOS", "WKST", "BYHOUR", "BYMINUTE", "BYSECOND"),
)
_BOUNDS: Final = {
    "BYMONTH": (1, 12, False),
    "BYWEEKNO": (1, 53, True),
    "BYYEARDAY": (1, 366, True),
    "BYMONTHDAY": (1, 31, True),
    "BYSETPOS": (1, 366, True),
}
"""Per part: lowest, highest, whether it may count from the end."""
_ONLY_WITH: Final = {
    "BYWEEKNO": ("YEARLY",),
    "BYYEARDAY": ("YEARLY",),
    "BYMONTHDAY": ("YEARLY", "MONTHLY", "DAILY"),
    "BYSETPOS": ("YEARLY", "MONTHLY"),
}
_BYDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z)?)?")


class RuleError(ValueError):
    """A rule that cannot be used: what is wrong and what would be right."""

    def __init__(self, message: str, expected: str = "") -> None:
        self.message = message
        self.expected = expected
        super().__init__(message)


@dataclass(frozen=True)
class Recurrence:
    """A rule and the local time at which it begins. `text` is its canonical form."""

    text: str
    start: datetime
    frequency: str
    interval: int
    count: int | None
    until: datetime | None
    parts: Mapping[str, Sequence[int]] = field(hash=False)
    days: Sequence[tuple[int, int]] = field(hash=False)
    week_start: int = 0

    def starts(self, year: int) -> Iterator[datetime]:
        """The local times in a year at which the event begins, in order, its first among them."""
        if not self.start.year <= year <= self._last.year:
            return
        if year == self.start.year:
            yield self.start
        for at in self._year(year):
            if self.start < at <= self._last:
                yield at

    @cached_property
    def _last(self) -> datetime:
        """The last local time that may be one of the rule's."""
        if self.until is not None:
            return self.until
        if self.count is None:
            return _FOREVER
        found = list(islice(self._counted(), self.count))
        if len(found) < self.count:
            raise RuleError(
                f"does not come to COUNT={self.count} within {COUNT_YEARS} years", "UNTIL"
            )
        return found[-1]

    def check(self) -> None:
        """Find the end of a rule with COUNT.

        Raises:
            RuleError: it has none within 100 years.
        """
        _ = self._last

    def _counted(self) -> Iterator[datetime]:
        yield self.start
        for year in range(self.start.year, min(self.start.year + COUNT_YEARS, 9999) + 1):
            yield from (at for at in self._year(year) if at > self.start)

    def _year(self, year: int) -> Iterator[datetime]:
        """What the rule gives in a year, whatever its beginning and end."""
        if self.frequency == "YEARLY":
            if (year - self.start.year) % self.interval == 0:
                yield from self._once(YEARLY, year, 1, self._yearly())
        elif self.frequency == "MONTHLY":
            yield from self._monthly(year)
        else:
            yield from self._by_days(year)

    def _by_days(self, year: int) -> Iterator[datetime]:
        """What a rule by days or weeks gives: each day is looked at, which is soon done.

        The library takes ten times as long, and such rules have the most occurrences.
        """
        first, time = self._period(self.start.date()), self.start.time()
        weekdays = {day for _, day in self.days}
        if self.frequency == "WEEKLY":
            weekdays = weekdays or {self.start.weekday()}
        months, in_month = self.parts.get("BYMONTH"), self.parts.get("BYMONTHDAY")
        low, high = date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal()
        step = 1
        if self.frequency == "DAILY":
            low, step = low + (first - low) % self.interval, self.interval
        for ordinal in range(low, high + 1, step):
            if weekdays and (ordinal - 1) % 7 not in weekdays:
                continue
            day = date.fromordinal(ordinal)
            if months is not None and day.month not in months:
                continue
            if in_month is not None and not _is_month_day(day, in_month):
                continue
            if step == 1 and (self._period(day) - first) % self.interval:
                continue
            yield datetime.combine(day, time)

    def _period(self, day: date) -> int:
        """The number of the day or week that a rule by days or weeks counts."""
        if self.frequency == "DAILY":
            return day.toordinal()
        return (day.toordinal() - 1 - self.week_start) // 7

    def _monthly(self, year: int) -> Iterator[datetime]:
        begin = self.start.year * 12 + self.start.month
        wanted = self.parts.get("BYMONTH") or range(1, 13)
        months = [m for m in sorted(wanted) if (year * 12 + m - begin) % self.interval == 0]
        if not months:
            return
        given = self._given()
        if not given.keys() & {"bymonthday", "byweekday"}:
            given["bymonthday"] = self.start.day
        if "bysetpos" not in given:
            yield from self._once(YEARLY, year, 1, given | {"bymonth": months})
            return
        given.pop("bymonth", None)
        for month in months:
            yield from self._once(MONTHLY, year, month, given)

    def _yearly(self) -> dict[str, Any]:
        given = self._given()
        if not given.keys() & {"byweekno", "byyearday", "bymonthday", "byweekday"}:
            given.setdefault("bymonth", self.start.month)
            given["bymonthday"] = self.start.day
        elif "byweekno" in given and "byweekday" not in given:
            given["byweekday"] = self.start.weekday()
        return given

    def _given(self) -> dict[str, Any]:
        """The parts as dateutil names them."""
        given: dict[str, Any] = {name.lower(): tuple(v) for name, v in self.parts.items()}
        if self.days:
            given["byweekday"] = [
                weekday(day, n) if n else weekday(day) for n, day in self._numbered()
            ]
        return given

    def _numbered(self) -> Iterator[tuple[int, int]]:
        """The weekdays, all with their number or none: dateutil takes a mixture for "both"."""
        most = 5 if self.frequency == "MONTHLY" or "BYMONTH" in self.parts else 53
        mixed = any(n for n, _ in self.days)
        for n, day in self.days:
            yield from [(n, day)] if n or not mixed else [(i, day) for i in range(1, most + 1)]

    def _once(
        self, frequency: int, year: int, month: int, given: Mapping[str, Any]
    ) -> Iterator[datetime]:
        begin = datetime.combine(date(year, month, 1), self.start.time())
        interval = _ONCE * (12 if frequency == MONTHLY else 1)
        found: Iterator[datetime] = iter(
            rrule(frequency, dtstart=begin, interval=interval, wkst=self.week_start, **given)
        )
        return found


def _is_month_day(day: date, wanted: Sequence[int]) -> bool:
    """Whether a day has one of these numbers in its month, from its beginning or its end."""
    return day.day in wanted or day.day - monthrange(day.year, day.month)[1] - 1 in wanted


def parse_rule(text: str, start: datetime, local: Callable[[datetime], datetime]) -> Recurrence:
    """The rule of a text such as `FREQ=YEARLY;BYMONTH=11;BYDAY=4TH`.

    Args:
        text: as in iCalendar, without `RRULE:`.
        start: the local time at which the event begins first.
        local: the local time of an instant, for an `UNTIL` in UTC.

    Raises:
        RuleError: what is wrong, in words.
    """
    parts = _split(text)
    frequency = parts.pop("FREQ", None)
    if frequency is None:
        raise RuleError("has no FREQ", "FREQ=YEARLY, MONTHLY, WEEKLY or DAILY")
    if frequency in _TOO_OFTEN:
        raise RuleError(f"has FREQ={frequency}", "FREQ=DAILY or longer")
    if frequency not in _FREQUENCIES:
        raise RuleError(f"has FREQ={frequency[:20]}", "FREQ=YEARLY, MONTHLY, WEEKLY or DAILY")
    interval = _number("INTERVAL", parts.pop("INTERVAL", "1"), 1000)
    count = _number("COUNT", parts.pop("COUNT"), MAX_COUNT) if "COUNT" in parts else None
    until = _until(parts.pop("UNTIL"), local) if "UNTIL" in parts else None
    if count is not None and until is not None:
        raise RuleError("has both COUNT and UNTIL", "one of them")
    if until is not None and until < start:
        raise RuleError(f"has UNTIL={until:%Y-%m-%d}", "an end that is not before its start")
    week_start = parts.pop("WKST", "MO")
    if week_start not in _DAYS:
        raise RuleError(f"has WKST={week_start[:20]}", "one of " + ", ".join(_DAYS))
    for name, now in (("HOUR", start.hour), ("MINUTE", start.minute), ("SECOND", start.second)):
        if (given := parts.pop(f"BY{name}", None)) is not None and given.lstrip("0") != str(
            now
        ).lstrip("0"):
            raise RuleError(f"has BY{name}", "the event's own start, one event for each time")
    days = _days(parts.pop("BYDAY", None), frequency, parts)
    lists = {name: _list(name, value, frequency) for name, value in parts.items()}
    if "BYSETPOS" in lists and len(lists) == 1 and not days:
        raise RuleError("has BYSETPOS alone", "another BY part to choose from")
    return Recurrence(
        text=_canonical(text),
        start=start,
        frequency=frequency,
        interval=interval,
        count=count,
        until=until,
        parts=lists,
        days=days,
        week_start=_DAYS.index(week_start),
    )


def _split(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.upper().strip().strip(";").split(";"):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not value:
            raise RuleError(f"has the part {part[:40]!r}", "NAME=VALUE;NAME=VALUE")
        if name not in _PARTS:
            raise RuleError(f"has the part {name[:40]!r}", "one of " + ", ".join(_PARTS))
        if name in found:
            raise RuleError(f"has {name} twice", "each part once")
        found[name] = value
    return found


def _canonical(text: str) -> str:
    found = _split(text)
    for name, default in (("INTERVAL", "1"), ("WKST", "MO")):
        if found.get(name) == default:
            del found[name]
    for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        found.pop(name, None)  # they say what the start says
    return ";".join(f"{name}={found[name]}" for name in _PARTS if name in found)


def _number(name: str, text: str, highest: int) -> int:
    longest = 6
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= longest else 0
    if not 1 <= value <= highest:
        raise RuleError(f"has {name}={text[:20]}", f"a whole number from 1 to {highest}")
    return value


def _until(text: str, local: Callable[[datetime], datetime]) -> datetime:
    found = _UNTIL.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)  # noqa: TRY301 - one place says what is wrong
        year, month, day = int(found[1]), int(found[2]), int(found[3])
        if found[4] is None:
            return datetime(year, month, day, 23, 59, 59)  # noqa: DTZ001 - a local time
        hour, minute, second = (int(part) for part in found.group(4, 5, 6))
        at = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - as above
        return local(at.replace(tzinfo=UTC)) if found[7] else at
    except (ValueError, OverflowError):
        raise RuleError(
            f"has UNTIL={text[:30]}", "a date or time such as 20271231 or 20271231T235959Z"
        ) from None


def _days(text: str | None, frequency: str, others: Mapping[str, str]) -> Sequence[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    highest = 5 if frequency == "MONTHLY" or "BYMONTH" in others else 53
    for one in text.split(",") if text else ():
        match = _BYDAY.fullmatch(one.strip())
        number = int(match[1]) if match is not None and match[1] else 0
        if match is None or (match[1] and not 1 <= abs(number) <= highest):
            raise RuleError(f"has BYDAY={one[:20]}", "such as MO, 2TU or -1FR")
        if number and (frequency not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in others):
            raise RuleError(f"has BYDAY={one[:20]}", "weekdays without a number here")
        found.append((number, _DAYS.index(match[2])))
    return found


def _list(name: str, text: str, frequency: str) -> Sequence[int]:
    allowed = _ONLY_WITH.get(name, _FREQUENCIES)
    if frequency not in allowed:
        raise RuleError(f"has {name} with FREQ={frequency}", "FREQ=" + " or ".join(allowed))
    low, high, negative = _BOUNDS[name]
    found = []
    for one in text.split(","):
        digits = one.strip()
        longest = 4
        try:
            value = int(digits) if len(digits) <= longest else 0
        except ValueError:
            value = 0
        if not low <= (abs(value) if negative else value) <= high:
            known = f"from {low} to {high}" + (", or as much below zero" if negative else "")
            raise RuleError(f"has {name}={one[:20]}", known)
        found.append(value)
    return tuple(sorted(set(found)))

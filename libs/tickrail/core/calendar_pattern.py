"""Calendar intervals (every n days, weeks, months, years) as a pattern of local times."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from datetime import date
from typing import Final

from tickrail.core.cron_fields import WEEKDAY
from tickrail.core.schedule_values import CalendarInterval, Unit
from tickrail.core.zones import DAY, EPOCH_ORDINAL

ORDINALS: Final = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": 0}
ON_WEEKDAY = re.compile(r"(1st|2nd|3rd|4th|5th|last) (sun|mon|tue|wed|thu|fri|sat)")
ON_DATE = re.compile(r"(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_EMPTY_PERIODS: Final = 400 * 12
"""So many periods in a row without a day: nothing will come (a cycle has 4,800 months)."""
_MAX_ORDINAL: Final = date.max.toordinal()
_LAST_MONTH: Final = 9999 * 12


def weekday_number(name: str) -> int:
    """The cron number of a weekday's short name: `sun` is 0."""
    return WEEKDAY.names[name.upper()]


class CalendarPattern:
    """The local times of a calendar interval; always fixed times."""

    wild: Final = False

    def __init__(self, interval: CalendarInterval) -> None:
        self._every = interval.every
        self._unit = interval.unit
        self._on = interval.on
        self._at = interval.at
        anchor = date.fromisoformat(interval.anchor or "1970-01-01")
        self._anchor = self._period(anchor)
        found = self._day_in(self._anchor)
        if found is not None and found < anchor.toordinal():
            self._anchor += 1  # its day had passed by then: the one of the next period is the first

    def next_local(self, at: int) -> int | None:
        """The first matching local second not before `at`; None when nothing will come."""
        day, second = divmod(at, DAY)
        if second > self._at:
            day += 1
        for found in self._days(day + EPOCH_ORDINAL):
            return (found - EPOCH_ORDINAL) * DAY + self._at
        return None

    def count(self, low: int, high: int) -> int:
        """How many local seconds in `low <= second < high` match: a step for each."""
        total = 0
        at = self.next_local(low)
        while at is not None and at < high:
            total += 1
            at = self.next_local(at + 1)
        return total

    def _days(self, ordinal: int) -> Iterator[int]:
        """The days from this one on, as ordinals."""
        if ordinal > _MAX_ORDINAL:
            return
        period = self._period(date.fromordinal(ordinal))
        period += (self._anchor - period) % self._every
        period = max(period, self._anchor)
        for _ in range(_EMPTY_PERIODS):
            if not self._exists(period):
                return
            found = self._day_in(period)
            if found is not None and ordinal <= found <= _MAX_ORDINAL:
                yield found
            period += self._every

    def _period(self, day: date) -> int:
        """The number of the day's period: days, Monday weeks or months from year 1, or the year."""
        match self._unit:
            case Unit.DAY:
                return day.toordinal()
            case Unit.WEEK:
                return (day.toordinal() - 1) // 7  # 0001-01-01 was a Monday
            case Unit.MONTH:
                return day.year * 12 + day.month - 1
            case Unit.YEAR:
                return day.year

    def _exists(self, period: int) -> bool:
        match self._unit:
            case Unit.DAY:
                return period <= _MAX_ORDINAL
            case Unit.WEEK:
                return period * 7 + 7 <= _MAX_ORDINAL
            case Unit.MONTH:
                return period < _LAST_MONTH + 12
            case Unit.YEAR:
                return period <= date.max.year

    def _day_in(self, period: int) -> int | None:
        """The period's day as an ordinal; None where it has none (31 in April)."""
        match self._unit:
            case Unit.DAY:
                return period
            case Unit.WEEK:
                return period * 7 + 1 + (int(self._on or 0) - 1) % 7
            case Unit.MONTH:
                year, month = divmod(period, 12)
                first = date(year, month + 1, 1).toordinal()
                return self._inside(first, monthrange(year, month + 1)[1])
            case Unit.YEAR:
                return self._in_year(period)

    def _in_year(self, year: int) -> int | None:
        dated = ON_DATE.fullmatch(str(self._on))
        if dated is None:
            return self._inside(date(year, 1, 1).toordinal(), 365 + isleap(year))
        month, day = int(dated[1]), int(dated[2])
        if day > monthrange(year, month)[1]:
            return None
        return date(year, month, day).toordinal()

    def _inside(self, first: int, length: int) -> int | None:
        """The day meant by `on` in the stretch of days that begins at `first`."""
        on = self._on
        if on == "last":
            return first + length - 1
        if isinstance(on, int):
            return first + on - 1 if on <= length else None
        match = ON_WEEKDAY.fullmatch(on or "")
        if match is None:
            return None
        number, weekday = ORDINALS[match[1]], weekday_number(match[2])
        start = (weekday - first % 7) % 7  # ordinal 7 is a Sunday
        back = 7 * (number - 1) if number else (length - 1 - start) // 7 * 7
        return first + start + back if start + back < length else None

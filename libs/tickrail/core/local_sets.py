"""Sets of local times: what a wall clock may show. Their axis is local seconds since 1970.

Each answers for one local second whether it belongs to the set and how far around it that stays
so, by a search and not by walking. A clock that jumps is no matter here: who asks has an instant,
and knows what the clock shows then (`core.calendars`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, NamedTuple, Protocol

from tickrail.core.zones import DAY, EPOCH_ORDINAL, FAR

WEEK: Final = 7 * DAY
_MONDAY: Final = 4 * DAY  # 1970-01-01 was a Thursday

MonthDay = tuple[int, int]
"""Month and day of each year; 29 February is there in leap years only."""


class Stretch(NamedTuple):
    """Where nothing changes: the answer `inside` holds for each `start <= second < end`.

    A stretch need not be the longest possible one.
    """

    inside: bool
    start: int
    end: int


class LocalSet(Protocol):
    """A set of local seconds."""

    def stretch(self, at: int) -> Stretch:
        """Whether a local second belongs to the set, and where around it that is so."""
        ...


class Spans:
    """Some spans of time, each `start <= second < end`, in any order, overlapping or not."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(spans):
            if end <= start:
                continue
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)

    def stretch(self, at: int) -> Stretch:
        """See `LocalSet`."""
        i = bisect_right(self.starts, at) - 1
        if i >= 0 and at < self.ends[i]:
            return Stretch(True, self.starts[i], self.ends[i])
        following = self.starts[i + 1] if i + 1 < len(self.starts) else FAR
        return Stretch(False, self.ends[i] if i >= 0 else -FAR, following)


class Weekly:
    """Spans of a week that come again each week, in seconds from Monday 00:00; they may wrap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        parts: list[tuple[int, int]] = []
        for start, end in spans:
            parts.append((start, min(end, WEEK)))
            if end > WEEK:
                parts.append((0, end - WEEK))
        self._spans = Spans(parts)
        self._always = self._spans.starts == [0] and self._spans.ends == [WEEK]

    def stretch(self, at: int) -> Stretch:
        """See `LocalSet`."""
        if self._always:
            return Stretch(True, -FAR, FAR)
        phase = (at - _MONDAY) % WEEK
        return _within(self._spans.stretch(phase), at - phase, WEEK)


class Yearly:
    """Days of each year: from one day of the year to another, both included, perhaps round it.

    A day belongs to a range when month and day lie between its ends; so a range from 29 February
    begins on 1 March where a year has no such day.
    """

    def __init__(self, ranges: Sequence[tuple[MonthDay, MonthDay]]) -> None:
        self._ranges = ranges
        self._by_leap: dict[bool, Spans] = {}

    def stretch(self, at: int) -> Stretch:
        """See `LocalSet`."""
        ordinal = at // DAY + EPOCH_ORDINAL
        if not 1 <= ordinal <= date.max.toordinal():
            return Stretch(False, at, at + 1)
        year = date.fromordinal(ordinal).year
        start, length = year_bounds(year)
        leap = isleap(year)
        spans = self._by_leap.get(leap)
        if spans is None:
            spans = self._by_leap[leap] = self._compile(2000 if leap else 2001)
        return _within(spans.stretch(at - start), start, length)

    def _compile(self, year: int) -> Spans:
        """The spans of a year, in seconds from its beginning."""
        first, after = date(year, 1, 1).toordinal(), date(year + 1, 1, 1).toordinal()
        days = [(d.month, d.day) for d in map(date.fromordinal, range(first, after))]
        spans = []
        for low, high in self._ranges:
            start, end = bisect_left(days, low) * DAY, bisect_right(days, high) * DAY
            spans += [(start, end)] if low <= high else [(start, len(days) * DAY), (0, end)]
        return Spans(spans)


def year_bounds(year: int) -> tuple[int, int]:
    """The first local second of a year, and the year's length in seconds."""
    start = (date(year, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY
    return start, (366 if isleap(year) else 365) * DAY


def year_of(at: int) -> int:
    """The year of a local second, held between 1 and 9999."""
    ordinal = at // DAY + EPOCH_ORDINAL
    return date.fromordinal(min(max(ordinal, 1), date.max.toordinal())).year


def _within(found: Stretch, base: int, length: int) -> Stretch:
    """A stretch inside a period, on the axis of all time."""
    return Stretch(found.inside, base + max(found.start, 0), base + min(found.end, length))

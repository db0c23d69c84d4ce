"""Brute force over local days: which instants an expression means in a zone, by asking zoneinfo.

Knows nothing of pieces of constant offset or of the next local time: it looks at every local day
and at every time of it that the expression names, and asks which instants show that time. An
expression that follows real time is looked for at every minute. Offsets of whole minutes only,
which holds for every zone since 1972.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache

from tests.oracle.expression import Expression
from tests.support.cron_oracle import zone_info

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY = date(1970, 1, 1)
MINUTES_A_DAY = 1440
SEARCHED = 3000
"""Minutes that a gap is looked through at most: more than any zone ever left out."""


class Walls:
    """The clocks on the walls of one zone; what was asked before is remembered."""

    def __init__(self, name: str) -> None:
        self._zone = zone_info(name)
        self._place = lru_cache(maxsize=400_000)(self._ask)
        self._shown = lru_cache(maxsize=200)(self._scan)

    def due(
        self, e: Expression, low: datetime, high: datetime, gap: str, fold: str
    ) -> list[datetime]:
        """The due instants with `low < instant <= high`."""
        found = self._wild(e, low, high) if e.wild else self._fixed(e, low, high, gap, fold)
        first, last = (low - EPOCH) // timedelta(seconds=1), (high - EPOCH) // timedelta(seconds=1)
        return [EPOCH + timedelta(seconds=t) for t in sorted(set(found)) if first < t <= last]

    def _wild(self, e: Expression, low: datetime, high: datetime) -> Iterator[int]:
        times = frozenset(e.minutes)
        for day in _days(low.date(), high.date()):
            for shown, minutes in self._shown(day).items():
                if e.on(shown):
                    for start, minute in minutes:
                        if minute in times:
                            yield from (start + s for s in e.seconds)

    def _fixed(
        self, e: Expression, low: datetime, high: datetime, gap: str, fold: str
    ) -> Iterator[int]:
        margin = timedelta(days=2)
        for day in _days((low - margin).date(), (high + margin).date()):
            if e.on(day):
                for minute in e.minutes:
                    first, second, missing = self._place(day, minute)
                    if missing:
                        if gap == "after":
                            yield second
                        elif gap == "shift":
                            yield from (first + s for s in e.seconds)
                    else:
                        if fold in ("first", "both"):
                            yield from (first + s for s in e.seconds)
                        if fold in ("second", "both"):
                            yield from (second + s for s in e.seconds)

    def _ask(self, day: date, minute: int) -> tuple[int, int, bool]:
        """The first and second instant that show a time, or what stands in for a missing one.

        A missing one: later by the length of the gap, and the first instant behind the gap.
        """
        wall = datetime.combine(day, time(minute // 60, minute % 60))
        first, second = self._instant(wall, 0), self._instant(wall, 1)
        if self._wall(first) == wall:
            return _seconds(first), _seconds(second), False
        for n in range(1, SEARCHED):
            later = wall + timedelta(minutes=n)
            at = self._instant(later, 0)
            if self._wall(at) == later:
                return _seconds(first), _seconds(at), True
        raise AssertionError(f"{self._zone.key} has no time after {wall}")

    def _instant(self, wall: datetime, fold: int) -> datetime:
        return wall.replace(tzinfo=self._zone, fold=fold).astimezone(UTC)

    def _wall(self, at: datetime) -> datetime:
        return at.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _scan(self, day: date) -> dict[date, list[tuple[int, int]]]:
        """What the wall shows in each minute of a UTC day: (instant, minute of day) by date."""
        start = datetime.combine(day, time(), tzinfo=UTC)
        shown: dict[date, list[tuple[int, int]]] = {}
        for n in range(MINUTES_A_DAY):
            at = start + timedelta(minutes=n)
            wall = at.astimezone(self._zone)
            entry = (_seconds(at), wall.hour * 60 + wall.minute)
            shown.setdefault(wall.date(), []).append(entry)
        return shown


def _seconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(seconds=1)


def _days(first: date, last: date) -> Iterator[date]:
    for n in range((last - first).days + 1):
        yield first + timedelta(days=n)

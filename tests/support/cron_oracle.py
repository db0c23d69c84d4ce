"""Brute force: which instants a set of local times means, minute by minute, by asking zoneinfo.

Shares no code with the product. A schedule is given as sets of values, never as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


@lru_cache
def zone_info(name: str) -> ZoneInfo:
    """The zone from the tzdata package, whatever this machine has."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


@lru_cache
def transitions(name: str, first: int, last: int) -> tuple[datetime, ...]:
    """The instants of these years at which a zone's offset changes, to the minute."""
    zone = zone_info(name)
    found: list[datetime] = []
    at, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    step = timedelta(hours=6)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + step).astimezone(zone).utcoffset():
            low, high = at, at + step
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                same = middle.astimezone(zone).utcoffset() == at.astimezone(zone).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            found.append(high)
        at += step
    return tuple(found)


@dataclass(frozen=True)
class Fields:
    """The values of the fields; weekday 0 is Sunday. `either` joins the day fields with OR."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    wild: bool
    either: bool

    def has(self, wall: datetime) -> bool:
        """Whether a wall clock's minute matches."""
        if wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        if wall.month not in self.months:
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either else day and weekday


def due(
    fields: Fields, name: str, low: datetime, high: datetime, gap: str, fold: str
) -> list[datetime]:
    """The due instants with `low < instant <= high`."""
    zone = zone_info(name)
    if fields.wild:
        steps = int((high - low) / MINUTE)
        every = [low + i * MINUTE for i in range(1, steps + 1)]
        return [t for t in every if fields.has(t.astimezone(zone).replace(tzinfo=None))]
    found: set[datetime] = set()
    wall = low.replace(tzinfo=None) - timedelta(hours=40)
    while wall <= high.replace(tzinfo=None) + timedelta(hours=40):
        if fields.has(wall):
            found.update(place(wall, zone, gap, fold))
        wall += MINUTE
    return sorted(t for t in found if low < t <= high)


def place(wall: datetime, zone: ZoneInfo, gap: str, fold: str) -> list[datetime]:
    """The instants that a fixed wall time means in a zone."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) != wall:
        if gap == "skip":
            return []
        if gap == "shift":
            return [first]
        at = second
        while at.astimezone(zone).replace(tzinfo=None) < wall:
            at += MINUTE
        return [at]
    if first == second:
        return [first]
    return {"first": [first], "second": [second], "both": [first, second]}[fold]

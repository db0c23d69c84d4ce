"""Time zones of the `tzdata` package as pieces of constant offset.

The standard library answers what the offset is, not when it changes next; walking a schedule
needs the changes. So the files are read here (TZif, RFC 9636), always from the package and never
from the machine, and the rule for the years behind the table (a POSIX TZ string) is followed.
Instants are whole Unix seconds.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from calendar import isleap
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import import_module, resources
from typing import Final, NamedTuple

from tickrail.core.zone_hints import nearest_zones

TZDATA_VERSION: Final = str(import_module("tzdata").IANA_VERSION)
"""The release of the time zone database in use, such as `2026a`."""

FAR: Final = 1 << 40
"""Seconds beyond every instant that Python can name: stands for "never changes"."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
DAY: Final = 86400


class Piece(NamedTuple):
    """A stretch of one offset: `start <= instant < end`; the neighbours' offsets beside it."""

    start: int
    end: int
    offset: int
    before: int
    after: int


class UnknownZoneError(ValueError):
    """A name that the time zone database does not have; `nearest` may be what was meant."""

    def __init__(self, name: str, nearest: tuple[str, ...]) -> None:
        self.name = name
        self.nearest = nearest
        super().__init__(f"there is no time zone {name!r}")


class Zone:
    """One zone's offsets from UTC, for all time."""

    def __init__(
        self, name: str, times: list[int], offsets: list[int], rule: Rule | None, ruled_from: int
    ) -> None:
        self.name = name
        self._ruled_from = ruled_from  # the table's last line, a change of offset or not
        self._times = times  # instants of change; offsets[i] holds before times[i]
        self._offsets = offsets
        self._rule = rule
        self._years: dict[int, tuple[list[int], list[int]]] = {}
        self._last = Piece(0, 0, 0, 0, 0)  # empty, so that it holds no instant

    def piece(self, instant: int) -> Piece:
        """The stretch that holds this instant."""
        last = self._last  # one that was asked for is asked for again: a walk goes on in it
        if last.start <= instant < last.end:
            return last
        self._last = last = self._find(instant)
        return last

    def _find(self, instant: int) -> Piece:
        times, offsets = self._times, self._offsets
        if self._rule is not None and (not times or instant >= times[-1]):
            year = (EPOCH + timedelta(seconds=max(instant, self._ruled_from))).year
            times, offsets = self._years.get(year) or self._by_rule(year)
        i = bisect_right(times, instant)
        here = offsets[i]
        return Piece(
            times[i - 1] if i else -FAR,
            times[i] if i < len(times) else FAR,
            here,
            offsets[i - 1] if i else here,
            offsets[i + 1] if i < len(times) else here,
        )

    def offset(self, instant: int) -> int:
        """Seconds that local time is ahead of UTC at this instant."""
        return self.piece(instant).offset

    def _by_rule(self, year: int) -> tuple[list[int], list[int]]:
        """The changes round one year behind the table, the table's last one before them."""
        rule = self._rule
        last = self._ruled_from
        times = self._times[-1:]
        offsets = self._offsets[-2:] if times else [rule.standard if rule else 0]
        for y in range(max(1, year - 1), min(year + 3, _NO_YEAR)):
            for at, offset in rule.changes(y) if rule else ():
                if at > last and offset != offsets[-1]:
                    times.append(at)
                    offsets.append(offset)
        self._years[year] = times, offsets
        return times, offsets


class _Day(NamedTuple):
    """When in a year a rule changes: `M` month, week, weekday; `J` day without 29 February; `n`."""

    kind: str
    a: int
    b: int
    c: int
    seconds: int

    def at(self, year: int) -> int:
        """Local seconds since 1970 of this moment."""
        if self.kind == "M":
            first = date(year, self.a, 1)
            day = first.toordinal() + (self.c - first.isoweekday()) % 7 + 7 * (self.b - 1)
            if self.b == _LAST_WEEK and date.fromordinal(day).month != self.a:
                day -= 7
        elif self.kind == "J":
            day = date(year, 1, 1).toordinal() + self.a - 1
            day += isleap(year) and self.a > _DAYS_TO_MARCH
        else:
            day = date(year, 1, 1).toordinal() + self.a
        return (day - EPOCH_ORDINAL) * DAY + self.seconds


_LAST_WEEK: Final = 5
_NO_YEAR: Final = 9999 + 1
_DAYS_TO_MARCH: Final = 59


class Rule(NamedTuple):
    """A POSIX TZ string: what holds for the years that the table does not list."""

    standard: int
    summer: int
    begins: _Day | None
    ends: _Day | None

    def changes(self, year: int) -> list[tuple[int, int]]:
        """The changes in this year: (instant, offset from then on), in order."""
        if self.begins is None or self.ends is None:
            return [(-FAR, self.standard)]
        on = self.begins.at(year) - self.standard, self.summer
        off = self.ends.at(year) - self.summer, self.standard
        return sorted((on, off))


_TZ = re.compile(
    r"(?:<[^>]+>|[A-Za-z]+)([-+\d:]+)(?:(?:<[^>]+>|[A-Za-z]+)([-+\d:]+)?,([^,]+),([^,]+))?"
)
_TZ_DAY = re.compile(r"(?:M(\d+)\.(\d)\.(\d)|(J?)(\d+))(?:/([-+\d:]+))?")


def _clock(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(p) for p in text.lstrip("+-").split(":")]
    return sign * sum(p * unit for p, unit in zip(parts, (3600, 60, 1), strict=False))


def _day(text: str) -> _Day:
    found = _TZ_DAY.fullmatch(text)
    if found is None:
        raise ValueError(f"unreadable day {text!r} in a time zone rule")
    month, week, weekday, julian, number, at = found.groups()
    seconds = 7200 if at is None else _clock(at)
    if month is not None:
        return _Day("M", int(month), int(week), int(weekday), seconds)
    return _Day("J" if julian else "n", int(number), 0, 0, seconds)


def _rule(text: str) -> Rule | None:
    if not text:
        return None
    found = _TZ.fullmatch(text)
    if found is None:
        raise ValueError(f"unreadable time zone rule {text!r}")
    standard = -_clock(found[1])
    if found[3] is None:
        return Rule(standard, standard, None, None)
    summer = standard + 3600 if found[2] is None else -_clock(found[2])
    return Rule(standard, summer, _day(found[3]), _day(found[4]))


_HEADER: Final = 44


def _read(name: str, raw: bytes) -> Zone:
    """Read a TZif file of version 2 or later."""
    isut, isstd, leap, timecnt, typecnt, charcnt = struct.unpack(">6l", raw[20:_HEADER])
    at = _HEADER + timecnt * 5 + typecnt * 6 + charcnt + leap * 8 + isstd + isut
    isut, isstd, leap, timecnt, typecnt, charcnt = struct.unpack(">6l", raw[at + 20 : at + _HEADER])
    at += _HEADER
    when = struct.unpack(f">{timecnt}q", raw[at : at + timecnt * 8])
    at += timecnt * 8
    kinds = raw[at : at + timecnt]
    at += timecnt
    types = [struct.unpack(">lBB", raw[at + 6 * i : at + 6 * i + 6]) for i in range(typecnt)]
    at += typecnt * 6 + charcnt + leap * 12 + isstd + isut
    rule = _rule(raw[at:].decode("ascii").strip("\n"))
    times: list[int] = []
    offsets = [types[0][0]]
    for instant, kind in zip(when, kinds, strict=True):
        offset = types[kind][0]
        if offset != offsets[-1]:  # a change of name or of the summer flag alone is none for us
            times.append(instant)
            offsets.append(offset)
    return Zone(name, times, offsets, rule, when[-1] if when else -FAR)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name of the time zone database."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(listed.split())


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """The zone of this name.

    Raises:
        UnknownZoneError: no such name; upper and lower case count.
    """
    names = zone_names()
    if name not in names:
        raise UnknownZoneError(name[:64], nearest_zones(name[:64], names))
    file = resources.files("tzdata").joinpath("zoneinfo").joinpath(*name.split("/"))
    return _read(name, file.read_bytes())


def local_text(instant: int, at: Zone, micros: int = 0) -> str:
    """The wall clock of a zone at an instant, with its offset: `2026-03-29T03:00:00+02:00`."""
    offset = at.offset(instant)
    wall = EPOCH + timedelta(seconds=instant + offset, microseconds=micros)
    sign, size = ("-", -offset) if offset < 0 else ("+", offset)
    text = f"{sign}{size // 3600:02d}:{size // 60 % 60:02d}"
    if size % 60:
        text += f":{size % 60:02d}"
    return wall.replace(tzinfo=None).isoformat() + text

"""Cron expressions: five fields, six with seconds first, seven with the year last.

What is legal and what it means is decided here; croniter is asked only for the values of plain
fields (numbers, names, ascending ranges, steps). Everything is in the local time of some wall
clock, as seconds since 1970-01-01T00:00 on it; `walk.py` places that in a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Final
from uuid import UUID

from croniter import CroniterError, croniter

from tickrail.core.cron_fields import (
    DAY_OF_MONTH,
    FIELDS,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    YEAR,
    CronError,
    FieldParser,
    FieldSet,
)
from tickrail.core.cron_hints import likely
from tickrail.core.zones import DAY, EPOCH_ORDINAL

__all__ = ["ALIASES", "NO_KEY", "CronError", "CronExpression"]

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
NO_KEY: Final = UUID(int=0)
"""Stands for the job's id where there is none yet: `H` then shows an example."""

_MAX_TEXT: Final = 1000
_CYCLE_YEARS: Final = 400
_MAX_YEAR: Final = 9999
_MONTHS_KNOWN: Final = 64  # of each expression: a walk goes through neighbouring months
_BLANKS = re.compile(r"[ \t]+")
_LEGAL = re.compile(r"[A-Za-z0-9*?/,#() \t-]*", re.ASCII)
_PLAIN_ITEM = re.compile(r"(?:\*|\w+-\w+)(?:/\d+)?|\w+", re.ASCII)
_FIELD_COUNTS: Final = {5: FIELDS[1:6], 6: FIELDS[:6], 7: FIELDS}
_EXPECTED_FIELDS: Final = (
    "5 fields (minute hour day-of-month month weekday), 6 with seconds first, "
    "or 7 with seconds first and the year last"
)
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FEBRUARY: Final = 2
_ALL_WEEKDAYS: Final = 0b111_1111
_WEEKS: Final = sum(1 << 7 * i for i in range(6))


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A legal expression that fires at least once in a Gregorian cycle."""

    text: str
    fields: tuple[str, ...]
    """The raw text of second, minute, hour, day of month, month, weekday, year."""
    given: int
    """How many fields were written: 5, 6 or 7."""
    seconds: int
    minutes: int
    hours: int
    days: FieldSet
    months: int
    weekdays: FieldSet
    years: int | None
    """A bit for each year; None for all."""
    wild: bool
    """Whether the minute or hour field starts with `*`: follows real time."""
    first_time: int
    """The first time of a day that matches, in seconds."""
    known: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    """The days of the months that were asked for last; see `_due_days`."""

    @classmethod
    def parse(cls, text: str, *, hash_key: UUID = NO_KEY) -> CronExpression:
        """Read an expression (cached).

        Args:
            text: the expression, or an alias such as `@daily`; line ends at its end are not read.
            hash_key: the job's id; `H` is a stable hash of it.

        Raises:
            CronError: it is not legal, or can never fire.
        """
        return _parse(text.rstrip("\r\n"), hash_key)

    @property
    def is_hashed(self) -> bool:
        """Whether a field holds `H`, so that the job's id matters."""
        return any(item[0] in "Hh" for f in self.fields for item in f.split(","))

    @property
    def either_day(self) -> bool:
        """Whether both day fields are restricted, so that a day matches if either does."""
        return not (self.days.star or self.weekdays.star)

    @property
    def per_day(self) -> int:
        """How many times it fires on a day that matches."""
        return self.hours.bit_count() * self.minutes.bit_count() * self.seconds.bit_count()

    def next_local(self, at: int) -> int | None:
        """The first matching local second not before `at`; None when 400 years hold none."""
        day, second = divmod(at, DAY)
        today = date.fromordinal(day + EPOCH_ORDINAL)
        left = self._due_days(today.year, today.month) >> today.day
        if left & 1:
            time = self._next_time(second)
            if time is not None:
                return day * DAY + time
            left ^= 1
        if left:
            return (day + _lowest(left)) * DAY + self.first_time
        for y, m in self._months_from(today.year, today.month):
            mask = self._due_days(y, m)
            if mask and (y, m) != (today.year, today.month):
                ordinal = date(y, m, _lowest(mask)).toordinal() - EPOCH_ORDINAL
                return ordinal * DAY + self.first_time
        return None

    def _due_days(self, year: int, month: int) -> int:
        """The days of a month on which it fires, bit 1 for the 1st; remembered."""
        key = year * 16 + month
        mask = self.known.get(key)
        if mask is None:
            mask = 0
            if self.months >> month & 1 and (self.years is None or self.years >> year & 1):
                mask = self.month_mask(year, month)
            if len(self.known) >= _MONTHS_KNOWN:
                self.known.clear()
            self.known[key] = mask
        return mask

    def _months_from(self, year: int, month: int) -> Iterator[tuple[int, int]]:
        """The months that may match, from this one on, for 400 years."""
        for y in range(year, min(year + _CYCLE_YEARS, _MAX_YEAR) + 1):
            if self.years is None or self.years >> y & 1:
                rest = self.months >> month << month if y == year else self.months
                while rest:
                    bit = rest & -rest
                    yield y, bit.bit_length() - 1
                    rest ^= bit

    def count(self, low: int, high: int) -> int:
        """How many local seconds in `low <= second < high` match; a step for each month."""
        return self._count_before(high, low) - self._count_before(low, low)

    def _count_before(self, at: int, since: int) -> int:
        """Matches before `at`, counted from the first of the month of `since`."""
        day, second = divmod(at, DAY)
        end = date.fromordinal(day + EPOCH_ORDINAL)
        start = date.fromordinal(since // DAY + EPOCH_ORDINAL)
        whole = 0
        for y, m in self._months_from(start.year, start.month):
            if (y, m) >= (end.year, end.month):
                break
            whole += self.month_mask(y, m).bit_count()
        mask = self._due_days(end.year, end.month)
        whole += (mask & (1 << end.day) - 1).bit_count()
        part = self._times_before(second) if mask >> end.day & 1 else 0
        return whole * self.per_day + part

    def _times_before(self, second_of_day: int) -> int:
        """How many of a day's times are before this one."""
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        n = self.seconds.bit_count()
        total = (self.hours & (1 << hour) - 1).bit_count() * self.minutes.bit_count() * n
        if self.hours >> hour & 1:
            total += (self.minutes & (1 << minute) - 1).bit_count() * n
            if self.minutes >> minute & 1:
                total += (self.seconds & (1 << second) - 1).bit_count()
        return total

    def month_mask(self, year: int, month: int) -> int:
        """The matching days of a month, bit 1 for the 1st; months and years are not looked at."""
        length = _LENGTHS[month]
        if month == _FEBRUARY and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)):
            length += 1
        all_days = (2 << length) - 2
        first = date(year, month, 1).isoweekday() % 7
        days = self._month_days(length, first) & all_days
        weekdays = self._weekday_days(length, first) & all_days
        return days | weekdays if self.either_day else days & weekdays

    def _month_days(self, length: int, first: int) -> int:
        days = self.days
        mask = days.mask
        for back in days.last:
            if back < length:
                mask |= 1 << (length - back)
        if days.last_workday:
            mask |= 1 << _workday(length, length, first)
        for near in days.nearest:
            if near <= length:
                mask |= 1 << _workday(near, length, first)
        return mask

    def _weekday_days(self, length: int, first: int) -> int:
        week = self.weekdays.mask
        turned = (week >> first | week << (7 - first)) & _ALL_WEEKDAYS
        mask = turned * _WEEKS << 1
        for weekday, number in self.weekdays.nth:
            day = 1 + (weekday - first) % 7
            day += 7 * (number - 1) if number else (length - day) // 7 * 7
            mask |= 1 << day
        return mask

    def _next_time(self, second_of_day: int) -> int | None:
        """The first time of day not before this one."""
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (left := self.seconds >> second):
                return hour * 3600 + minute * 60 + second + _lowest(left)
            if left := self.minutes >> (minute + 1):
                minute += 1 + _lowest(left)
                return hour * 3600 + minute * 60 + _lowest(self.seconds)
        if left := self.hours >> (hour + 1):
            hour += 1 + _lowest(left)
            return hour * 3600 + _lowest(self.minutes) * 60 + _lowest(self.seconds)
        return None


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _workday(day: int, length: int, first: int) -> int:
    """The working day nearest to a day, in the same month; `first` is the 1st's weekday."""
    weekday = (first + day - 1) % 7
    if weekday == 6:  # noqa: PLR2004 - Saturday
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


@lru_cache(maxsize=8192)
def _parse(text: str, key: UUID) -> CronExpression:
    try:
        return _read(text, key)
    except CronError as e:
        hint = None if len(text) > _MAX_TEXT else likely(text, _is_name, _is_legal)
        if hint is None:
            raise
        raise CronError(*hint) from e


def _is_name(text: str) -> bool:
    return text.casefold() in ALIASES


def _is_legal(text: str) -> bool:
    try:
        _read(text, NO_KEY)
    except CronError:
        return False
    return True


def _read(text: str, key: UUID) -> CronExpression:
    words, given = _split(text)
    specs = _FIELD_COUNTS[given]
    raw = dict.fromkeys((s.name for s in FIELDS), "*") | {"second": "0"}
    sets = {"second": FieldSet(mask=1), "year": FieldSet(star=True)}
    for i, (spec, word) in enumerate(zip(specs, words, strict=True)):
        raw[spec.name] = word
        sets[spec.name] = FieldParser(spec, i + 1, word, key).parse()
    _plain_values(raw, sets)
    year = sets["year"]
    second, minute, hour = (sets[spec.name].mask for spec in (SECOND, MINUTE, HOUR))
    expression = CronExpression(
        text=text.strip(),
        fields=tuple(raw[s.name] for s in FIELDS),
        given=given,
        seconds=second,
        minutes=minute,
        hours=hour,
        days=sets[DAY_OF_MONTH.name],
        months=sets[MONTH.name].mask,
        weekdays=sets[WEEKDAY.name],
        years=None if raw[YEAR.name] == "*" else year.mask,
        wild=sets[MINUTE.name].star or sets[HOUR.name].star,
        first_time=_lowest(hour) * 3600 + _lowest(minute) * 60 + _lowest(second),
    )
    _refuse_never(expression)
    return expression


def _plain_values(raw: dict[str, str], sets: dict[str, FieldSet]) -> None:
    """Let croniter name the values of an expression whose five classic fields are all plain."""
    specs = FIELDS[1:6]
    words = [raw[s.name].upper() for s in specs]
    for spec, word in zip(specs, words, strict=True):
        if not all(_is_plain(item, spec.names) for item in word.split(",")):
            return
    try:
        expanded = croniter.expand(" ".join(words))[0]
    except CroniterError:
        return  # our own reading stands
    for spec, values in zip(specs, expanded, strict=True):
        if "*" not in values:  # a lone star, or one in a list: our own reading stands
            modulus = 7 if spec is WEEKDAY else spec.high + 1
            sets[spec.name].mask = sum({1 << int(value) % modulus for value in values})


def _is_plain(item: str, names: Mapping[str, int]) -> bool:
    """Forms that croniter reads as we do: no wrapped or one-value range, no letters but names."""
    if _PLAIN_ITEM.fullmatch(item) is None:
        return False
    ends = item.partition("/")[0].split("-")
    if len(ends) == 1:
        return ends[0] == "*" or ends[0].isdigit() or item in names
    return ends[0].isdigit() and ends[1].isdigit() and int(ends[0]) < int(ends[1])


def _split(text: str) -> tuple[list[str], int]:
    """The fields of an expression, an alias resolved; hints for what comes from elsewhere."""
    if len(text) > _MAX_TEXT:
        raise CronError(f"has {len(text)} characters", f"at most {_MAX_TEXT}")
    line = text.strip(" \t")
    if line.startswith("@"):
        line = _alias(line)
    low = line.casefold()
    if low.startswith(("cron(", "rate(")):
        raise CronError(
            f"{line[:5]}...) is a form of another system", f"the fields alone; {_EXPECTED_FIELDS}"
        )
    if low.startswith(("cron_tz=", "tz=")):
        raise CronError(
            f"{line.split()[0]!r} is not part of an expression", "the zone in `time_zone`"
        )
    bad = _LEGAL.match(line)
    if bad is not None and bad.end() < len(line):
        at = bad.end()
        raise CronError(
            _odd(line, at),
            f"letters, digits, blanks and * ? / , - # ( ); {_EXPECTED_FIELDS}",
            position=len(line[:at].split()) + (at == 0 or line[at - 1] in " \t"),
            value=line[at],
        )
    words = _BLANKS.split(line) if line else []
    if len(words) not in _FIELD_COUNTS:
        found = "is empty" if not words else f"has {len(words)} field{'s' * (len(words) > 1)}"
        raise CronError(found, _EXPECTED_FIELDS)
    return words, len(words)


def _odd(line: str, at: int) -> str:
    char = line[at]
    shown = repr(char) if char.isprintable() and char.isascii() else f"U+{ord(char):04X}"
    return f"the character {shown} at column {at + 1} has no meaning in a cron expression"


def _alias(line: str) -> str:
    name, _, rest = line.partition(" ")
    known = ", ".join(ALIASES)
    if name == "@every":
        raise CronError(f"{name} is not a cron field", f'{{"every": "{rest.strip() or "5m"}"}}')
    if name == "@reboot":
        raise CronError("@reboot has no time to fire at", f"one of {known}")
    found = ALIASES.get(name.casefold())
    if found is None:
        raise CronError(f"{name!r} is not a known name", f"one of {known}")
    if rest.strip():
        raise CronError(f"{rest.strip()!r} follows {name}", f"{name} alone")
    return found


def _refuse_never(e: CronExpression) -> None:
    """Refuse an expression without a day in 400 years, 31 February for one.

    Raises:
        CronError: with the reason.
    """
    start = YEAR.low if e.years is None else _lowest(e.years)
    if e.next_local((date(start, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY) is not None:
        return
    _, _, _, day, month, weekday, year = e.fields
    where = f"day {day}" if weekday in ("*", "?") else f"day {day} on weekday {weekday}"
    raise CronError(
        f"never fires: {where} does not occur in month {month}"
        + ("" if e.years is None else f" of year {year}"),
        "a day that exists; L is the last day of each month",
        name=DAY_OF_MONTH.name,
        position=4 - (e.given == 5),  # noqa: PLR2004 - without seconds the day field is the third
        value=day,
    )

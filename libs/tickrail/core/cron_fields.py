"""The fields of a cron expression: what each may hold, and what a mistake probably meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from typing import Final
from uuid import UUID

_MONTHS: Final = {
    name: i + 1
    for i, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split())  # noqa: SIM905 - twelve names read best in a row
}
_WEEKDAYS: Final = {
    name: i
    for i, name in enumerate("SUN MON TUE WED THU FRI SAT".split())  # noqa: SIM905 - as above
}
_DAY_PER_HASH: Final = 28  # the days that every month has


class CronError(ValueError):
    """A cron expression that cannot be used: what is wrong, where, and what would be right.

    `field` is the field's name ("minute"), `position` its number in the expression from 1, both
    empty where the whole is meant; `value` is the offending piece.
    """

    def __init__(
        self,
        message: str,
        expected: str = "",
        *,
        name: str = "",
        position: int = 0,
        value: str = "",
    ) -> None:
        self.message = message
        self.expected = expected
        self.field = name
        self.position = position
        self.value = value
        super().__init__(f"{message} ({expected})" if expected else message)


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What one field may hold."""

    name: str
    low: int
    high: int
    size: int
    names: Mapping[str, int] = field(default_factory=dict)
    wraps: bool = True

    @property
    def is_day(self) -> bool:
        """Whether the field picks days: `?` and the forms with L, W, # are for those."""
        return self.name in ("day of month", "weekday")

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        if not self.names:
            return f"{self.low}-{self.high}"
        first, *_, last = self.names
        extra = " (0 and 7 = Sunday)" if self.name == "weekday" else ""
        return f"{self.low}-{self.high} or {first}-{last}{extra}"


SECOND: Final = FieldSpec("second", 0, 59, 60)
MINUTE: Final = FieldSpec("minute", 0, 59, 60)
HOUR: Final = FieldSpec("hour", 0, 23, 24)
DAY_OF_MONTH: Final = FieldSpec("day of month", 1, 31, 31)
MONTH: Final = FieldSpec("month", 1, 12, 12, _MONTHS)
WEEKDAY: Final = FieldSpec("weekday", 0, 7, 7, _WEEKDAYS)
YEAR: Final = FieldSpec("year", 1970, 2199, 230, wraps=False)
FIELDS: Final = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, WEEKDAY, YEAR)


@dataclass(slots=True)
class FieldSet:
    """What one field matches: a bit for each value, and the forms that depend on the month."""

    mask: int = 0
    star: bool = False
    last: list[int] = field(default_factory=list)
    """Days of month: this many days before the last."""
    last_workday: bool = False
    nearest: list[int] = field(default_factory=list)
    """Days of month: the working day nearest to this one."""
    nth: list[tuple[int, int]] = field(default_factory=list)
    """Weekdays: (weekday, its number in the month); number 0 is the last one."""


_OTHER_NAMES: Final = {MONTH.name: WEEKDAY, WEEKDAY.name: MONTH}
_FULL: Final = (
    "JANUARY FEBRUARY MARCH APRIL JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER SUNDAY "
    "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY"
)


def _full_name(word: str, names: Mapping[str, int]) -> bool:
    """Whether a word is one of these names, short or in full."""
    return word in names or (word in _FULL.split() and word[:3] in names)


_ITEM = re.compile(
    r"(?P<base>\*|\?|H(?:\((?P<hlow>\w+)-(?P<hhigh>\w+)\))?|(?P<low>\w+)(?:-(?P<high>\w+))?)"
    r"(?:/(?P<step>.*))?",
    re.ASCII,
)
_LAST = re.compile(r"L(?:-(\d+))?", re.ASCII)
_NEAREST = re.compile(r"(\d+)W", re.ASCII)
_NTH = re.compile(r"(\w+)#(\w*)", re.ASCII)
_LAST_WEEKDAY = re.compile(r"([0-9]+|[A-Z]{3})L", re.ASCII)
_MAX_NTH: Final = 5
_MAX_LAST: Final = 30


class FieldParser:
    """Reads one field of one expression."""

    def __init__(self, spec: FieldSpec, position: int, text: str, key: UUID) -> None:
        self.spec = spec
        self.position = position
        self.text = text
        self._key = key

    def error(self, value: str, message: str, expected: str = "") -> CronError:
        """A mistake in this field."""
        where = f"{self.spec.name} (field {self.position})"
        return CronError(
            f"{where}: {message}",
            expected or f"{self.spec.name} is {self.spec.allowed}",
            name=self.spec.name,
            position=self.position,
            value=value,
        )

    def parse(self) -> FieldSet:
        """The set of values.

        Raises:
            CronError: the field is not legal.
        """
        found = FieldSet(star=self.text[0] in "*?")
        for item in self.text.upper().split(","):
            if not item:
                raise self.error(self.text, f"{self.text!r} has an empty item beside a comma")
            if not (self.spec.is_day and self._day_form(item, found)):
                for value in self._values(item):
                    found.mask |= 1 << (value % 7 if self.spec is WEEKDAY else value)
        return found

    def _day_form(self, item: str, found: FieldSet) -> bool:
        """Read one of the forms with L, W and #; False when the item is none."""
        if self.spec is DAY_OF_MONTH:
            return self._month_day_form(item, found)
        if (nth := _NTH.fullmatch(item)) is not None:
            number = nth[2]
            if not number.isdigit() or not 1 <= int(number[:9]) <= _MAX_NTH:
                raise self.error(item, f"{item!r}: a month has no such weekday", "#1 to #5")
            found.nth.append((self._value(nth[1]) % 7, int(number)))
        elif item == "L":
            raise self.error(
                item, "a bare L says no weekday", "5L for the last Friday, L as day of month"
            )
        elif (last := _LAST_WEEKDAY.fullmatch(item)) is not None:
            found.nth.append((self._value(last[1]) % 7, 0))
        else:
            return False
        return True

    def _month_day_form(self, item: str, found: FieldSet) -> bool:
        if item == "LW":
            found.last_workday = True
        elif (last := _LAST.fullmatch(item)) is not None:
            back = int((last[1] or "0")[:9])
            if last[1] is not None and not 1 <= back <= _MAX_LAST:
                raise self.error(item, f"{item!r} is not a day before the last", "L, L-1 to L-30")
            found.last.append(back)
        elif (near := _NEAREST.fullmatch(item)) is not None:
            found.nearest.append(self._value(near[1]))
        elif "W" in item and item.isalnum():
            raise self.error(item, f"{item!r} is not understood", "15W, or LW")
        elif "#" in item:
            raise self.error(item, f"{item!r} belongs to the weekday field", "5#3 there")
        else:
            return False
        return True

    def _values(self, item: str) -> list[int]:
        match = _ITEM.fullmatch(item)
        if match is None or (match["base"] == "?" and (not self.spec.is_day or item != self.text)):
            raise self._unreadable(item)
        step = self._step(item, match)
        if match["low"] is None and match["base"].startswith("H"):
            return self._hashed(item, match, step)
        if match["low"] is None:
            low, high = self.spec.low, self.spec.low + self.spec.size - 1
        else:
            low = self._value(match["low"])
            if match["high"] is not None:
                return self._range(item, low, self._value(match["high"]), step or 1)
            if step is None:
                return [low]
            high = max(low, self.spec.low + self.spec.size - 1)
        return list(range(low, high + 1, step or 1))

    def _range(self, item: str, low: int, high: int, step: int) -> list[int]:
        if low <= high:
            return list(range(low, high + 1, step))
        spec = self.spec
        if not spec.wraps:
            raise self.error(item, f"{item!r} runs backwards", "an ascending range; years end")
        if spec is WEEKDAY:
            low %= 7
        round_ = range(low, (high if low <= high else high + spec.size) + 1, step)
        return [(value - spec.low) % spec.size + spec.low for value in round_]

    def _step(self, item: str, match: re.Match[str]) -> int | None:
        text = match["step"]
        if text is None:
            return None
        if not text.isdigit() or int(text[:9]) == 0:
            raise self.error(item, f"{item!r}: the step {text!r} is not a number from 1 on")
        step = int(text[:9])
        # A range of its own may be stepped by as much as the field holds; others by its top value.
        closed = match["high"] is not None or match["hlow"] is not None
        if step > (max(self.spec.size, self.spec.high) if closed else self.spec.high):
            raise self.error(item, f"{item!r}: {self._wide(step)}", self._instead(step))
        return step

    def _wide(self, step: int) -> str:
        return (
            f"step {step} is wider than the field ({self.spec.allowed}), so only the first value "
            "would ever match"
        )

    def _instead(self, step: int) -> str:
        unit = {"second": "s", "minute": "m", "hour": "h"}.get(self.spec.name)
        if unit is None:
            return f"a step of at most {self.spec.high}"
        return (
            f'every {step} {self.spec.name}s is {{"every": "{step}{unit}"}}; a cron step is at '
            f"most {self.spec.high}"
        )

    def _hashed(self, item: str, match: re.Match[str], step: int | None) -> list[int]:
        """`H`: a value, or the start of a series, that the job's id picks."""
        spec = self.spec
        low, high = spec.low, spec.low + spec.size - 1
        if spec is YEAR:
            raise self.error(item, "H is not for years")
        if match["hlow"] is not None:
            low, high = self._value(match["hlow"]), self._value(match["hhigh"])
            if low > high:
                raise self.error(item, f"{item!r} runs backwards", "an ascending range")
        elif spec is DAY_OF_MONTH:
            high = _DAY_PER_HASH
        digest = sha256(self._key.bytes + spec.name.encode()).digest()
        number = int.from_bytes(digest[:8], "big")
        size = high - low + 1
        if step is None:
            return [low + number % size]
        return list(range(low + number % min(step, size), high + 1, step))

    def _value(self, text: str) -> int:
        spec = self.spec
        if text in spec.names:
            return spec.names[text]
        if text.isascii() and text.isdigit():
            value = int(text[:9])
            if spec.low <= value <= spec.high:
                return value
            raise self.error(text, f"{text} does not exist{self._likely(value)}")
        raise self._unreadable(text)

    def _likely(self, value: int) -> str:
        """The likely meaning of a number out of range."""
        name = self.spec.name
        if name == "hour" and value == HOUR.size:
            return "; midnight is hour 0 of the next day"
        if name == "hour" and value <= MINUTE.high:
            return "; minute comes before hour, were the two swapped?"
        if name in ("minute", "second") and value == MINUTE.size:
            return f"; the full {'hour' if name == 'minute' else 'minute'} is {name} 0"
        if name == "minute":
            return "; a step or interval longer than an hour is an `every` schedule"
        if name in ("day of month", "month") and value == 0:
            return "; it begins at 1"
        return ""

    def _unreadable(self, item: str) -> CronError:
        spec = self.spec
        at = self.text.upper().find(item)
        item = self.text[at : at + len(item)] if at >= 0 else item  # as it was written
        if item == "?" or "?" in item:
            where = "stands alone" if spec.is_day else "is for the two day fields only"
            return self.error(item, f"{item!r}: ? {where}", "* for every value")
        if item in ("R", "r") or item[:2] in ("R/", "R(", "r/", "r("):
            return self.error(item, f"{item!r}: R is not offered", "H, which keeps its value")
        if item.startswith("-") or "/-" in item:
            return self.error(item, f"{item!r}: negative numbers have no meaning")
        if (other := _OTHER_NAMES.get(spec.name)) and _full_name(item.upper(), other.names):
            return self.error(item, f"{item!r} belongs to the {other.name} field")
        near = get_close_matches(item[:3].upper(), spec.names, n=1) if item[:3].isalpha() else []
        if near:
            return self.error(item, f"{item!r} is no {spec.name}", f"the short name {near[0]}")
        return self.error(item, f"{item!r} is no {spec.name}")

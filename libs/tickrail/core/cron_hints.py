"""What people write in the place of a cron expression, and how the same is said here."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from tickrail.core.cron_fields import WEEKDAY
from tickrail.core.durations import parse_duration
from tickrail.core.zones import zone_names

Hint = tuple[str, str]
"""What it is, and what would be right."""

_EVERY = re.compile(
    r"(?:every|each|rate\()\s*(?P<count>\d{1,6})?\s*(?P<unit>[a-z]+?)s?\s*\)?", re.IGNORECASE
)
_UNITS: Final = {
    "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d",
    "week": "w", "s": "s", "m": "m", "h": "h", "d": "d",
}  # fmt: skip
_CLOCK = re.compile(
    r"(?:at\s+)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?:\s*(?P<half>am|pm))?"
    r"(?P<days>\s+(?:daily|every\s*day))?",
    re.IGNORECASE,
)
_PATH = re.compile(r"[~.$]?/\w|\$\w|\./")
_WORD = re.compile(r"[a-z_][a-z0-9_.-]{2,}")
_YEARS = re.compile(r"(?:19[7-9]|2[01]\d)\d(?:[-,/]\d{1,4})*", re.ASCII)
_CLASSIC: Final = 5
_NOON: Final = 12
_HOURS: Final = 24
_MINUTES: Final = 60


def likely(text: str, names: Callable[[str], bool], legal: Callable[[str], bool]) -> Hint | None:
    """What a text that is no cron expression probably means; None where nothing comes to mind.

    Args:
        text: what was written.
        names: whether a text is one of the names with `@`.
        legal: whether a text is a cron expression.
    """
    line = " ".join(text.split())
    words = line.split()
    if not words:
        return None
    if names(f"@{line}"):
        return f"{line!r} is no cron expression", f"@{line.casefold()}"
    return _interval(line) or _time_of_day(line) or _zoned(words, legal) or _longer(words, legal)


def _interval(line: str) -> Hint | None:
    """`every 5 minutes`, `rate(5 minutes)`, `15m`."""
    found = _EVERY.fullmatch(line)
    what = "rate(...) is a form of another system" if line.casefold().startswith("rate(") else ""
    what = what or f"{line[:60]!r} is no cron expression"
    if found is not None and (unit := _UNITS.get(found["unit"].casefold())):
        count = int(found["count"] or 1)
        length = f"{count * 7}d" if unit == "w" else f"{count}{unit}"
        return what, f'{{"every": "{length}"}}'
    try:
        parse_duration(line)
    except ValueError:
        return None
    return what, f'{{"every": "{line}"}}'


def _time_of_day(line: str) -> Hint | None:
    """`9:00`, `at 9pm`, `09:30 daily`."""
    found = _CLOCK.fullmatch(line)
    if found is None or (line.isdigit() and found["half"] is None):
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"] is not None:
        hour = hour % _NOON + (_NOON if found["half"].casefold() == "pm" else 0)
    if hour >= _HOURS or minute >= _MINUTES:
        return None
    expected = f"minute before hour: {minute} {hour} * * * is {hour:02d}:{minute:02d} every day"
    return f"{line[:60]!r} is a time of day", expected


def _zoned(words: list[str], legal: Callable[[str], bool]) -> Hint | None:
    """An expression with its zone behind it."""
    rest = " ".join(words[:-1])
    known = {name.casefold(): name for name in zone_names()}
    name = known.get(words[-1].casefold())
    if name is None or not legal(rest):
        return None
    document = f'{{"cron": "{rest}", "time_zone": "{name}"}}'
    return f"{words[-1]!r} is a time zone, not a field", f"the zone in `time_zone`: {document}"


def _longer(words: list[str], legal: Callable[[str], bool]) -> Hint | None:
    """Five fields and more behind them: a year without seconds, or a crontab's command."""
    if len(words) <= _CLASSIC:
        return None
    first, rest = " ".join(words[:_CLASSIC]), words[_CLASSIC:]
    if len(rest) == 1 and _YEARS.fullmatch(rest[0]) and legal(first):
        return (
            f"{rest[0]!r} behind five fields is a year",
            f"seven fields, with seconds first: 0 {first} {rest[0]}",
        )
    command = any(_PATH.match(word) for word in rest) or (
        _WORD.fullmatch(rest[0]) is not None
        and not get_close_matches(rest[0][:3].upper(), WEEKDAY.names, n=1)
    )
    if not command or not legal(first):
        return None
    said = " ".join(rest)
    said = f"{said[:37]}..." if len(said) > 40 else said  # noqa: PLR2004 - as much as fits a line
    return (
        f"{said!r} behind five fields is a crontab's command",
        f"{first} alone; `tickrail import crontab` reads whole lines",
    )

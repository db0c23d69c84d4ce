"""Lengths of time as text: `30s`, `5m`, `1h30m`, `2d`, and ISO 8601 (`PT5M`) on the way in."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SHORT = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})(\.\d{1,6})?s)?")
_MILLIS = re.compile(r"(\d{1,12})ms")
_ISO = re.compile(
    r"P(?:(\d{1,9})W|(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?"
    r"(?:(\d{1,9})(\.\d{1,6})?S)?)?)",
    re.ASCII,
)
_LIMIT: Final = timedelta(days=36525)

EXPECTED: Final = "a duration such as 30s, 5m, 1h30m or 2d, at most 100 years"


@lru_cache(4096)
def parse_duration(text: str) -> timedelta:
    """Read a duration; `d` is 24 hours, `500ms` and `1.5s` are understood.

    Raises:
        ValueError: not a duration, or longer than 100 years; the message says what would be right.
    """
    word = text.strip()
    try:
        found = _read(word)
    except OverflowError:
        found = None
    if found is None or found > _LIMIT:
        raise ValueError(f"{text!r} is not {EXPECTED}")
    return found


def _read(word: str) -> timedelta | None:
    if not word.isascii():
        return None
    if (millis := _MILLIS.fullmatch(word)) is not None:
        return timedelta(milliseconds=int(millis[1]))
    if word and (short := _SHORT.fullmatch(word)) is not None:
        days, hours, minutes, seconds, fraction = short.groups()
        weeks = None
    elif word[:1] == "P" and len(word) > 1 and (iso := _ISO.fullmatch(word)) is not None:
        weeks, days, hours, minutes, seconds, fraction = iso.groups()
    else:
        return None
    return timedelta(
        weeks=int(weeks or 0),
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int((fraction or ".0")[1:].ljust(6, "0")),
    )


@lru_cache(4096)
def format_duration(length: timedelta) -> str:
    """The shortest usual form: `90s` is `1m30s`, nothing is `0s`, a fraction is kept (`1.5s`).

    Raises:
        ValueError: a negative length.
    """
    if length < timedelta(0):
        raise ValueError(f"a duration is not negative: {length}")
    micros = length.microseconds
    rest = length.days * 86400 + length.seconds
    parts: list[str] = []
    for unit, size in _UNITS.items():
        amount, rest = divmod(rest, size)
        if unit == "s" and micros:
            parts.append(f"{amount}.{micros:06d}".rstrip("0") + "s")
        elif amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"

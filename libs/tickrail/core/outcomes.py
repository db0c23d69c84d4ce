"""Patterns that name outcomes of attempts, for the retry policy.

A pattern is one outcome's name (`timed_out`, `connect_failed`, `http_404`, `raised_ValueError`) or
a family with a range: `http_4xx`, `http_500-503`, `exit_64-78`, `signal_1-15`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

EXPECTED = (
    "the name of an outcome: http_404, http_4xx, http_500-503, exit_3, exit_64-78, signal_9,"
    " raised_<TypeName>, timed_out, connect_failed, ..."
)
MAX_LENGTH = 100
_FAMILIES = {"http": (100, 599), "exit": (0, 255), "signal": (1, 64)}
_NUMBERS = re.compile(r"(http|exit|signal)_(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
_CLASS = re.compile(r"http_([1-5])xx", re.ASCII)
_RAISED = re.compile(r"raised_[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
_NEVER = frozenset({"ok", "cancelled", "interrupted", "claim_lost"})
"""What no policy decides about: a success, an asked-for end, a run given back."""


def pattern_problem(pattern: str) -> str | None:
    """Why a text is no pattern, in words; None where it is one."""
    if pattern in _NEVER:
        return "is not a failure that a policy decides about"
    if _CLASS.fullmatch(pattern):
        return None
    if found := _NUMBERS.fullmatch(pattern):
        low, high = _FAMILIES[found[1]]
        first, last = int(found[2]), int(found[3] or found[2])
        if not low <= first <= high or not low <= last <= high:
            return f"is outside of {found[1]}_{low} to {found[1]}_{high}"
        return "has its range the wrong way round" if last < first else None
    if pattern.partition("_")[0] in _FAMILIES:
        return "is not a pattern of this family"
    good = _RAISED.fullmatch(pattern) or _NAME.fullmatch(pattern)
    return None if good and len(pattern) <= MAX_LENGTH else "is not the name of an outcome"


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern names one of these outcomes."""
    if found := _CLASS.fullmatch(pattern):
        first = int(found[1]) * 100
        family, low, high = "http", first, first + 99
    elif found := _NUMBERS.fullmatch(pattern):
        family, low, high = found[1], int(found[2]), int(found[3] or found[2])
    else:
        return pattern in names
    return any(_within(name, family, low, high) for name in names)


def _within(name: str, family: str, low: int, high: int) -> bool:
    prefix, _, number = name.partition("_")
    return prefix == family and number.isdecimal() and low <= int(number) <= high

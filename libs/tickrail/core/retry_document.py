"""The retry policy as the document of a job has it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tickrail.core.documents import Reader, type_name
from tickrail.core.durations import format_duration
from tickrail.core.errors import Problem
from tickrail.core.outcomes import EXPECTED, MAX_LENGTH, expected, pattern_problem
from tickrail.core.policies import Retry

MAX_PATTERNS = 50
"""So many outcomes each list may name."""


def retry_document(retry: Retry) -> dict[str, Any]:
    """The canonical document."""
    return {
        "max_attempts": retry.max_attempts,
        "initial": format_duration(retry.initial),
        "multiplier": retry.multiplier,
        "max": format_duration(retry.maximum),
        "jitter": retry.jitter,
        "on": list(retry.on),
        "not_on": list(retry.not_on),
    }


def parse_retry(doc: Mapping[str, Any]) -> Retry:
    """The retry policy of a canonical definition, from its member `retry`."""
    return read_retry(Reader({"retry": dict(doc)}))


def read_retry(reader: Reader) -> Retry:
    """The member `retry`; problems go to the reader."""
    r = reader.child("retry")
    value = Retry(
        max_attempts=r.whole("max_attempts", 5, low=1, high=1000),
        initial=r.duration("initial", timedelta(seconds=2), low=timedelta(milliseconds=10)),
        multiplier=r.number("multiplier", 2, low=1, high=100),
        maximum=r.duration(
            "max", timedelta(hours=1), low=timedelta(seconds=1), high=timedelta(days=30)
        ),
        jitter=r.number("jitter", 0.2, low=0, high=0.9),
        on=_patterns(r, "on"),
        not_on=_patterns(r, "not_on"),
    )
    if both := [pattern for pattern in value.on if pattern in value.not_on]:
        r.problem("not_on", f"names {both[0]!r}, which `on` names too", "one of the two")
    reader.absorb(r)
    return value


def _patterns(reader: Reader, field: str) -> tuple[str, ...]:
    if not reader.has(field):
        return ()
    raw = reader.raw(field)
    if not isinstance(raw, list):
        reader.problem(field, f"is {type_name(raw)}", "a list of outcomes: http_404, exit_3, ...")
        return ()
    if len(raw) > MAX_PATTERNS:
        reader.problem(field, f"has {len(raw)} entries", f"at most {MAX_PATTERNS}")
        return ()
    for i, pattern in enumerate(raw):
        if (why := _why_not(pattern)) is not None:
            right = expected(pattern) if isinstance(pattern, str) else EXPECTED
            reader.problems.append(Problem(f"{reader.pointer}/{field}/{i}", why, right))
    return tuple(dict.fromkeys(pattern for pattern in raw if isinstance(pattern, str)))


def _why_not(pattern: object) -> str | None:
    if not isinstance(pattern, str):
        return f"is {type_name(pattern)}"
    why = pattern_problem(pattern)
    return why and f"{pattern[:MAX_LENGTH]!r} {why}"

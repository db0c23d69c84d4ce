"""JSON bodies: read within stated bounds, so that nothing behind has to fear one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from tickrail.core.documents import MAX_DEPTH
from tickrail.core.errors import MalformedError, Problem

MAX_BODY = 1024 * 1024
"""Bytes of a request's body."""

_JSON = re.compile(
    r"(?:application/(?:[a-z0-9.+-]+\+)?json|application/x-www-form-urlencoded|text/plain"
    r"|application/octet-stream)?\s*(?:;.*)?",
    re.IGNORECASE,
)
_SUSPECT = re.compile(rb"\d{16}|[eE]\+?\d{3}")
"""A number that a double may not hold, perhaps: read once more, exactly."""
_LOW, _HIGH = -(2**63), 2**64 - 1


def parse_body(body: bytes, content_type: str | None) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value of a body; None for an empty one.

    Raises:
        MalformedError: not JSON in UTF-8, nested too deeply, or with a number out of range.
    """
    if not body:
        return None
    # `curl -d` calls everything a form; what decides is whether it reads as JSON. A body that says
    # it is something else for a purpose (a file upload, XML) is told so.
    if content_type is not None and not _JSON.fullmatch(content_type.strip()):
        raise MalformedError(f"The content type is {content_type[:100]!r}; send application/json.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        if "depth" in str(e):
            raise _too_deep() from None
        raise MalformedError(f"The body is not valid JSON: {str(e)[:200]}.") from None
    if too_deep(value):
        raise _too_deep()
    if _SUSPECT.search(body):
        value = json.loads(body, parse_int=_whole)
    return value


def too_deep(value: object, limit: int = MAX_DEPTH) -> bool:
    """Whether a JSON value is nested deeper than `limit` levels."""
    level: Sequence[object] = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (
                item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            )
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep() -> MalformedError:
    return MalformedError(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _whole(digits: str) -> int:
    longest = 20
    number = int(digits) if len(digits) <= longest else None
    if number is None or not _LOW <= number <= _HIGH:
        raise MalformedError(
            "The body holds a number out of range.",
            [Problem("", f"{digits[:40]} is too large", "a number of 64 bits, or a string")],
        )
    return number

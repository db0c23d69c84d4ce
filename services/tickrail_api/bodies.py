"""JSON bodies: read within stated bounds, so that nothing behind has to fear one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tickrail.core.documents import MAX_DEPTH
from tickrail.core.errors import InvalidInputError, MalformedError, Problem, TooLargeError

MAX_BODY = 1024 * 1024
"""Bytes of a request's body."""
LARGER_BODIES: Mapping[tuple[str, str], int] = {("POST", "/v1/jobs/batch"): 16 * MAX_BODY}
"""Method and path of the requests that may hold more."""

_JSON = re.compile(
    r"(?:application/(?:[a-z0-9.+-]+\+)?json|application/x-www-form-urlencoded|text/plain"
    r"|application/octet-stream)?\s*(?:;.*)?",
    re.IGNORECASE,
)
MOST_OPENED = 50_000
"""Objects and lists of a body, or one in 16 bytes where that is more. Brackets cost far more to
read than they weigh; those in strings count, too."""
_LONG = re.compile(rb"\d{19}")
"""A whole number that 64 bits may not hold, perhaps."""
_LOW, _HIGH = -(2**63), 2**64 - 1


def parse_body(body: bytes, content_type: str | None) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value of a body; None for an empty one.

    Raises:
        MalformedError: not JSON in UTF-8, nested too deeply, or with a key twice in one object.
        InvalidInputError: a number is out of range.
        TooLargeError: it consists of brackets for the most part.
    """
    if not body:
        return None
    most = max(MOST_OPENED, len(body) // 16)
    opened = body.count(b"[") + body.count(b"{")
    if opened > most:
        raise TooLargeError(f"The body holds more than {most} objects and lists.")
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
    if opened > MAX_DEPTH and too_deep(value):
        raise _too_deep()
    # Read once more: the quick parser takes the last of equal keys and rounds long numbers. What
    # is valid for it is so for this one, and shallow enough.
    whole = _whole if _LONG.search(body) else None
    return json.loads(body, parse_int=whole, object_pairs_hook=_unique)


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


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        twice = next(k for k, n in Counter(k for k, _ in members).items() if n > 1)
        raise MalformedError(
            "The body has a key twice in one object.",
            [Problem("", f"{twice[:100]!r} stands there twice", "each key once")],
        )
    return found


def _whole(digits: str) -> int:
    longest = 20
    number = int(digits) if len(digits) <= longest else None
    if number is None or not _LOW <= number <= _HIGH:
        raise InvalidInputError(
            "The body holds a number out of range.",
            [Problem("", f"{digits[:40]} is too large", "a number of 64 bits, or a string")],
        )
    return number

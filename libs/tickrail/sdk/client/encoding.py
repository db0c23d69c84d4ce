"""Python values as the API takes them: instants, lengths of time, documents, queries, paths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote
from uuid import UUID

from tickrail.core.durations import format_duration


def body_of(document: object) -> bytes:
    """A document as JSON.

    Raises:
        ValueError: an instant without an offset, a negative length of time, NaN.
        TypeError: a value that JSON has no form for.
    """
    return json.dumps(document, default=_plain, ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )


def members_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the members of a document: `from_` is the member `from`."""
    return {name.removesuffix("_"): value for name, value in given.items()}


def query_of(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keyword arguments as the pairs of a query: a list repeats its name, None is left out."""
    for name, value in members_of(given).items():
        many = isinstance(value, Iterable) and not isinstance(value, str)
        for one in value if many else (value,):
            if one is not None:
                yield name, _text(one)


def path_of(template: str, parts: Mapping[str, str]) -> str:
    """A path with its parts put in.

    Raises:
        ValueError: a part is empty, or `.` or `..`, which stand for another path.
    """
    for name, part in parts.items():
        if part in {"", ".", ".."}:
            raise ValueError(f"{name} is {part!r}; an id or a name is needed")
        template = template.replace("{" + name + "}", quote(part, safe=":"))
    return template


def header(name: str, value: str) -> str:
    """A text that goes into a header.

    Raises:
        ValueError: HTTP cannot carry it.
    """
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"{name} has a character that is not visible ASCII")
    return value


def instant_text(instant: datetime) -> str:
    """An instant in RFC 3339, in UTC.

    Raises:
        ValueError: it has no offset.
    """
    if instant.utcoffset() is None:
        raise ValueError(f"{instant.isoformat()} has no offset: use an aware datetime")
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value if isinstance(value, str | int | float) else _plain(value))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")

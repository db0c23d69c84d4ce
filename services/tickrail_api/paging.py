"""Keyset pages: opaque cursors that stay true while rows come and go."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field

from tickrail.core.definition import NAME, TAG_KEY
from tickrail.core.errors import InvalidInputError, NotFoundError, Problem
from tickrail.core.ids import JobId
from tickrail.core.ports_api import JobRef
from tickrail.core.records import PageRequest, Position

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
_LONGEST_CURSOR = 1000
_MOST = 2**15 - 1
"""The highest number in a cursor: partitions and attempts both stay below."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9998, 12, 31, tzinfo=UTC)


class Parameters(BaseModel):
    """Query parameters; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid")


class PageParameters(Parameters):
    """The page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many rows at most.")] = (
        DEFAULT_LIMIT
    )
    cursor: Annotated[
        str | None,
        Field(max_length=_LONGEST_CURSOR, description="`next_cursor` of the page before."),
    ] = None

    def position(self, scope: Sequence[object], arity: int) -> list[Any] | None:
        """What the cursor holds.

        Args:
            scope: what the list is of; a cursor of another list is refused.
            arity: how many values the cursor of this list holds.

        Raises:
            InvalidInputError: the cursor is not one of this list's.
        """
        if self.cursor is None:
            return None
        try:
            raw = base64.b64decode(
                self.cursor + "=" * (-len(self.cursor) % 4), b"-_", validate=True
            )
            found = orjson.loads(raw)
        except (binascii.Error, ValueError):
            raise _bad_cursor() from None
        if not isinstance(found, list) or len(found) != arity + 1 or found[0] != _mark(scope):
            raise _bad_cursor()
        return found[1:]

    def next(self, scope: Sequence[object], values: Sequence[object]) -> str:
        """The cursor for what follows."""
        raw = orjson.dumps([_mark(scope), *values])
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def keyset(
    page: PageParameters,
    sort: str,
    scope: Sequence[object],
    read: Callable[[str], datetime | str],
    read_id: Callable[[str], object] = UUID,
) -> PageRequest:
    """The page request of a list sorted by one key and the id.

    Args:
        page: the parameters.
        sort: the key, with `-` before it for descending.
        scope: what the list is of.
        read: reads the key's value from the cursor.
        read_id: reads the id from the cursor.
    """
    found = page.position(scope, 2)
    after: Position | None = None
    if found is not None:
        try:
            after = Position(read(str(found[0])), str(read_id(str(found[1]))))
        except ValueError:
            raise _bad_cursor() from None
    return PageRequest(sort.removeprefix("-"), not sort.startswith("-"), page.limit, after)


def read_instant(text: str) -> datetime:
    """An instant of a cursor or a filter; one before 1970 or from 9999 on counts as that bound.

    Raises:
        ValueError: it is none.
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError("no offset")
    try:
        found = value.astimezone(UTC)
    except OverflowError:
        raise ValueError("beyond the calendar") from None
    # Nothing lies outside; inside there is room for a tick on either side.
    return min(max(found, _FIRST), _LAST)


def read_name(text: str) -> str:
    """A name of a cursor.

    Raises:
        ValueError: it is none.
    """
    if not NAME.fullmatch(text):
        raise ValueError(text)
    return text


def number_after(
    page: PageParameters, scope: Sequence[object], default: int, most: int = _MOST
) -> int:
    """The number after which a list goes on that is sorted by a number, `most` at most.

    Raises:
        InvalidInputError: the cursor is not one of this list's.
    """
    found = page.position(scope, 1)
    if found is None:
        return default
    if type(found[0]) is not int or not 0 <= found[0] <= most:
        raise _bad_cursor()
    return found[0]


def name_after(page: PageParameters, scope: Sequence[object]) -> str:
    """The name after which a list goes on that is sorted by name; empty for the first page.

    Raises:
        InvalidInputError: the cursor is not one of this list's.
    """
    found = page.position(scope, 1)
    try:
        return "" if found is None else read_name(str(found[0]))
    except ValueError:
        raise _bad_cursor() from None


def listed(items: Sequence[object], next_cursor: str | None) -> Mapping[str, object]:
    """The document of a page."""
    return {"items": items, "next_cursor": next_cursor}


def instant_parameter(name: str, text: str | None) -> datetime | None:
    """An instant of the query.

    Raises:
        InvalidInputError: not RFC 3339 with an offset.
    """
    if text is None:
        return None
    try:
        # A `+` of an offset that was not escaped arrives as a space.
        return read_instant(text.replace(" ", "+"))
    except ValueError:
        raise bad_parameter(
            name, f"is {text[:60]!r}", "an instant with offset: 2026-03-01T09:00:00Z"
        ) from None


def range_parameters(
    low: tuple[str, str | None], high: tuple[str, str | None]
) -> tuple[datetime | None, datetime | None]:
    """The two ends of a range of time, each a parameter's name and text.

    Raises:
        InvalidInputError: one is no instant, or the range ends before it begins.
    """
    since, until = instant_parameter(*low), instant_parameter(*high)
    if since is not None and until is not None and until < since:
        raise bad_parameter(high[0], f"is before {low[0]}", "the same instant or a later one")
    return since, until


def tag_parameters(tags: Sequence[str]) -> list[tuple[str, str | None]]:
    """Tags of the query: `key:value`, or `key` for any value.

    Raises:
        InvalidInputError: not a tag.
    """
    found: list[tuple[str, str | None]] = []
    for tag in tags:
        key, colon, value = tag.partition(":")
        if not TAG_KEY.fullmatch(key) or "\x00" in value:
            raise bad_parameter("tag", f"is {tag[:80]!r}", "key:value, or key for any value")
        found.append((key, value if colon else None))
    return found


def job_ref(text: str) -> JobRef:
    """A job as a path or a parameter names it: its id or `name:<name>`.

    Raises:
        ValueError: neither.
    """
    if text.startswith("name:"):
        name = text.removeprefix("name:")
        if NAME.fullmatch(name):
            return name
        raise ValueError(text)
    return JobId(uuid_of(text))


def uuid_of(text: str) -> UUID:
    """An id in its usual form.

    Raises:
        ValueError: it is none.
    """
    found = UUID(text)
    if str(found) != text.lower():
        raise ValueError(text)
    return found


def path_id(what: str, text: str) -> UUID:
    """The id in a path.

    Raises:
        NotFoundError: what stands there cannot be one.
    """
    try:
        return uuid_of(text)
    except ValueError:
        raise NotFoundError(f"There is no {what} with the id {text[:128]}.") from None


def bad_parameter(name: str, message: str, expected: str) -> InvalidInputError:
    """The error of one query parameter."""
    problem = Problem(f"?{name}", message, expected)
    return InvalidInputError("A query parameter is not valid.", [problem])


def _bad_cursor() -> InvalidInputError:
    return bad_parameter("cursor", "is not one of this list", "next_cursor of the page before")


def _mark(scope: Sequence[object]) -> str:
    """Ties a cursor to its list: another filter or order is another list."""
    raw = orjson.dumps(scope, default=str)
    return hashlib.sha256(raw).hexdigest()[:12]

"""Names that were probably meant where there is nothing of a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import click

from tickrail.sdk.client import ApiError, UnreachableError
from tickrail_cli.context import Context

_NOT_FOUND = 404
_PAGE = 500
_LOOK_THROUGH = 2000
_PREFIX = 3
_NEAREST = 3
_WITHIN = 5.0
"""Seconds for a page of names: a hint is not worth a long wait."""


@contextmanager
def or_near(session: Context, what: str, name: str, path: str) -> Iterator[None]:
    """Calls about something by its name; where there is no such thing, the nearest are named.

    Args:
        session: the command line's session.
        what: such as `calendar`.
        name: the name that was given.
        path: where the list of all of them is.

    Raises:
        click.ClickException: there is nothing of the name.
    """
    try:
        yield
    except ApiError as e:
        if e.status != _NOT_FOUND:
            raise
        hint = nearest_names(session, name, path)
        raise click.ClickException(f"there is no {what} {name!r}{hint}") from None


def nearest_names(
    session: Context, name: str, path: str, *, prefix_filter: str | None = None
) -> str:
    """`; did you mean a or b?`, or nothing; looks through a bounded number of names.

    Args:
        session: the command line's session.
        name: the name that was given.
        path: where the list of all of them is.
        prefix_filter: the list's parameter that keeps to names of a beginning, if it has one:
            those are looked through first, since the list may be longer than the bound.
    """
    asked: list[dict[str, str | int]] = [{"limit": _PAGE}]
    if prefix_filter is not None and name[:_PREFIX]:
        asked.insert(0, {"limit": _PAGE, prefix_filter: name[:_PREFIX]})
    names: dict[str, None] = {}
    try:
        for params in asked:
            pages = session.client().pages(path, params, within=_WITHIN)
            names |= dict.fromkeys(str(item["name"]) for item in islice(pages, _LOOK_THROUGH))
    except (ApiError, UnreachableError):
        pass  # the error itself is told all the same
    near = difflib.get_close_matches(name, names, n=_NEAREST)
    return f"; did you mean {' or '.join(near)}?" if near else ""

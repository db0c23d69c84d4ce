"""`--watch`: shown again and again; redrawn on a terminal, what changed elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import click
import yaml
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from tickrail.sdk.client import UnreachableError
from tickrail_cli.context import Context
from tickrail_cli.output import Column, card_of, dump, print_parts, print_wide, table_of

F = TypeVar("F", bound=Callable[..., Any])
Item = Mapping[str, Any]
Fetch = Callable[[], Sequence[Item]]
Drawn = Callable[[Sequence[Item]], Sequence[RenderableType]]
_POLL = 2.0
_KEYS = ("id", "name", "partition", "at", "version", "attempt")
"""What tells the items of a list apart: the first of these that they have."""


def watch_option(command: F) -> F:
    """The flag `--watch`, handed to the command as `live`."""
    return click.option(
        "--watch", "-w", "live", is_flag=True, help="Go on showing it until Ctrl-C or its end."
    )(command)


def show_items(
    session: Context,
    fetch: Callable[[], Iterable[Item]],
    columns: Sequence[Column],
    *,
    empty: str,
    live: bool,
) -> None:
    """Show a list once, or until Ctrl-C: as a table that is redrawn, or a line for each change.

    Args:
        session: the command line's session.
        fetch: reads the list.
        columns: of the table.
        empty: what to say where the table has no row.
        live: whether to go on.
    """
    if not live:
        session.echo_items(fetch(), columns, empty=empty)
        return

    def drawn(items: Sequence[Item]) -> Sequence[RenderableType]:
        return [table_of(session, items, columns) if items else Text(empty)]

    _go_on(_view(session, drawn, columns), lambda: list(fetch()), lambda _: False)


def show_item(
    session: Context,
    fetch: Callable[[], Item],
    columns: Sequence[Column],
    *,
    live: bool,
    ended: Callable[[Item], bool] = lambda _: False,
) -> Item:
    """Show one thing once, or until it has ended or Ctrl-C, as it was last; see `show_items`."""
    return show_whole(
        session, fetch, lambda found: [card_of(session, found, columns)], live=live, ended=ended
    )


def show_whole(
    session: Context,
    fetch: Callable[[], Item],
    parts: Callable[[Item], Sequence[RenderableType]],
    *,
    live: bool,
    ended: Callable[[Item], bool] = lambda _: False,
) -> Item:
    """As `show_item`, for what people are shown in several texts and tables.

    Args:
        session: the command line's session.
        fetch: reads it.
        parts: the texts and tables, one below the other.
        live: whether to go on.
        ended: whether nothing of it will change any more.
    """
    if not live:
        found = fetch()
        if session.output == "table":
            print_parts(session.console, parts(found))
        else:
            click.echo(dump(found, session.output))
        return found

    def drawn(items: Sequence[Item]) -> Sequence[RenderableType]:
        return parts(items[0])

    [last] = _go_on(_view(session, drawn, None), lambda: [fetch()], lambda items: ended(items[0]))
    return last


def _view(session: Context, drawn: Drawn, columns: Sequence[Column] | None) -> _Screen | _Lines:
    if session.output == "table" and session.console.is_terminal:
        return _Screen(session, drawn)
    return _Lines(session, drawn, columns)


def _go_on(
    view: _Screen | _Lines, fetch: Fetch, ended: Callable[[Sequence[Item]], bool]
) -> Sequence[Item]:
    """Fetch and show until the end, or Ctrl-C; an API that is away is waited for."""
    items, moment = fetch(), threading.Event()  # what is wrong at first ends the command
    with view:
        try:
            view.show(items)
            while not ended(items):
                moment.wait(_POLL)
                try:
                    items = fetch()
                except UnreachableError as e:
                    view.say(f"{e}; waiting")
                else:
                    view.show(items)
        except KeyboardInterrupt:
            pass
    return items


class _Screen:
    """A terminal: what is shown is drawn over what was."""

    def __init__(self, session: Context, drawn: Drawn) -> None:
        self._drawn = drawn
        self._last: RenderableType = Text("")
        self._live = Live(console=session.console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, items: Sequence[Item]) -> None:
        """Draw these."""
        self._last = Group(*self._drawn(items))
        self._live.update(self._last, refresh=True)

    def say(self, note: str) -> None:
        """Draw a note below what was shown last."""
        self._live.update(Group(self._last, Text(note, style="yellow")), refresh=True)


class _Lines:
    """A pipe: what is new or different is printed, without headings; or a document for each."""

    def __init__(self, session: Context, drawn: Drawn, columns: Sequence[Column] | None) -> None:
        self._session = session
        self._drawn = drawn
        self._columns = columns
        self._changes = Changes()
        self._said = ""
        self._empty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, items: Sequence[Item]) -> None:
        """Print what of these is new or different."""
        self._said = ""
        changed = self._changes.of(items)
        if self._session.output == "json":
            for item in changed:
                click.echo(json.dumps(item, ensure_ascii=False))
        elif self._session.output == "yaml":
            for item in changed:
                text = yaml.safe_dump(dict(item), sort_keys=False, explicit_start=True)
                click.echo(text, nl=False)
        elif self._columns is None:
            for item in changed:
                print_parts(self._session.console, self._drawn([item]))
        elif not items and not self._empty:
            print_parts(self._session.console, self._drawn([]))
        elif changed:
            table = table_of(self._session, changed, self._columns)
            table.show_header = False
            print_wide(self._session.console, table)
        self._empty = not items

    def say(self, note: str) -> None:
        """Say it once on standard error."""
        if note != self._said:
            click.echo(note, err=True)
        self._said = note


class Changes:
    """What is new or different among items since they were looked at last."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def of(self, items: Iterable[Item]) -> list[Item]:
        """The items that were not there, or were otherwise; the oldest first."""
        now = {_key(item): (json.dumps(item, sort_keys=True), item) for item in items}
        found = [item for key, (text, item) in now.items() if self._seen.get(key) != text]
        self._seen = {key: text for key, (text, _) in now.items()}
        return found[::-1]


def _key(item: Item) -> str:
    return next((str(item[name]) for name in _KEYS if item.get(name) is not None), "")

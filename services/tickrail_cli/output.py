"""Answers as tables for people, and as JSON or YAML for programs (the API's own field names)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

import click
import yaml
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tickrail_cli.context import Context

STATE_STYLES = {
    "active": "green",
    "succeeded": "green",
    "launched": "green",
    "running": "cyan",
    "queued": "blue",
    "due": "blue",
    "held": "blue",
    "upcoming": "blue",
    "retrying": "yellow",
    "paused": "yellow",
    "skipped": "yellow",
    "expired": "yellow",
    "cancelled": "yellow",
    "dead": "bold red",
    "abandoned": "bold red",
    "owned": "green",
    "moving": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "drain_ignored": "bold red",
    "fence_behind": "yellow",
    "unplannable": "bold red",
    "unowned": "bold red",
    "fence_ahead": "bold red",
    "absent": "dim",
    "finished": "dim",
    "deleted": "dim",
}


@dataclass(frozen=True)
class Column:
    """A column of a table, or a line of a card.

    Attributes:
        title: its heading.
        value: picks the value out of an item: a field's name, `a.b` inside, or a function.
        kind: `text`, `time` or `state`.
    """

    title: str
    value: str | Callable[[Mapping[str, Any]], object]
    kind: str = "text"

    def of(self, item: Mapping[str, Any]) -> object:
        """The value of an item; None where it has none."""
        if callable(self.value):
            return self.value(item)
        found: Any = item
        for part in self.value.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def dump(answer: object, form: str) -> str:
    """The answer as JSON or YAML."""
    if form == "yaml":
        return yaml.safe_dump(answer, sort_keys=False, allow_unicode=True).rstrip("\n")
    return json.dumps(answer, indent=2, ensure_ascii=False)


def echo_items(
    session: Context, items: list[Mapping[str, Any]], columns: list[Column], empty: str
) -> None:
    """See `Context.echo_items`."""
    if session.output != "table":
        click.echo(dump({"items": items}, session.output))
        return
    if not items:
        session.console.print(empty, markup=False)
        return
    print_wide(session.console, table_of(session, items, columns))


def table_of(
    session: Context, items: Iterable[Mapping[str, Any]], columns: Iterable[Column]
) -> Table:
    """Items as rows of a table."""
    shown = list(columns)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in shown:
        table.add_column(column.title, overflow="fold", no_wrap=column.kind != "text")
    for item in items:
        table.add_row(*(cell(column, item, utc=session.utc) for column in shown))
    return table


def print_wide(console: Console, table: Table) -> None:
    """Print a table; where nobody sees it (a pipe), as wide as it needs."""
    if console.is_terminal:
        console.print(table)
    else:
        wide = Console(file=console.file, width=max(console.width, 400), highlight=False)
        for line in wide.render_lines(table, pad=False):
            console.file.write("".join(s.text for s in line).rstrip() + "\n")


def print_parts(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print texts and tables one below the other."""
    for part in parts:
        if isinstance(part, Table):
            print_wide(console, part)
        else:
            console.print(part, markup=False, soft_wrap=True)


def echo_item(session: Context, item: Mapping[str, Any], columns: list[Column]) -> None:
    """See `Context.echo_item`."""
    if session.output != "table":
        click.echo(dump(item, session.output))
        return
    session.console.print(card_of(session, item, columns), soft_wrap=True)


def card_of(session: Context, item: Mapping[str, Any], columns: Sequence[Column]) -> Text:
    """One thing: its fields one below the other; those that say nothing are left out."""
    width = max(len(column.title) for column in columns)
    lines = []
    for column in columns:
        if column.of(item) not in (None, "", [], {}):
            line = Text(f"{column.title:<{width}}  ", style="bold")
            lines.append(line.append_text(cell(column, item, utc=session.utc)))
    return Text("\n").join(lines)


def cell(column: Column, item: Mapping[str, Any], *, utc: bool) -> Text:
    """One value as a person reads it."""
    value = column.of(item)
    if value is None or value == "":
        return Text("-", style="dim")
    if column.kind == "time":
        return Text(local_time(str(value), utc=utc), style="default")
    if column.kind == "state":
        return Text(str(value), style=STATE_STYLES.get(str(value), "default"))
    if isinstance(value, Mapping | list):
        return Text(json.dumps(value, ensure_ascii=False), style="default")
    return Text(printable(str(value)), style="default")


def printable(text: str) -> str:
    """The text without what would move the cursor or change colours."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def local_time(text: str, *, utc: bool, zone: tzinfo | None = None) -> str:
    """An instant of the API in the local zone (or UTC, or the one given), to the second.

    A text that is no instant comes back as it is.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return printable(text)
    shown = at.astimezone(UTC if utc else zone)
    return shown.strftime("%Y-%m-%d %H:%M:%S") + ("Z" if utc else "")

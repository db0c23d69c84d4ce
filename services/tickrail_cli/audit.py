"""`tickrail audit`: who changed what."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.output import Column

F = TypeVar("F", bound=Callable[..., Any])

_PAGE = 500
_LOG = "/v1/audit-log"
LIST = (
    Column("at", "at", "time"),
    Column("actor", "actor"),
    Column("action", "action"),
    Column("subject", "subject"),
    Column("from", "address"),
    Column("request", "request_id"),
)
_FILTERS = {
    "actor": "actor",
    "action": "action",
    "subject": "subject",
    "request": "request_id",
    "since": "from",
    "until": "to",
}
"""Option -> parameter of the API."""


@click.group(cls=NearGroup)
def audit() -> None:
    """Show who changed what: keys, tokens, operators.

    An operator who names no tenant sees the installation's entries.
    """


def _filters(command: F) -> F:
    """The options that say which entries."""
    for option in (
        click.option("--to", "until", metavar="INSTANT", help="up to here, not included."),
        click.option("--from", "since", metavar="INSTANT", help="From this instant on,"),
        click.option("--request", metavar="ID", help="By this request."),
        click.option("--subject", metavar="WHAT", help="job:<id>, secret:<name>, ..."),
        click.option("--action", metavar="NAME", help="job.create, launch.cancel, ..."),
        click.option("--actor", metavar="WHO", help="key:<id> and the like."),
    ):
        command = option(command)
    return command


@audit.command("list")
@_filters
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def list_entries(session: Context, /, *, limit: int, live: bool, **filters: str | None) -> None:
    """List entries, the newest first. What was before and after is in --output json."""
    params = {**_params(filters), "limit": min(limit, _PAGE)}
    show_items(
        session,
        lambda: islice(session.client().pages(_LOG, params), limit),
        LIST,
        empty="No entries.",
        live=live,
    )


@audit.command("export")
@_filters
@click.option("-f", "--file", metavar="FILE", default="-", help="Write to a file, not stdout.")
@shared_options
@pass_session
def export_entries(session: Context, /, *, file: str, **filters: str | None) -> None:
    """Print every entry as a line of JSON (NDJSON), the oldest first."""
    params = {**_params(filters), "limit": _PAGE, "sort": "at"}
    count = 0
    with _sink(file) as sink:
        for entry in session.client().pages(_LOG, params):
            sink.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    if file != "-":
        session.done(f"Wrote {count} entr{'y' if count == 1 else 'ies'} to {file}.")


def _params(filters: Mapping[str, str | None]) -> dict[str, str | int]:
    return {_FILTERS[name]: value for name, value in filters.items() if value is not None}


@contextmanager
def _sink(file: str) -> Iterator[IO[str]]:
    if file == "-":
        yield sys.stdout
        return
    try:
        with Path(file).open("w", encoding="utf-8") as sink:
            yield sink
    except OSError as e:
        raise click.ClickException(f"{file} cannot be written: {e.strerror}") from None

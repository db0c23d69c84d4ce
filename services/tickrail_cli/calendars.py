"""`tickrail calendars`: named times that jobs leave out, or keep to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import click

from tickrail.formats import decode_icalendar
from tickrail.sdk.client import ApiError
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_document, read_text
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.names import CALENDAR
from tickrail_cli.near import nearest_names, or_near
from tickrail_cli.output import Column

_PAGE = 500
_ONE = {
    "dates": "date",
    "yearly": "yearly",
    "weekdays": "weekday",
    "windows": "window",
    "events": "event",
}
_KINDS = tuple(_ONE)
_NOT_FOUND = 404
_SHOWN = 10


def entries(calendar: Mapping[str, Any]) -> str:
    """How many entries of each kind."""
    counts = {kind: len(calendar.get(kind) or ()) for kind in _KINDS}
    return ", ".join(
        f"{n} {_ONE[kind] if n == 1 else kind}" for kind, n in counts.items() if n
    ) or ("empty")


def listed(kind: str, calendar: Mapping[str, Any]) -> object:
    """The entries of a kind; names and days without the marks of JSON."""
    found = calendar.get(kind)
    plain = isinstance(found, list) and all(isinstance(entry, str) for entry in found)
    return ", ".join(found) if found and plain else found


LIST = (
    Column("name", "name"),
    Column("version", "version"),
    Column("time zone", "time_zone"),
    Column("entries", entries),
    Column("changed", "updated_at", "time"),
    Column("description", "description"),
)
CARD = (
    Column("name", "name"),
    Column("version", "version"),
    Column("description", "description"),
    Column("time zone", "time_zone"),
    *(Column(kind, partial(listed, kind)) for kind in _KINDS),
    Column("created", "created_at", "time"),
    Column("changed", "updated_at", "time"),
)


@click.group(cls=NearGroup)
def calendars() -> None:
    """List, put and delete calendars: named times that jobs leave out, or keep to."""


def calendar_path(name: str) -> str:
    """The path of a calendar."""
    return f"/v1/calendars/{quote(name, safe='')}"


@calendars.command("list")
@watch_option
@shared_options
@pass_session
def list_calendars(session: Context, /, *, live: bool) -> None:
    """List calendars."""
    show_items(
        session,
        lambda: session.client().pages("/v1/calendars", {"limit": _PAGE}),
        LIST,
        empty="No calendars. `tickrail calendars put -f` makes one.",
        live=live,
    )


@calendars.command("get")
@click.argument("name", type=CALENDAR)
@watch_option
@shared_options
@pass_session
def get_calendar(session: Context, /, *, name: str, live: bool) -> None:
    """Show one calendar."""

    def found() -> Mapping[str, Any]:
        with or_near(session, "calendar", name, "/v1/calendars"):
            answer: Mapping[str, Any] = session.client().request("GET", calendar_path(name))
        return answer

    show_item(session, found, CARD, live=live)


def _put(command: Any) -> Any:  # noqa: ANN401 - a function that click reads
    """The options of what puts a calendar."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show which runs would move; change nothing."),
        click.option(
            "--if-version", type=click.IntRange(1), help="Only if it is at this version now."
        ),
    ):
        command = option(command)
    return command


def _send(
    session: Context,
    name: str,
    document: Mapping[str, Any],
    *,
    dry_run: bool,
    if_version: int | None,
) -> None:
    headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
    sent = dict(document) | ({"dry_run": True} if dry_run else {})
    answer = session.client().request("PUT", calendar_path(name), json=sent, headers=headers)
    session.done(_said(session, answer, dry_run=dry_run), answer)


def _said(session: Context, answer: Mapping[str, Any], *, dry_run: bool) -> str:
    """What was done, or would be, and which runs move."""
    moved = answer["moved"]
    would = "Would put" if dry_run else "Put"
    lines = [f"{would} {answer['name']}, version {answer['version']}: {entries(answer)}."]
    if moved["jobs"]:
        what = "1 job moves" if moved["jobs"] == 1 else f"{moved['jobs']} jobs move"
        lines.append(f"{what}{':' if moved['items'] else '.'}")
    for item in moved["items"][:_SHOWN]:
        before, after = (session.time(item["next_run_at"][k]) for k in ("before", "after"))
        added = len(item["added"])
        slots = f"{added} slot{'s' * (added != 1)} added, {len(item['removed'])} removed"
        ended = ", no run is left" if item["state"] == "finished" else ""
        lines.append(f"  {item['job']['name']}: next run {before} -> {after}{ended}; {slots}")
    if moved["jobs"] > _SHOWN:
        lines.append(f"  and {moved['jobs'] - _SHOWN} more (--output json lists a hundred)")
    return "\n".join(lines)


@calendars.command("put")
@click.argument("name", type=CALENDAR, required=False)
@click.option(
    "-f", "--file", metavar="FILE", required=True, help="Its document, JSON or YAML; - for stdin."
)
@_put
@shared_options
@pass_session
def put_calendar(
    session: Context, /, *, name: str | None, file: str, dry_run: bool, if_version: int | None
) -> None:
    """Make or replace a calendar; NAME, where the document has none."""
    document = read_document(file)
    if not isinstance(document, dict):
        raise click.ClickException(f'{file}: a calendar is an object, such as {{"dates": [...]}}')
    named = name or document.get("name")
    if not isinstance(named, str):
        raise click.UsageError("give a NAME, or a document with a name")
    _send(session, named, document, dry_run=dry_run, if_version=if_version)


# The word for the same thing where documents are kept in files.
calendars.add_command(put_calendar, "apply")


@calendars.command("import")
@click.argument("file")
@click.argument("name", type=CALENDAR)
@click.option("--tz", metavar="ZONE", help="Zone of days and times that name none; the file's.")
@_put
@shared_options
@pass_session
def import_calendar(
    session: Context,
    /,
    *,
    file: str,
    name: str,
    tz: str | None,
    dry_run: bool,
    if_version: int | None,
) -> None:
    """Make or replace a calendar from an iCalendar FILE (.ics); - for stdin."""
    document = {"icalendar": read_text(file, decode_icalendar)} | ({"time_zone": tz} if tz else {})
    _send(session, name, document, dry_run=dry_run, if_version=if_version)


@calendars.command("delete")
@click.argument("name", type=CALENDAR, nargs=-1, required=True)
@yes_option
@shared_options
@pass_session
def delete_calendar(session: Context, /, *, name: tuple[str, ...], yes: bool) -> None:
    """Delete calendars that no job uses."""
    confirm(f"Delete {named('calendar', name)}?", yes=yes)
    for one in name:
        # The API answers the same where there is none: it was deleted, or its name is misspelt.
        if _is_there(session, one):
            session.client().request("DELETE", calendar_path(one))
            session.done(f"Deleted {one}.")
        else:
            near = nearest_names(session, one, "/v1/calendars")
            session.done(f"There is no calendar {one}: nothing to delete{near or '.'}")


def _is_there(session: Context, name: str) -> bool:
    try:
        session.client().request("GET", calendar_path(name))
    except ApiError as e:
        if e.status != _NOT_FOUND:
            raise
        return False
    return True

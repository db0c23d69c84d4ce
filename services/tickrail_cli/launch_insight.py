"""`tickrail launches log | explain`: a launch from inside."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click
from rich.text import Text

from tickrail.core.definition import NAME
from tickrail.sdk.client import UnreachableError
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.follow import ENDED
from tickrail_cli.jobs import is_id, on_job
from tickrail_cli.live import show_whole, watch_option
from tickrail_cli.names import JOB
from tickrail_cli.output import STATE_STYLES, local_time, printable

_POLL = 0.5
_CUT = "\ufffd"
_MARKS = {True: ("+", "green"), False: ("-", "bold red"), None: (" ", "dim")}


def launch_path(launch: str, rest: str = "") -> str:
    """The path of a launch."""
    return f"/v1/launches/{quote(launch, safe='')}{rest}"


def launch_named(session: Context, launch: str) -> str:
    """The id of a launch: as given, or that of the newest launch of a job of this name.

    Raises:
        click.ClickException: there is no such job, or it has no launch.
    """
    if is_id(launch) or not NAME.fullmatch(launch):
        return launch
    job = on_job(session, launch)
    found = session.client().request("GET", "/v1/launches", params={"job": job["id"], "limit": 1})
    if not found["items"]:
        raise click.ClickException(f"the job {launch} has no launch yet")
    newest: str = found["items"][0]["id"]
    return newest


@click.command()
@click.argument("launch", type=JOB)
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt; default: the last one.")
@click.option("--follow", is_flag=True, help="Go on until the attempt has ended.")
@shared_options
@pass_session
def log(session: Context, /, *, launch: str, attempt: int | None, follow: bool) -> None:
    """Show what an attempt of LAUNCH printed: the end of it, at most 64 KiB.

    LAUNCH is an id, or a job's name for its newest launch.
    """
    launch = launch_named(session, launch)
    path, params = launch_path(launch, "/log"), {"attempt": attempt} if attempt else None
    found = session.client().request("GET", path, params=params)
    if session.output != "table":
        while follow and found["live"]:
            threading.Event().wait(_POLL)
            found = session.client().request("GET", path, params=params)
        session.done("", found)
        return
    if not found["attempt"]:
        click.echo("No attempt yet.", err=True)
        if not follow:
            return
    if found["truncated"]:
        click.echo(f"(the end of {found['size']} bytes)", err=True)
    for piece in _pieces(session, path, params, found) if follow else [found["body"]]:
        click.echo(_shown(piece), nl=False)


def _pieces(
    session: Context, path: str, params: Mapping[str, Any] | None, first: Mapping[str, Any]
) -> Iterator[str]:
    """What is new in a log, again and again, until nothing more comes or Ctrl-C."""
    moment, found, shown, away = threading.Event(), first, "", False
    number = first["attempt"]
    try:
        while True:
            body = str(found["body"])
            if found["live"]:
                # A character whose last bytes have not come yet is shown with them.
                body = body.rstrip(_CUT)
            yield new_text(shown, body)
            shown = body
            if not found["live"] and found["attempt"]:
                return
            moment.wait(_POLL)
            try:
                asked = {"attempt": number} if number else params
                found = session.client().request("GET", path, params=asked)
                number, away = found["attempt"], False
            except UnreachableError as e:
                if not away:
                    click.echo(f"{e}; waiting", err=True)
                away = True
    except KeyboardInterrupt:
        return


def new_text(before: str, after: str) -> str:
    """What a tail that was `before` has more now; all of it where nothing fits together."""
    if after.startswith(before) or not after:
        return after[len(before) :]
    return after[_overlap(before[-len(after) :], after) :]


def _overlap(before: str, after: str) -> int:
    """The length of the longest end of one text that the other begins with (Knuth-Morris-Pratt)."""
    borders = [0] * len(after)
    size = 0
    for i in range(1, len(after)):
        while size and after[i] != after[size]:
            size = borders[size - 1]
        size += after[i] == after[size]
        borders[i] = size
    size = 0
    for c in before:
        while size and (size == len(after) or c != after[size]):
            size = borders[size - 1]
        size += c == after[size]
    return size


def _shown(text: str) -> str:
    """The output without what would move the cursor; tabs stay."""
    return "\t".join(printable(part) for part in text.split("\t"))


@click.command()
@click.argument("launch", type=JOB)
@watch_option
@shared_options
@pass_session
def explain(session: Context, /, *, launch: str, live: bool) -> None:
    """Say why LAUNCH stands where it stands, or how it ended.

    LAUNCH is an id, or a job's name for its newest launch.
    """
    path = launch_path(launch_named(session, launch), "/explain")
    show_whole(
        session,
        lambda: session.client().request("GET", path),
        lambda found: _explained(session, found),
        live=live,
        ended=lambda found: found["state"] in ENDED,
    )


def _explained(session: Context, found: Mapping[str, Any]) -> Sequence[Text]:
    """Where it stands, and a line for each check."""
    state = str(found["state"])
    head = Text(f"{found['launch']} is ")
    head.append(state, style=STATE_STYLES.get(state, "default"))
    ended = found["ended"]
    if ended is not None:
        when = f" at {local_time(ended['at'], utc=session.utc)}" if ended["at"] else ""
        head.append(f"{when}: {printable(str(ended['detail']))}")
    lines = [head]
    width = max((len(c["check"]) for c in found["checks"]), default=0)
    for check in found["checks"]:
        holds = check["check"] == found["holds"]
        mark, style = _MARKS[check["ok"]]
        line = Text("> " if holds else "  ", style="bold")
        line.append(f"{mark} {check['check']:<{width}}  ", style=style)
        line.append(printable(str(check["detail"])), style="bold" if holds else "default")
        if check["until"]:
            line.append(f" ({local_time(check['until'], utc=session.utc)})", style="dim")
        lines.append(line)
    return lines

"""`tickrail launches`: watch, read and cancel launches (their insides in launch_insight.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from itertools import islice
from typing import Any

import click
import yaml
from rich.text import Text

from tickrail.core.states import State
from tickrail.sdk.client import ApiError, Client, UnreachableError
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import read_document
from tickrail_cli.follow import ENDED, Change, Follower
from tickrail_cli.jobs import on_job
from tickrail_cli.launch_insight import explain, launch_named, launch_path, log
from tickrail_cli.live import show_item, show_items, watch_option
from tickrail_cli.names import JOB, QUEUE
from tickrail_cli.output import STATE_STYLES, Column, local_time, printable

_PAGE = 500
_POLL = 1.0
_NOT_FOUND = 404
_LINE = 60
"""Characters of a result in a table."""
STATES = (*(s.value for s in State), "retrying")


def result(launch: Mapping[str, Any]) -> str:
    """How the last attempt ended."""
    found = launch.get("result") or {}
    said = [str(found[k]) for k in ("outcome", "message") if found.get(k)]
    return ": ".join(said)


def short_result(launch: Mapping[str, Any]) -> str:
    """The same for a line of a table; `get` shows the whole."""
    text = result(launch)
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


def attempt(launch: Mapping[str, Any]) -> str:
    """Which attempt of how many; after a redrive, which of how many failures besides."""
    number, most = launch.get("attempt", 1), launch.get("max_attempts", "?")
    if launch.get("redrive_count"):
        return f"{number} ({launch['failures']} of {most} failures)"
    return f"{number} of {most}"


LIST = (
    Column("scheduled", "scheduled_at", "time"),
    Column("job", "job.name"),
    Column("state", "state", "state"),
    Column("attempt", attempt),
    Column("started", "started_at", "time"),
    Column("finished", "finished_at", "time"),
    Column("result", short_result),
    Column("id", "id"),
)
CARD = (
    Column("id", "id"),
    Column("job", "job.name"),
    Column("version", "job.version"),
    Column("origin", "origin"),
    Column("state", "state", "state"),
    Column("attempt", attempt),
    Column("failures", "failures"),
    Column("scheduled", "scheduled_at", "time"),
    Column("due", "due_at", "time"),
    Column("created", "created_at", "time"),
    Column("queued", "queued_at", "time"),
    Column("started", "started_at", "time"),
    Column("finished", "finished_at", "time"),
    Column("next attempt", "next_attempt_at", "time"),
    Column("queue", "queue"),
    Column("priority", "priority"),
    Column("worker", "worker"),
    Column("claim", "claim"),
    Column("progress", "progress"),
    Column("result", result),
    Column("value", "result.value"),
    Column("answer", "result.body"),
)
ATTEMPTS = (
    Column("attempt", "attempt"),
    Column("outcome", "outcome", "state"),
    Column("code", "code"),
    Column("started", "started_at", "time"),
    Column("finished", "finished_at", "time"),
    Column("worker", "worker"),
    Column("message", "message"),
    Column("told too late", "stale_result.outcome"),
)


@click.group(cls=NearGroup)
def launches() -> None:
    """Watch, read and cancel launches."""


for _command in (log, explain):
    launches.add_command(_command)


@launches.command("list")
@click.option("--job", type=JOB, metavar="JOB", help="Only those of this job (name or id).")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--tag", multiple=True, metavar="KEY:VALUE", help="Only of jobs with this tag.")
@click.option("--queue", type=QUEUE, metavar="NAME", help="Only of this queue.")
@click.option("--from", "from", metavar="INSTANT", help="Only those scheduled then or later.")
@click.option("--to", metavar="INSTANT", help="Only those scheduled before.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option(
    "--follow",
    is_flag=True,
    help="Go on, a line for each start and each end; what was shown is followed to its end.",
)
@watch_option
@shared_options
@pass_session
def list_launches(
    session: Context,
    /,
    *,
    job: str | None,
    tag: tuple[str, ...],
    limit: int,
    follow: bool,
    live: bool,
    **given: str | None,
) -> None:
    """List launches, the newest first."""
    params: dict[str, Any] = {"limit": min(limit, _PAGE)}
    params.update({name: value for name, value in given.items() if value})
    if job:
        params["job"] = on_job(session, job)["id"]
    if tag:
        params["tag"] = list(tag)
    if follow and live:
        raise click.UsageError("--follow tells of each change, --watch redraws the list; give one")
    if follow:
        _follow(session, params)
        return
    show_items(
        session,
        lambda: islice(session.client().pages("/v1/launches", params), limit),
        LIST,
        empty="No launches yet.",
        live=live,
    )


def _follow(session: Context, params: Mapping[str, Any]) -> None:
    """Show changes until Ctrl-C; waits for an API that is away."""
    client = session.client()
    follower = Follower(
        newest=lambda: client.pages("/v1/launches", {**params, "limit": _PAGE}),
        one=lambda launch: _one(client, launch),
    )
    moment = threading.Event()
    away = False
    _note(session, "Following launches; Ctrl-C ends it.")
    try:
        while True:
            try:
                changes = follower.poll()
            except UnreachableError as e:
                if not away:
                    _note(session, f"{e}; waiting")
                away, changes = True, []
            else:
                if away:
                    _note(session, "The API answers again.")
                away = False
            for change in changes:
                _say(session, change)
            moment.wait(_POLL)
    except KeyboardInterrupt:
        return


def _one(client: Client, launch: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = client.request("GET", launch_path(launch))
    except ApiError as e:
        if e.status != _NOT_FOUND:
            raise
        return None
    return found


def _note(session: Context, text: str) -> None:
    """Say something that is no launch: to people only."""
    if session.output == "table":
        click.echo(text, err=True)


def _say(session: Context, change: Change) -> None:
    launch = change.launch
    if session.output == "json":
        click.echo(json.dumps(launch, ensure_ascii=False))
        return
    if session.output == "yaml":
        click.echo(yaml.safe_dump(launch, sort_keys=False, explicit_start=True), nl=False)
        return
    line = Text(local_time(change.at.isoformat() if change.at else "-", utc=session.utc))
    line.append(f"  {change.state:<10}", style=STATE_STYLES.get(change.state, "default"))
    line.append(f" {printable(str(launch['job']['name']))}", style="bold")
    line.append(f"  attempt {attempt(launch)}")
    if change.ended and result(launch):
        line.append(f"  {printable(result(launch))}")
    line.append(f"  {launch['id']}", style="dim")
    session.console.print(line, soft_wrap=True)


@launches.command("get")
@click.argument("launch", type=JOB)
@watch_option
@shared_options
@pass_session
def get_launch(
    session: Context,
    /,
    *,
    launch: str,
    live: bool,
) -> None:
    """Show one launch, or the newest of a job whose name is given."""
    launch = launch_named(session, launch)
    show_item(
        session,
        lambda: session.client().request("GET", launch_path(launch)),
        CARD,
        live=live,
        ended=lambda found: found["state"] in ENDED,
    )


@launches.command("cancel")
@click.argument("launch", nargs=-1, required=True)
@shared_options
@pass_session
def cancel_launch(session: Context, /, *, launch: tuple[str, ...]) -> None:
    """Cancel launches; what runs is asked to stop."""
    for one in launch:
        answer = session.client().request("POST", launch_path(one, "/cancel"))
        asked = answer.get("state") != "cancelled"
        session.done(f"{'Asked to stop' if asked else 'Cancelled'} {one}.", answer)


@launches.command("redrive")
@click.argument("launch", nargs=-1, required=True)
@click.option("--payload", metavar="FILE", help="Instead of its own; `-` is standard input.")
@click.option(
    "--expected", type=click.IntRange(0), metavar="N", help="Only if it was redriven so often."
)
@shared_options
@pass_session
def redrive_launch(
    session: Context, /, *, launch: tuple[str, ...], payload: str | None, expected: int | None
) -> None:
    """Give dead and abandoned launches another life, with all their attempts."""
    body: dict[str, Any] = {} if expected is None else {"expected_redrive_count": expected}
    if payload is not None:
        body["payload"] = read_document(payload)
    for one in launch:
        answer = session.client().request("POST", launch_path(one, "/redrive"), json=body)
        session.done(f"Redriven {one}: it is {answer['state']} at attempt {answer['attempt']}.",
                     answer)  # fmt: skip


@launches.command("attempts")
@click.argument("launch", type=JOB)
@watch_option
@shared_options
@pass_session
def launch_attempts(session: Context, /, *, launch: str, live: bool) -> None:
    """Show how each attempt of a launch ended, or of the newest of a job whose name is given."""
    path = launch_path(launch_named(session, launch), "/attempts")
    show_items(
        session, lambda: session.client().pages(path), ATTEMPTS, empty="No attempt yet.", live=live
    )

"""`tickrail jobs backfill` and `tickrail backfills`: launch slots of the past."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import click

from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.files import parse_json
from tickrail_cli.jobs import job_path, jobs, on_job
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.names import JOB
from tickrail_cli.output import Column
from tickrail_cli.watching import watch

_PAGE = 500


def launches(backfill: Mapping[str, Any]) -> str:
    """Its launches by state."""
    return ", ".join(f"{n} {state}" for state, n in sorted(backfill["launches"].items()))


def progress(backfill: Mapping[str, Any]) -> str:
    """How far it is, in a line."""
    left = f", {backfill['left_alone']} left alone" if backfill["left_alone"] else ""
    stand = f" ({launches(backfill)})" if backfill["launches"] else ""
    return (
        f"{backfill['state']}: {backfill['launched']} of {backfill['total']} slots launched"
        f"{stand}{left}, {backfill['remaining']} to come"
    )


LIST = (
    Column("created", "created_at", "time"),
    Column("state", "state", "state"),
    Column("from", "from", "time"),
    Column("until", "until", "time"),
    Column("slots", "total"),
    Column("launched", "launched"),
    Column("left alone", "left_alone"),
    Column("to come", "remaining"),
    Column("id", "id"),
)
CARD = (
    Column("id", "id"),
    Column("job", "job.name"),
    Column("state", "state", "state"),
    Column("from", "from", "time"),
    Column("until", "until", "time"),
    Column("order", "order"),
    Column("existing", "existing"),
    Column("per minute", "per_minute"),
    Column("at most", "max_count"),
    Column("open at most", "max_open"),
    Column("reason", "reason"),
    Column("slots", "total"),
    Column("launched", "launched"),
    Column("left alone", "left_alone"),
    Column("to come", "remaining"),
    Column("launches", launches),
    Column("by", "created_by"),
    Column("created", "created_at", "time"),
    Column("finished", "finished_at", "time"),
)
PREVIEW = (
    Column("due", "at", "time"),
    Column("launch", "launch.state", "state"),
    Column("id", "launch.id"),
)


@jobs.command("backfill")
@click.argument("job", type=JOB)
@click.option("--from", "from_", metavar="INSTANT", required=True, help="The first instant.")
@click.option(
    "--until", "--to", "until", metavar="INSTANT", required=True, help="The end, not included."
)
@click.option("--order", type=click.Choice(["oldest", "newest"]), help="Which end comes first.")
@click.option("--per-minute", type=click.IntRange(1), metavar="N", help="Launches a minute.")
@click.option("--max-count", type=click.IntRange(1), metavar="N", help="Launches at most.")
@click.option("--max-open", type=click.IntRange(1), metavar="N", help="Open at once at most.")
@click.option("--launch-again", is_flag=True, help="Also slots that have a launch already.")
@click.option("--payload", metavar="JSON", help="Instead of the job's own.")
@click.option("--reason", metavar="TEXT")
@click.option("--dry-run", is_flag=True, help="Only show what would be launched.")
@click.option("--watch", "follow", is_flag=True, help="Wait until it has finished.")
@shared_options
@pass_session
def backfill_job(
    session: Context,
    /,
    *,
    job: str,
    from_: str,
    launch_again: bool,
    payload: str | None,
    dry_run: bool,
    follow: bool,
    **given: str | int | None,
) -> None:
    """Launch the slots of a past range, behind live launches."""
    body: dict[str, Any] = {"from": from_, **{k: v for k, v in given.items() if v is not None}}
    if launch_again:
        body["existing"] = "launch"
    if payload is not None:
        body["payload"] = parse_json(payload, "--payload")
    if dry_run:
        _show(session, on_job(session, job, "POST", "/backfills", json={**body, "dry_run": True}))
        return
    made = on_job(session, job, "POST", "/backfills", json=body)
    if follow:
        ended = watch(session, backfill_path(made["id"]), progress)
        session.done(f"Backfill {made['id']} is {progress(ended)}.", ended)
        return
    session.done(
        f"Backfilling {made['job']['name']}: {made['total']} slots;"
        f" `tickrail backfills get {made['id']}` shows how far it is.",
        made,
    )


def _show(session: Context, preview: Mapping[str, Any]) -> None:
    if session.output != "table":
        session.done("", preview)
        return
    session.echo_items(preview["items"], PREVIEW, empty="No slots in this range.")
    count, total = preview["to_launch"], preview["total"]
    if total:
        which = f"{total} slots" if count is None else f"{count} of {total} slots"
        more = (
            f" (the first {len(preview['items'])} shown)" if total > len(preview["items"]) else ""
        )
        session.done(f"{which} would be launched{more}.")


def backfill_path(backfill: str, rest: str = "") -> str:
    """The path of a backfill."""
    return f"/v1/backfills/{quote(backfill, safe='')}{rest}"


@click.group(cls=NearGroup)
def backfills() -> None:
    """Read and cancel backfills; `tickrail jobs backfill` begins one."""


@backfills.command("list")
@click.argument("job", type=JOB)
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def list_backfills(
    session: Context,
    /,
    *,
    job: str,
    limit: int,
    live: bool,
) -> None:
    """List the backfills of a job, the newest first."""
    on_job(session, job)  # says which job was meant where there is none
    path, params = job_path(job, "/backfills"), {"limit": min(limit, _PAGE)}
    show_items(
        session,
        lambda: islice(session.client().pages(path, params), limit),
        LIST,
        empty="No backfills.",
        live=live,
    )


@backfills.command("get")
@click.argument("backfill")
@click.option("--watch", "follow", is_flag=True, help="Wait until it has finished.")
@shared_options
@pass_session
def get_backfill(session: Context, /, *, backfill: str, follow: bool) -> None:
    """Show a backfill: how far it is, and how its launches stand."""
    path = backfill_path(backfill)
    found = watch(session, path, progress) if follow else session.client().request("GET", path)
    session.echo_item(found, CARD)


@backfills.command("cancel")
@click.argument("backfill", nargs=-1, required=True)
@click.option("--cancel", is_flag=True, help="Cancel what runs, too; it may finish otherwise.")
@shared_options
@pass_session
def cancel_backfill(session: Context, /, *, backfill: tuple[str, ...], cancel: bool) -> None:
    """Cancel backfills; what has not started is cancelled."""
    body = {"in_flight": "cancel"} if cancel else {}
    for one in backfill:
        answer = session.client().request("POST", backfill_path(one, "/cancel"), json=body)
        stand = f" ({launches(answer)})" if answer["launches"] else ""
        session.done(f"Cancelled {one}{stand}.", answer)

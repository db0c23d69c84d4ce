"""`tickrail jobs trigger`: a launch now, and how it goes."""

from __future__ import annotations

from typing import Any

import click

from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.failures import FAILED
from tickrail_cli.files import parse_json
from tickrail_cli.follow import ENDED
from tickrail_cli.jobs import jobs, on_job
from tickrail_cli.launch_insight import launch_path
from tickrail_cli.launches import CARD
from tickrail_cli.live import show_item
from tickrail_cli.names import JOB


@jobs.command("trigger")
@click.argument("job", type=JOB)
@click.option("--payload", metavar="JSON", help="Instead of the job's own.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]))
@click.option("--overlap", metavar="POLICY", help="Instead of the job's own, for this launch.")
@click.option("--copy-of", metavar="LAUNCH", help="With the payload of this ended launch of it.")
@click.option(
    "--watch", "-w", "live", is_flag=True, help="Show the launch until it ends; exit 1 if it fails."
)
@shared_options
@pass_session
def trigger_job(
    session: Context,
    /,
    *,
    job: str,
    payload: str | None,
    priority: str | None,
    overlap: str | None,
    copy_of: str | None,
    live: bool,
) -> None:
    """Launch a job now."""
    given = {"priority": priority, "overlap": overlap, "copy_of": copy_of}
    body: dict[str, Any] = {name: value for name, value in given.items() if value}
    if payload is not None:
        body["payload"] = parse_json(payload, "--payload")
    launch = on_job(session, job, "POST", "/trigger", json=body)
    if live:
        last = show_item(
            session,
            lambda: session.client().request("GET", launch_path(launch["id"])),
            CARD,
            live=True,
            ended=lambda found: found["state"] in ENDED,
        )
        if last["state"] in ENDED - {"succeeded"}:
            raise click.exceptions.Exit(FAILED)
        return
    session.done(
        f"Launched {launch['job']['name']} as {launch['id']} ({launch['state']});"
        f" `tickrail launches get {launch['id']}` shows it, `launches explain` says why it waits.",
        launch,
    )

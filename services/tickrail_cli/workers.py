"""`tickrail system workers`."""

from __future__ import annotations

import click

from tickrail_cli.context import PATIENCE, Context, pass_session, shared_options
from tickrail_cli.output import Column

WORKERS = (
    Column("name", "name"),
    Column("state", "state", "state"),
    Column("running", lambda w: f"{w['running']} of {w['concurrency']}"),
    Column("queues", lambda w: ", ".join(w["queues"])),
    Column("targets", lambda w: ", ".join(w["kinds"])),
    Column("tasks", lambda w: ", ".join(w["tasks"])),
    Column("version", "version"),
    Column("started", "started_at", "time"),
    Column("heard of", "seen_at", "time"),
    Column("id", "id"),
)


@click.command()
@shared_options
@pass_session
def workers(session: Context, /) -> None:
    """Show the workers that are there: what each serves and how much it runs."""
    found = session.client().request("GET", "/v1/system/workers", within=PATIENCE)
    if session.output != "table":
        session.done("", found)
        return
    session.echo_items(found["items"], WORKERS, empty="No worker is there.")

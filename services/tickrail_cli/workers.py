"""`tickrail system workers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tickrail_cli.context import PATIENCE, Context, pass_session, shared_options
from tickrail_cli.live import show_items, watch_option
from tickrail_cli.output import Column

_PATH = "/v1/system/workers"
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
@watch_option
@shared_options
@pass_session
def workers(session: Context, /, *, live: bool) -> None:
    """Show the workers that are there: what each serves and how much it runs."""

    def found() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = session.client().request("GET", _PATH, within=PATIENCE)
        return answer

    if session.output != "table" and not live:
        session.done("", found())
        return
    show_items(session, lambda: found()["items"], WORKERS, empty="No worker is there.", live=live)

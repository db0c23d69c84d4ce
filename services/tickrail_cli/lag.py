"""`tickrail system lag`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import RenderableType

from tickrail_cli.context import PATIENCE, Context, pass_session, shared_options
from tickrail_cli.live import show_whole, watch_option
from tickrail_cli.output import Column, table_of

LAG = (
    Column("queue", "queue"),
    Column("priority", "priority"),
    Column("due", "due"),
    Column("oldest", "oldest_due"),
    Column("queued", "queued"),
    Column("oldest", "oldest_queued"),
    Column("running", "running"),
)


@click.command()
@watch_option
@shared_options
@pass_session
def lag(session: Context, /, *, live: bool) -> None:
    """Show how far behind planning, publishing and starting are."""

    def parts(found: Mapping[str, Any]) -> Sequence[RenderableType]:
        behind = (
            f"Behind: planning {found['plan']}, publishing {found['publish']},"
            f" starting {found['start']}."
        )
        items = found["items"]
        rest = table_of(session, items, LAG) if items else "Nothing waits and nothing runs."
        return [behind, rest]

    show_whole(
        session,
        lambda: session.client().request("GET", "/v1/system/lag", within=PATIENCE),
        parts,
        live=live,
    )

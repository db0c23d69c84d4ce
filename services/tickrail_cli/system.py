"""`tickrail system` (its members and drains in members.py) and `tickrail completion`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.console import RenderableType

from tickrail.core.errors import ConflictError
from tickrail_cli.config import settings_options
from tickrail_cli.context import PATIENCE, Context, NearGroup, pass_session, shared_options
from tickrail_cli.lag import lag
from tickrail_cli.live import show_whole, watch_option
from tickrail_cli.members import drain, members, partitions, undrain
from tickrail_cli.output import Column, table_of
from tickrail_cli.workers import workers

MOVES = (
    Column("changed", "changed_at", "time"),
    Column("tenant", "tenant"),
    Column("job", "job.name"),
    Column("zone", lambda row: ", ".join(row.get("time_zones") or ())),
    Column("from", "versions.before"),
    Column("to", "versions.after"),
    Column("before", "next_run_at.before", "time"),
    Column("after", "next_run_at.after", "time"),
)
SHELLS = ("bash", "zsh", "fish")
_PAGE = 500


@click.group(cls=NearGroup)
def system() -> None:
    """Look at the installation (with an operator's key)."""


for _command in (members, partitions, drain, undrain, workers, lag):
    system.add_command(_command)


@system.command()
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@watch_option
@shared_options
@pass_session
def tzdata(session: Context, /, *, limit: int, live: bool) -> None:
    """Show the time zone data in use, and the next runs that a change of it moved."""

    def parts(found: Mapping[str, Any]) -> Sequence[RenderableType]:
        counts, items = found["partitions"].items(), found["items"]
        by = ", ".join(f"{version} in {n} partition{'s' * (n != 1)}" for version, n in counts)
        return [
            f"The API has zone data {found['version']}. Next runs are by {by}.",
            table_of(session, items, MOVES)
            if items
            else "No change of zone data has moved a next run.",
        ]

    show_whole(session, lambda: _tzdata(session, limit), parts, live=live)


def _tzdata(session: Context, limit: int) -> Mapping[str, Any]:
    client = session.client()
    first = {"limit": min(limit, _PAGE)}
    answer = client.request("GET", "/v1/system/tzdata", params=first, within=PATIENCE)
    items = list(answer["items"])
    cursor = answer["next_cursor"]
    while cursor and len(items) < limit:
        more = {"limit": min(limit - len(items), _PAGE), "cursor": cursor}
        page = client.request("GET", "/v1/system/tzdata", params=more, within=PATIENCE)
        items += page["items"]
        cursor = page["next_cursor"]
    return {**answer, "items": items, "next_cursor": cursor}


@system.command("raise-generation")
@settings_options("database", "etcd")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also where etcd has lost nothing.")
@pass_session
def raise_generation(session: Context, /, *, yes: bool, force: bool, **flags: object) -> None:
    """Begin a new generation of epochs, after etcd was restored or lost its data.

    Run it when etcd is the one that stays and answers; schedulers may run. It goes straight to
    the database (its owner's or the engine's connection; where `tickrail up` runs in this data
    folder, its own servers) and compares etcd with it first: refused (exit code 1) where etcd has
    lost nothing, since every scheduler would give its partitions up for nothing. Schedulers then
    enter anew by themselves within seconds; epochs and claims of the new generation are higher
    than any before. Drains are in etcd: look whether they are still there.
    """
    from tickrail_cli import home  # noqa: PLC0415 - slow to load
    from tickrail_cli.generation import compared, raise_it  # noqa: PLC0415 - as above

    settings = home.servers_of(session.settings(flags))
    history = compared(settings)
    if history.needed is False and not force:
        raise ConflictError(
            f"No new generation is needed. {history.words()} Nothing is refused for the sake of"
            " epochs; `--force` begins one all the same."
        )
    if session.output == "table":
        click.echo(history.words(), err=True)
    if not yes and not click.confirm(
        "Every scheduler gives its partitions up and takes them anew. Is this etcd the one that"
        " stays?"
    ):
        raise click.ClickException("not confirmed; no generation was begun")
    generation = raise_it(settings)
    session.done(f"The generation is {generation} now.", {"generation": generation})


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str | None) -> None:
    """Print the completion script for SHELL; for bash: eval "$(tickrail completion bash)"."""
    name = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - only the last part
    made = get_completion_class(name)
    if made is None:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    script = made(ctx.find_root().command, {}, "tickrail", "_TICKRAIL_COMPLETE")
    click.echo(script.source())

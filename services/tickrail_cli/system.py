"""`tickrail system` (its members and drains in members.py) and `tickrail completion`."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from tickrail_cli.config import settings_options
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.members import drain, members, partitions, undrain
from tickrail_cli.output import Column

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


for _command in (members, partitions, drain, undrain):
    system.add_command(_command)


@system.command()
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
@shared_options
@pass_session
def tzdata(session: Context, /, *, limit: int) -> None:
    """Show the time zone data in use, and the next runs that a change of it moved."""
    client = session.client()
    answer = client.request("GET", "/v1/system/tzdata", params={"limit": min(limit, _PAGE)})
    items = list(answer["items"])
    cursor = answer["next_cursor"]
    while cursor and len(items) < limit:
        more = {"limit": min(limit - len(items), _PAGE), "cursor": cursor}
        page = client.request("GET", "/v1/system/tzdata", params=more)
        items += page["items"]
        cursor = page["next_cursor"]
    if session.output != "table":
        session.done("", {**answer, "items": items, "next_cursor": cursor})
        return
    counts = answer["partitions"].items()
    by = ", ".join(f"{version} in {n} partition{'s' * (n != 1)}" for version, n in counts)
    session.done(f"The API has zone data {answer['version']}. Next runs are by {by}.")
    session.echo_items(items, MOVES, empty="No change of zone data has moved a next run.")


@system.command("raise-generation")
@settings_options("database")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def raise_generation(session: Context, /, *, yes: bool, **flags: object) -> None:
    """Begin a new generation of epochs, after etcd was restored or lost its data.

    Straight to the database (its owner's or the engine's connection). Schedulers of the old
    generation step down by themselves; epochs and claims of the new one are higher than any before.
    """
    from tickrail.store.fence import raise_generation as raise_it  # noqa: PLC0415 - it is slow

    if not yes:
        click.confirm(
            "Every scheduler gives its partitions up and takes them anew. Go on?", abort=True
        )
    generation = raise_it(session.settings(flags).database_url)
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

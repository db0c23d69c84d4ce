"""`tickrail system` and `tickrail completion`."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from tickrail_cli.config import settings_options
from tickrail_cli.context import Context, NearGroup, pass_session, shared_options
from tickrail_cli.output import Column

PARTITIONS = (
    Column("partition", "partition"),
    Column("owner", "owner"),
    Column("epoch", "epoch"),
    Column("taken", "taken_at", "time"),
)
SHELLS = ("bash", "zsh", "fish")


@click.group(cls=NearGroup)
def system() -> None:
    """Look at the installation (with an operator's key)."""


@system.command()
@shared_options
@pass_session
def partitions(session: Context, /) -> None:
    """Show who owns which partition."""
    found = session.client().pages("/v1/system/partitions")
    session.echo_items(found, PARTITIONS, empty="No partitions.")


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

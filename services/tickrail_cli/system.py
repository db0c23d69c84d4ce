"""`tickrail system` and `tickrail completion`."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

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

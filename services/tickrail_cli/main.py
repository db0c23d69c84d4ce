"""`tickrail`: the frame of the command line.

Commands are imported when they are called, so that the help is quick and a missing extra breaks
only what needs it. Exit codes: 0 done, 1 refused or failed, 2 wrong use, 3 not reachable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import click

from tickrail_cli.context import OUTPUTS, Context, NearGroup
from tickrail_cli.failures import INTERRUPTED, failure

COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("tickrail_cli.up:up", "Run", "Run everything on this machine, its servers too."),
    "down": ("tickrail_cli.up:down", "Run", "Stop what `up` runs."),
    "migrate": ("tickrail_cli.migrate:migrate", "Run", "Bring the database to this version."),
    "bootstrap": ("tickrail_cli.migrate:bootstrap", "Run", "Make the first API key."),
    "api": ("tickrail_cli.run:api", "Run", "Run the HTTP API."),
    "scheduler": ("tickrail_cli.run:scheduler", "Run", "Run a scheduler."),
    "worker": ("tickrail_cli.run:worker", "Run", "Run a worker."),
    "watchdog": ("tickrail_cli.run:watchdog", "Run", "Look whether every due slot was launched."),
    "jobs": (
        "tickrail_cli.job_commands:jobs",
        "Use",
        "List, make, pause, trigger and delete jobs.",
    ),
    "launches": ("tickrail_cli.launches:launches", "Use", "Watch, read and cancel launches."),
    "dead-letters": (
        "tickrail_cli.dead_letters:dead_letters",
        "Use",
        "Read, redrive and purge what was given up.",
    ),
    "backfills": ("tickrail_cli.backfills:backfills", "Use", "Read and cancel backfills."),
    "operations": ("tickrail_cli.operations:operations", "Use", "Read and cancel operations."),
    "slots": ("tickrail_cli.jobs:job_slots", "Use", "Show what became of a job's slots."),
    "calendars": ("tickrail_cli.calendars:calendars", "Use", "Times that jobs leave out."),
    "secrets": ("tickrail_cli.secrets:secrets", "Use", "Values that targets name."),
    "queues": ("tickrail_cli.queues:queues", "Use", "List, limit and pause queues."),
    "usage": ("tickrail_cli.usage:usage", "Use", "Show what is used of the quotas."),
    "quotas": ("tickrail_cli.usage:quotas", "Use", "Show or set what tenants may have."),
    "audit": ("tickrail_cli.audit:audit", "Use", "Show who changed what."),
    "keys": ("tickrail_cli.keys:keys", "Use", "List, make, rotate and revoke API keys."),
    "tenants": ("tickrail_cli.tenants:tenants", "Use", "Make, set and suspend tenants."),
    "preview": ("tickrail_cli.preview:preview", "Use", "Show the next runs of a schedule."),
    "apply": ("tickrail_cli.apply:apply", "Use", "Make what there is as files say."),
    "diff": ("tickrail_cli.apply:diff", "Use", "Show how it differs from what files say."),
    "export": ("tickrail_cli.export:export", "Use", "Print jobs as files that `apply` reads."),
    "schema": ("tickrail_cli.schema:schema", "Use", "Print the JSON schema of such files."),
    "import": ("tickrail_cli.import_crontab:import_group", "Use", "Make jobs of a crontab."),
    "login": ("tickrail_cli.login:login", "Use", "Store an API's address and key."),
    "logout": ("tickrail_cli.login:logout", "Use", "Forget a stored key."),
    "config": ("tickrail_cli.login:config", "Use", "Show which API and key are used, and why."),
    "system": ("tickrail_cli.system:system", "Use", "Look at members and partitions; drain."),
    "completion": ("tickrail_cli.system:completion", "Use", "Print a shell's completion script."),
}
"""Name -> where it is, its section in the help, what it does."""


class Root(NearGroup):
    """The top of the command line: knows its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one command.

        Raises:
            click.ClickException: something it needs is not installed.
        """
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            found: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as e:
            raise click.ClickException(
                f"`tickrail {cmd_name}` needs the Python package {e.name}, which is not installed"
                " (`up` and `down` come with the extra `tickrail[local]`)"
            ) from None
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The commands by section."""
        for section in dict.fromkeys(row[1] for row in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, row[2]) for name, row in COMMANDS.items() if row[1] == section]
                )


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--url", "--api-url", "url", metavar="URL", help="The API to speak to [TICKRAIL_API_URL]."
)
@click.option("--key", "--api-key", "key", metavar="KEY", help="Its API key [TICKRAIL_API_KEY].")
@click.option("--profile", metavar="NAME", help="A profile of `tickrail login` [TICKRAIL_PROFILE].")
@click.option("--tenant", metavar="NAME", help="With an operator's key: the tenant to work in.")
@click.option(
    "--output", type=click.Choice(OUTPUTS), help="table for people, the rest for programs."
)
@click.option("--utc", is_flag=True, help="Show times in UTC, not in this machine's zone.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings file [TICKRAIL_CONFIG]; ./tickrail.toml where there is one.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more, traces of failures too.")
@click.version_option(version("tickrail"), prog_name="tickrail")
@click.pass_context
def cli(  # noqa: PLR0913 - click hands over each option by name
    ctx: click.Context,
    /,
    *,
    url: str | None,
    key: str | None,
    profile: str | None,
    tenant: str | None,
    output: str | None,
    utc: bool,
    config: Path | None,
    verbose: bool,
) -> None:
    """Tickrail, a job scheduler: run it, and work with its jobs.

    Settings come from flags, then TICKRAIL_* variables, then tickrail.toml; `tickrail config` shows
    which API and key are used, and why.
    """
    ctx.obj = Context(
        flags={"api_url": url, "api_key": key},
        environ=os.environ,
        config=config,
        profile=profile,
        tenant=tenant,
        output=output or "table",
        utc=utc,
        verbose=verbose,
    )
    ctx.call_on_close(ctx.obj.close)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point; ends the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code. Errors are said in words on standard error."""
    # A trace is asked for by a flag that is needed also where the flags cannot be read.
    verbose = any(word in {"-v", "--verbose"} for word in arguments)
    try:
        code: Any = cli.main(args=arguments, prog_name="tickrail", standalone_mode=False)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as e:  # noqa: BLE001 - the outermost door: nobody is shown a trace
        return failure(e, verbose=verbose)
    return code if isinstance(code, int) else 0

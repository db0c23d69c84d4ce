"""`tickrail up` and `tickrail down`: everything on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tickrail.core.clock import SystemClock
from tickrail.local.stack import stop_running
from tickrail.runtime import log
from tickrail_cli.children import stop_leftovers
from tickrail_cli.config import settings_options
from tickrail_cli.context import Context, pass_session
from tickrail_cli.installation import DRAIN, Plan, run_up

_COUNT = click.IntRange(0, 16)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_DATA = click.option(
    "--data",
    "data_dir",
    type=_FOLDER,
    metavar="DIR",
    help="The data folder [TICKRAIL_DATA_DIR, .tickrail].",
)


@click.command("up")
@_DATA
@click.option(
    "--schedulers", type=_COUNT, default=2, show_default=True, help="How many schedulers."
)
@click.option("--workers", type=_COUNT, default=2, show_default=True, help="How many workers.")
@click.option("--watchdog/--no-watchdog", default=True, help="Whether a watchdog runs beside them.")
@click.option(
    "--port",
    "api_port",
    type=click.IntRange(1, 65535),
    help="The API's port; 8080, or a free one where that is taken.",
)
@click.option(
    "--external",
    is_flag=True,
    help="Use the servers that --database-url (the owner's or a superuser's connection),"
    " --etcd-endpoints and --kafka-bootstrap name; start none.",
)
@click.option(
    "--api-database-url",
    "api_url",
    metavar="URL",
    help="With --external: the connection of tickrail_api, where --database-url is no superuser's.",
)
@click.option(
    "--engine-database-url",
    "engine_url",
    metavar="URL",
    help="The same for tickrail_engine.",
)
@settings_options(
    *("database_url", "etcd_endpoints", "kafka_bootstrap", "partitions", "worker_app", "log"),
    "drain",
    drain_grace=f"{DRAIN:g}",
)
@pass_session
def up(  # noqa: PLR0913 - click hands over each option by name
    session: Context,
    /,
    *,
    data_dir: Path | None,
    schedulers: int,
    workers: int,
    watchdog: bool,
    api_port: int | None,
    external: bool,
    api_url: str | None,
    engine_url: str | None,
    **flags: object,
) -> None:
    """Run Tickrail on this machine: servers, one API, schedulers, workers, a watchdog.

    Data stays in the folder. Ctrl-C stops everything in order, a second one at once.
    """
    settings = session.settings({**flags, "data_dir": data_dir, "api_port": api_port})
    level = "debug" if session.verbose else settings.log_level
    log.configure(settings.log_format, level, "up")
    plan = Plan(schedulers, workers, external, api_url, engine_url, watchdog)
    sys.exit(run_up(settings, plan, SystemClock()))


@click.command("down")
@_DATA
@pass_session
def down(session: Context, /, *, data_dir: Path | None) -> None:
    """Stop what `up` runs on a data folder, and wait until it has ended."""
    folder = session.settings({"data_dir": data_dir}).data_dir.expanduser().resolve()
    clock = SystemClock()
    stopped = stop_running(folder, clock=clock)
    left = stop_leftovers(folder, clock)
    if stopped or left:
        session.done(f"Stopped what ran on {folder}.", {"stopped": True})
    else:
        session.done(f"Nothing runs on {folder}.", {"stopped": False})

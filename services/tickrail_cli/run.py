"""`tickrail api|scheduler|worker|watchdog`: start one process of the installation.

The services are found by name: this is the one place that starts the others, and it imports none.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from tickrail.runtime import log
from tickrail_cli.config import COMMON, FLAGS, settings_options
from tickrail_cli.context import Context, pass_session

ENTRIES = {
    "api": "tickrail_api.main:run",
    "scheduler": "tickrail_scheduler.main:run",
    "worker": "tickrail_worker.main:run",
    "watchdog": "tickrail_watchdog.main:run",
}
"""Service -> its entry: a function of the settings that answers the exit code."""


def start(service: str, session: Context, flags: dict[str, Any]) -> int:
    """Run a service until it is stopped; its exit code.

    Raises:
        SettingsError: a setting is unknown or wrong.
    """
    settings = session.settings(flags)
    named = "name" in settings.model_fields_set
    level = "debug" if session.verbose else settings.log_level
    log.configure(settings.log_format, level, settings.name if named else service)
    module, _, function = ENTRIES[service].partition(":")
    code = getattr(import_module(module), function)(settings)
    return int(code or 0)


@click.command()
@settings_options(*FLAGS["api"], *COMMON)
@pass_session
def api(session: Context, /, **flags: object) -> None:
    """Run the HTTP API until SIGTERM or Ctrl-C."""
    sys.exit(start("api", session, flags))


@click.command()
@settings_options(*FLAGS["scheduler"], *COMMON)
@pass_session
def scheduler(session: Context, /, **flags: object) -> None:
    """Run a scheduler until SIGTERM or Ctrl-C; run several for availability."""
    sys.exit(start("scheduler", session, flags))


@click.command()
@settings_options(*FLAGS["worker"], *COMMON)
@pass_session
def worker(session: Context, /, **flags: object) -> None:
    """Run a worker until SIGTERM or Ctrl-C; run as many as the load needs."""
    sys.exit(start("worker", session, flags))


@click.command()
@settings_options(*FLAGS["watchdog"], *COMMON)
@pass_session
def watchdog(session: Context, /, **flags: object) -> None:
    """Look whether every due slot was launched, also where every scheduler is dead, until SIGTERM.

    It needs PostgreSQL alone.
    """
    sys.exit(start("watchdog", session, flags))

"""Settings as flags of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from tickrail.runtime.settings import Settings
from tickrail.runtime.settings_fields import default_text

F = TypeVar("F", bound=Callable[..., Any])

COMMON = ("name", "status", "log", "trace")
FLAGS: dict[str, tuple[str, ...]] = {
    "api": (
        *("database", "prepare", "partitions", "api_host", "api_port", "egress", "topic_prefix"),
        *("api_head", "api_body", "api_idle", "api_drain", "api_connections", "api_cors"),
        *("api_hsts", "api_key_failures", "api_reuse", "api_trusted", "oidc", "etcd"),
    ),
    "scheduler": (
        *("database", "prepare", "partitions", "history", "audit", "etcd", "kafka"),
        "topic_prefix",
        *("lease", "renew", "member", "relay", "lost", "drain"),
    ),
    "worker": (
        *("database", "prepare", "partitions", "kafka", "topic_prefix"),
        *("worker", "target_kafka", "command", "task", "webhook", "egress", "drain", "failpoints"),
    ),
    "watchdog": ("database", "prepare", "partitions", "watchdog", "egress_allow", "webhook_ca"),
    "migrate": ("database", "partitions", "topic_partitions", "history"),
    "bootstrap": ("database",),
}
"""Command -> the settings that are its flags, by the beginning of their names."""
SHORTER = {"worker_app": "--app"}
"""A further flag for a setting."""


def names_of(prefixes: Iterable[str]) -> list[str]:
    """The settings whose names begin with one of these words, in the order of the table.

    Passwords and keys are left out: a command line can be read by every user of a machine.
    """
    starts = tuple(prefixes)
    return [
        name
        for name, info in Settings.model_fields.items()
        if info.repr and any(name == start or name.startswith(f"{start}_") for start in starts)
    ]


def settings_options(*prefixes: str, **instead: str) -> Callable[[F], F]:
    """Flags for the settings whose names begin with one of these words.

    The command gets them by setting name, None where not given, and hands them to
    `Context.settings`, which checks them. `instead`: what the help says of a setting for which the
    command has a default of its own.
    """

    def decorate(command: F) -> F:
        for name in reversed(names_of(prefixes)):
            info = Settings.model_fields[name]
            flag = "--" + name.replace("_", "-")
            about = (info.description or "").replace("`", "")
            default = instead.get(name, default_text(name))
            text = f"{about} [{default}]" if default else about
            if info.annotation is bool:
                command = click.option(
                    f"{flag}/--no-{name.replace('_', '-')}", default=None, help=text
                )(command)
            else:
                flags = [flag, *([SHORTER[name]] if name in SHORTER else [])]
                command = click.option(*flags, name, metavar="VALUE", help=text)(command)
        return command

    return decorate

"""All commands in one manner: the same flags, help for each, and --yes for what destroys."""

from __future__ import annotations

import io
from collections.abc import Iterator

import click
import pytest
from rich.console import Console
from tests.support.stub_api import Answer, StubApi
from tests.unit.cli.conftest import Tickrail

from tickrail_cli import watching
from tickrail_cli.main import COMMANDS, cli

LOCAL = frozenset({"completion", "preview", "import crontab", "system raise-generation"})
"""Commands that need no API, or take their own flags for it."""
DESTROY = frozenset({"delete", "purge", "revoke", "suspend"})
SHOWS = frozenset(
    {"list", "get", "attempts", "explain", "slots", "upcoming", "usage", "versions"}
    | {"lag", "members", "partitions", "tzdata", "workers"}
)
"""What shows a list or a single thing."""


def leaves(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


USED = {
    name: command
    for name, command in leaves(cli)
    if COMMANDS[name.split()[0]][1] == "Use" and name not in LOCAL
}


def flags(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in param.opts}


@pytest.mark.parametrize("name", USED)
def test_every_command_takes_the_flags_of_all(name: str) -> None:
    command = USED[name]
    assert {"--output", "--url", "--key", "--profile", "--tenant", "--utc"} <= flags(command)
    assert command.help
    assert command.help.rstrip().endswith((".", ")", '"'))


@pytest.mark.parametrize("name", USED)
def test_every_command_that_destroys_takes_yes(name: str) -> None:
    taken, last = flags(USED[name]), name.rpartition(" ")[2]
    if last in DESTROY or ("--prune" in taken and last != "diff"):
        assert "--yes" in taken


@pytest.mark.parametrize("name", [n for n in USED if n.rpartition(" ")[2] in SHOWS])
def test_every_command_that_shows_can_be_watched(name: str) -> None:
    assert "--watch" in flags(USED[name])


def test_what_every_resource_offers_is_there() -> None:
    expected = {
        "jobs": "list get create put update delete pause resume trigger skip-next upcoming slots"
        " backfill",
        "launches": "list get cancel redrive attempts log explain",
        "dead-letters": "list get redrive purge",
        "backfills": "list get cancel",
        "operations": "list get cancel",
        "calendars": "list get put import delete",
        "queues": "list get create set pause resume delete",
        "secrets": "list set delete",
        "tenants": "list get set",
        "system": "members partitions drain undrain workers lag",
    }
    missing = {f"{group} {name}" for group, names in expected.items() for name in names.split()}
    assert missing - USED.keys() == set()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a person at a terminal sees of bars."""
    out = io.StringIO()
    monkeypatch.setattr(watching, "_is_seen", lambda _: True)
    monkeypatch.setattr(
        watching, "_stderr", lambda: Console(file=out, force_terminal=True, width=100)
    )
    monkeypatch.setattr(watching, "_POLL", 0.0)
    return out


def test_an_operation_is_a_bar_on_a_terminal(
    tickrail: Tickrail, api: StubApi, terminal: io.StringIO
) -> None:
    operation = {
        "id": "1",
        "kind": "jobs.pause",
        "total": 10,
        "changed": 0,
        "failed": 0,
        "errors": [],
    }
    states = (("running", 0), ("running", 5), ("succeeded", 10))
    api.on(
        "GET", "/v1/operations/1",
        *(Answer(body=operation | {"state": s, "done": n}) for s, n in states),
    )  # fmt: skip
    assert tickrail("operations", "get", "1", "--watch").code == 0
    assert "━" in terminal.getvalue()
    assert "running: 5 of 10 jobs" in terminal.getvalue() or "10 of 10 jobs" in terminal.getvalue()


def test_a_backfill_is_a_bar_too(tickrail: Tickrail, api: StubApi, terminal: io.StringIO) -> None:
    backfill = {
        "id": "1", "job": {"name": "a"}, "state": "running", "total": 4, "launched": 1,
        "left_alone": 0, "remaining": 3, "launches": {},
    }  # fmt: skip
    done = backfill | {"state": "finished", "launched": 4, "remaining": 0}
    api.on("GET", "/v1/backfills/1", Answer(body=backfill), Answer(body=done))
    assert tickrail("backfills", "get", "1", "--watch").code == 0
    assert "4 of 4 slots launched" in terminal.getvalue()

"""The runbooks' command lines fit the programs, metrics, logs and settings that there are.

Their queries of PostgreSQL are tried in tests/integration/store/test_runbook_sql.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache

import click
import pytest
from tests.support.prometheus import queries_that_do_not_parse
from tests.support.runbooks import DO, LOOK, PAGES, lines_of
from tests.support.tree import ROOT
from tests.unit.gates.test_rules import strangers

from tickrail.runtime.settings import Settings
from tickrail_cli.context import Context as Session
from tickrail_cli.main import cli

TEXTS = {file.stem: file.read_text("utf-8") for file in PAGES.glob("*.md")}
PROGRAMS = {"psql", "pg_isready", "promtool", "curl", "grep", "tail", "etcdctl", "openssl",
            "py-spy", "kill", "tr", "echo", "date", "for", "do", "done"}  # fmt: skip
ASKED = re.compile(r"promtool query instant \"\$PROMETHEUS\" '([^']*)'")
LOGGED = re.compile(r'grep -hE? "([^"]*)" \$LOGS')
VARIABLE = re.compile(r"\$\{?([A-Z][A-Z_]+)")
SETTING = re.compile(r"`(TICKRAIL_[A-Z_]+)`")
PANEL = re.compile(r"(?<![\w*])\*([A-Z][^*\n]+)\*(?!\*)")
NOT_SETTINGS = {"TICKRAIL_API_URL", "TICKRAIL_API_KEY"}
"""Of the command line, for `tickrail` alone."""


def commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, as words; what the shell would put in stays as it is."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("|;&"):
            words.append(word)
        elif words:
            yield words
            words = []


def unfit(words: Sequence[str]) -> str | None:
    """What is wrong with a command of `tickrail`: no such command, option or argument."""
    command: click.Command = cli
    rest = list(words)
    context = click.Context(cli, info_name="tickrail", obj=Session(flags={}, environ={}))
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0]) if rest else None
        if found is None:
            return f"no command {' '.join(words)}"
        command, rest = found, rest[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        given = ["1" if word == "$VERSION" else word for word in rest]
        command.make_context(command.name, given, parent=context.parent)
    except click.ClickException as e:
        return e.format_message()
    return None


@cache
def code() -> str:
    """The source of the project."""
    files = [f for part in ("libs", "services") for f in (ROOT / part).rglob("*.py")]
    return "\n".join(f.read_text("utf-8") for f in files)


@cache
def panels() -> set[str]:
    """The titles of the dashboards and of their panels."""
    files = (ROOT / "helm/tickrail/dashboards").glob("*.json")
    boards = [json.loads(f.read_text("utf-8")) for f in files]
    return {b["title"] for b in boards} | {p["title"] for b in boards for p in b["panels"]}


def mistakes(text: str) -> list[str]:
    """What is wrong with a page."""
    lines = lines_of(text, LOOK) + lines_of(text, DO)
    found = [] if lines_of(text, LOOK) else ["no command line says what to look at"]
    table = (ROOT / "docs/alerts.md").read_text("utf-8").split("## Command lines")[1]
    for line in lines:
        shell = subprocess.run(["bash", "-n", "-c", line], capture_output=True, check=False)
        if shell.returncode:
            found.append(f"bash does not take: {line}")
            continue
        for words in commands(line):
            if words[0] == "tickrail" and (wrong := unfit(words[1:])):
                found.append(f"{wrong}: {line}")
            elif words[0] not in PROGRAMS | {"tickrail"}:
                found.append(f"no program {words[0]}: {line}")
        found += [
            f"no variable {v}: {line}" for v in VARIABLE.findall(line) if f"`{v}`" not in table
        ]
        for pattern in LOGGED.findall(line):
            parts = [p for p in pattern.split("|") if "\\" not in p]
            found += [f"nobody logs {p}: {line}" for p in parts if p not in code()]
    asked = [expr for line in lines for expr in ASKED.findall(line)]
    if sum("promtool" in line for line in lines) != len(asked):
        found.append("a query of another form")
    found += [s for expr in asked for s in strangers("query", expr)]
    found += [f"no panel {name}" for name in PANEL.findall(text) if name not in panels()]
    names = {f"TICKRAIL_{name.upper()}" for name in Settings.model_fields} | NOT_SETTINGS
    return found + [f"no setting {name}" for name in SETTING.findall(text) if name not in names]


def test_every_command_line_of_a_runbook_fits() -> None:
    assert len(TEXTS) > 40
    assert {page: found for page, text in TEXTS.items() if (found := mistakes(text))} == {}


def test_prometheus_takes_every_query_of_a_runbook() -> None:
    asked = [
        expr
        for text in TEXTS.values()
        for line in lines_of(text, LOOK) + lines_of(text, DO)
        for expr in ASKED.findall(line)
    ]
    assert len(asked) > 30
    assert queries_that_do_not_parse(asked) == []
    assert queries_that_do_not_parse(["sum by (job (up)"]) != []


@pytest.mark.parametrize(
    "line",
    [
        "tickrail system nobody",
        'tickrail jobs pause "$JOB" --tenant "$TENANT" --because "x"',
        "tickrail jobs get",
        "for at in $SCHEDULERS; do curl -s $at",
        "teleport --home",
        'curl -s "$NOWHERE/readyz"',
        'grep -h "job_went_for_a_walk" $LOGS',
        "promtool query instant \"$PROMETHEUS\" 'tickrail_walks_total'",
        "promtool query range 'up'",
    ],
)
def test_a_slip_would_be_seen(line: str) -> None:
    assert mistakes(f"## {LOOK}\n\n```sh\n{line}\n```\n") != []


def test_missing_slots_are_looked_for_where_they_are() -> None:
    """The latest rows of a job are slots to come; `job_wrong` names the oldest that is missing."""
    lines = lines_of(TEXTS["TickrailSlotsMissing"], LOOK)
    (asked,) = [shlex.split(line) for line in lines if "jobs slots" in line]
    assert asked[asked.index("--from") + 1] == "$FROM"
    assert "--oldest-first" in asked


def test_a_setting_and_a_panel_that_are_not_there_are_seen() -> None:
    text = "Lower `TICKRAIL_MOON`, see *Phases of the moon*."
    page = f"## {LOOK}\n\n{text}\n\n```sh\ntickrail system lag\n```\n"
    assert mistakes(page) == ["no panel Phases of the moon", "no setting TICKRAIL_MOON"]

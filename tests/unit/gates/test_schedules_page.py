"""docs/schedules.md says what the code does: its blocks are run again, its tables looked up."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.support.tree import ROOT

from tickrail.core import lint as lint_file
from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.lint import lint
from tickrail.core.plan import Situation, SkipReason, plan_job
from tickrail.core.policies import Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import parse_schedule
from tickrail_cli import main

PAGE = (ROOT / "docs/schedules.md").read_text()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobId(UUID(int=7))
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    (command, output)
    for block in BLOCKS
    for command, output in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str, head: str) -> list[list[str]]:
    """The cells of the table of a section whose heading begins so."""
    table = section(title).split(head, 1)[1].split("\n\n", 1)[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if line.startswith("| ")
    ]


def test_the_page_has_examples() -> None:
    assert len(SHOWN) > 15


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[c for c, _ in SHOWN])
def test_each_command_prints_what_is_shown(
    command: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = shlex.split(command)
    assert program == "tickrail"
    code = main.run(words)
    said = capsys.readouterr()
    lines = [line.rstrip() for line in (said.out + said.err).splitlines()]
    assert lines == output.splitlines()
    assert code == (1 if output.startswith("Error: ") else 0)


@pytest.mark.parametrize("cells", rows("Forms", "| form |"), ids=lambda cells: cells[0])
def test_each_form_is_read(cells: list[str]) -> None:
    document = json.loads(cells[-1].strip("`"))
    assert parse_schedule(document, job=JOB, now=NOW) is not None


def expressions(text: str) -> list[str]:
    return [code for code in re.findall(r"`([^`]+)`", text) if len(code.split()) >= 5]


def test_each_expression_of_the_table_of_fields_is_read() -> None:
    found = [e for cells in rows("Cron expressions", "| in a field |") for e in
             expressions(cells[-1])]  # fmt: skip
    assert len(found) > 12
    for expression in found:
        assert parse_schedule({"cron": expression}, job=JOB, now=NOW) is not None


TOLD = {cells[0].strip("`"): cells[-1] for cells in rows("What is told", "| code |")}


def test_every_note_is_in_the_table() -> None:
    source = (ROOT / "libs/tickrail/core/lint.py").read_text()
    codes = set(re.findall(r'"((?:[a-z]+_)+[a-z]+|herd|hashed)"', source))
    assert codes == set(TOLD)
    assert lint_file.HERD == 1_000


@pytest.mark.parametrize("code", sorted(TOLD.keys() - {"herd", "no_run"}))
def test_each_example_of_a_note_brings_it(code: str) -> None:
    expression, *rest = re.findall(r"`([^`]+)`", TOLD[code])
    document = {"cron": expression}
    if rest:
        document |= dict([rest]) if len(rest) == 2 else {"time_zone": rest[0]}
    schedule = parse_schedule(document, job=JOB, now=NOW)
    assert code in {w.code for w in lint(schedule, NOW)}


@pytest.mark.parametrize("text", ["@reboot", "*/0 * * * *", "0 0 * * L", "cron(0 2 * * ? *)",
                                  "rate(5 minutes)", "0 0 0 1 1 ? 2020"])  # fmt: skip
def test_what_is_said_to_be_refused_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["preview", text]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_reasons_are_those_of_the_planner() -> None:
    told = {cells[0].strip("`") for cells in rows("The ledger", "| reason |")}
    assert told == {r.value for r in SkipReason} - {"deadline"}


@pytest.mark.parametrize(
    ("policy", "launched", "missed"),
    [("fire_once", [10], 9), ("fire_all", [1, 2, 3, 10], 6), ("skip", [10], 9)],
)
def test_the_example_of_late_slots(policy: str, launched: list[int], missed: int) -> None:
    misfire = Misfire(policy=MisfirePolicy(policy), max_count=3)
    schedule = parse_schedule({"cron": "* * * * *"}, job=JOB, now=NOW)
    plan = Plan(schedule=schedule, misfire=misfire, overlap=Overlap.ALLOW)
    now = NOW + timedelta(minutes=10, seconds=30)
    decision = plan_job(plan, Situation(JOB, NOW + timedelta(minutes=1)), now)
    assert [x.scheduled_at.minute for x in decision.launches] == launched
    assert sum(s.count for s in decision.skipped) == missed

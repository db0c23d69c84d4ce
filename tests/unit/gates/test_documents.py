"""The documents are true to the code: tables, names of tests, the map, links, commands."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
from pathlib import Path

import click
import pytest
from tests.support.tree import ROOT

from tickrail_cli.main import cli

TABLES = runpy.run_path(str(ROOT / "docs/tables.py"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
DOCUMENTS = sorted(p for folder in (".", "docs", "loadtest") for p in (ROOT / folder).glob("*.md"))


def named_in(text: str) -> list[tuple[str, str]]:
    return NAMED.findall(text)


def missing_tests(text: str) -> list[str]:
    """Named tests that do not exist."""
    missing = []
    for file, name in named_in(text):
        path = ROOT / file
        names = (
            {
                n.name
                for n in ast.walk(ast.parse(path.read_text()))
                if isinstance(n, ast.FunctionDef)
            }
            if path.exists()
            else set()
        )
        if name not in names:
            missing.append(f"{file}::{name}")
    return missing


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "docs/guarantees.md").read_text()
    rows = [x for x in text.splitlines() if x.startswith("| ") and not x.startswith("| promise")]
    assert len(rows) > 30
    assert [row for row in rows if not named_in(row)] == []
    assert missing_tests(text) == []


@pytest.mark.parametrize(
    "name",
    [
        "tests/unit/gates/test_documents.py::test_that_nobody_wrote",
        "tests/unit/gates/test_nothing.py::test_x",
    ],
)
def test_a_test_that_does_not_exist_is_seen(name: str) -> None:
    assert missing_tests(f"shown by `{name}`") == [name]


def test_the_tables_are_those_of_the_code() -> None:
    assert TABLES["behind"]() == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("README.md", "| `TICKRAIL_LEASE_TTL` | `10` |", "| `TICKRAIL_LEASE_TTL` | `15` |"),
        ("docs/metrics.md", "tickrail_schedule_lag_seconds", "tickrail_lag_seconds"),
        ("docs/errors.md", "| 422 |", "| 400 |"),
        ("docs/outcomes.md", "| `tls_failed` | webhook | yes | yes |", "| `tls_failed` |"),
        ("docs/licences.md", "| psycopg | 3", "| psycopg | 2"),
        ("docs/alerts.md", "| critical | 30s |", "| warning | 30s |"),
        ("docs/dashboards.md", "Lease remaining", "Lease"),
        (
            "helm/tickrail/dashboards/tickrail-overview.json",
            "max(tickrail_jobs_overdue_seconds",
            "min(tickrail_jobs_overdue_seconds",
        ),
        ("helm/tickrail/values.schema.json", '"TICKRAIL_LEASE_TTL"', '"TICKRAIL_LEASE"'),
        ("docs/states.md", "| `due` | `queued` | owner |", "| `due` | `queued` | worker |"),
    ],
)
def test_a_table_that_differs_is_seen(tmp_path: Path, file: str, old: str, new: str) -> None:
    dashboards = (ROOT / "helm/tickrail/dashboards").glob("*.json")
    schema = ROOT / "helm/tickrail/values.schema.json"
    for path in (ROOT / "README.md", schema, *(ROOT / "docs").glob("*.md"), *dashboards):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    assert TABLES["behind"](tmp_path) == [tmp_path / file]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(path: Path) -> None:
    links = LINK.findall(path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def paths_of_the_map() -> list[str]:
    """The paths of the README's map of the tree, from its indentation."""
    section = (ROOT / "README.md").read_text().split("## Map of the tree", 1)[1]
    block = section.split("```text\n", 1)[1].split("```", 1)[0]
    stack: list[str] = []
    found: list[str] = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.match(r"\s*((?:[\w.*-]+/?[\w./*-]*)(?: [\w-]+(?:/|\.\w+))*)", line)
        assert names, line
        found.extend("".join(stack[:depth]) + name for name in names[1].split())
        stack[depth:] = [names[1].split()[0]]
    return found


def test_the_map_of_the_tree_is_true() -> None:
    paths = paths_of_the_map()
    assert len(paths) > 30
    assert [p for p in paths if not list(ROOT.glob(p.rstrip("/")))] == []
    rooms = {p.name for p in (ROOT / "libs/tickrail").iterdir() if (p / "__init__.py").exists()}
    services = {p.name for p in (ROOT / "services").iterdir() if (p / "__init__.py").exists()}
    assert {f"libs/tickrail/{r}/" for r in rooms} | {f"services/{s}/" for s in services} <= set(
        paths
    )


def files_named_in_the_map(section: str) -> list[tuple[str, str]]:
    """Files of the code that the map's words name, each with where it is to be looked for."""
    text, block = section.split("```text\n", 1)
    found = [("", name) for name in re.findall(r"`([\w/]+/\w+\.py)`", text)]
    stack: list[str] = []
    for line in block.split("```", 1)[0].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        entry = line.split()[0]
        stack[depth:] = [entry]
        at = "".join(part for part in stack if part.endswith("/"))
        found.extend((at, name) for name in re.findall(r"[\w/]+\.py\b", line))
    return found


def not_there(named: list[tuple[str, str]]) -> list[str]:
    """Those that are neither in their folder, or below it, nor a path from the root."""
    return [
        f"{at}{name}"
        for at, name in named
        if not (ROOT / name).exists() and not any((ROOT / at).rglob(name))
    ]


def test_what_the_map_says_of_files_names_files_that_exist() -> None:
    section = (ROOT / "README.md").read_text().split("## Map of the tree", 1)[1]
    named = files_named_in_the_map(section)
    assert len(named) > 50
    assert not_there(named) == []


def test_a_file_of_the_map_that_does_not_exist_is_seen() -> None:
    section = (
        "`libs/none.py` and `libs/tickrail/core/plan.py`\n"
        "```text\nlibs/tickrail/\n  core/   none.py and plan.py\n    plan.py   core.py\n```"
    )
    named = files_named_in_the_map(section)
    assert not_there(named) == [
        "libs/none.py", "libs/tickrail/core/none.py", "libs/tickrail/core/core.py"
    ]  # fmt: skip


def test_every_load_test_has_its_line_and_its_command() -> None:
    page = (ROOT / "loadtest/README.md").read_text()
    files = {p.name: p.read_text() for p in (ROOT / "loadtest").glob("*.py")}
    named = re.findall(r"`(\w+\.py)`", page)
    assert sorted(set(named)) == sorted(files)
    programs = {n for n, text in files.items() if "__main__" in text} - {"receiver.py"}
    lines = dict(re.findall(r"^\| `(\w+\.py)` \| `make ([\w-]+)`", page, re.MULTILINE))
    assert set(lines) == programs
    makefile = (ROOT / "Makefile").read_text()
    for name, target in lines.items():
        recipe = re.search(rf"^{target}:.*\n\t(.*)", makefile, re.MULTILINE)
        assert recipe, target
        assert re.search(rf"loadtest[/.]{name.removesuffix('.py')}\b", recipe[1]), target


def code() -> str:
    """The code blocks of the README."""
    text = (ROOT / "README.md").read_text()
    return "\n".join(re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL))


def test_every_command_shown_in_the_readme_exists() -> None:
    shown = set(re.findall(r"^(?:\$ )?(?:\.venv/bin/)?tickrail ([a-z-]+)", code(), re.MULTILINE))
    assert shown
    assert shown - set(cli.list_commands(click.Context(cli))) == set()

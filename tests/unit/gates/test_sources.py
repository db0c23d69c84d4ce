"""What holds for every file: its size, the addresses in it, its statements, its tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tree import ROOT, project_files

from tickrail.store import queries

LIMIT = 500
"""Lines of a source file."""

SOURCES = (".py", ".sql", ".md", ".toml", ".yml", ".yaml", ".sh", ".html", ".txt", ".lock", "")

REGISTRIES = re.compile(
    r"pyp[i]\.org|python[h]osted|mave[n]\.org|mave[n]\.apache|npm[j]s\.org|crate[s]\.io"
    r"|anacond[a]\.org|prox[y]\.golang|rubygem[s]\.",
    re.IGNORECASE,
)
"""Hosts of package registries. A letter stands in brackets so that the rule is no match itself."""
MACHINES = re.compile(r"/wor[k]/(shared|main|\.library)")
"""Folders of one person's machine."""

SKIPPED = re.compile(r"pytest\.(skip|xfail|importorskip)\(|mark\.(skip|skipif|xfail)\b")


def read(path: Path) -> str:
    """The text of a file, empty where it is not text."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def found(rule: re.Pattern[str], files: list[Path]) -> list[str]:
    """Where a rule matches: `file:line: text`."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files
        for number, line in enumerate(read(path).splitlines(), 1)
        if rule.search(line)
    ]


def test_no_source_is_longer_than_the_limit() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(read(path).splitlines())
        for path in project_files(".py", ".sql", ".sh")
    }
    assert len(sizes) > 100
    assert {name: size for name, size in sizes.items() if size > LIMIT} == {}


def test_no_file_names_a_package_registry() -> None:
    assert found(REGISTRIES, project_files(*SOURCES)) == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert found(MACHINES, project_files(*SOURCES)) == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (REGISTRIES, "index-url = https://pyp" + "i.org/simple"),
        (REGISTRIES, "https://repo1.maven" + ".org/maven2"),
        (MACHINES, "open('/work" + "/shared/x')"),
        (SKIPPED, "@pytest.mark." + "skipif(True)"),
        (SKIPPED, "pytest." + "skip('no server')"),
    ],
)
def test_each_rule_sees_its_breach(rule: re.Pattern[str], text: str) -> None:
    assert rule.search(text)


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    files = [p for p in project_files(".py") if p.is_relative_to(ROOT / "tests")]
    assert found(SKIPPED, files) == []


def test_every_hot_statement_has_a_name_and_a_sentence() -> None:
    files = sorted((ROOT / "libs/tickrail/store/sql").glob("*.sql"))
    assert files
    for path in files:
        text = path.read_text()
        named = re.findall(r"^-- name: (\w+)$", text, re.MULTILINE)
        assert list(queries.load(path.stem)) == named
        before = text.split("-- name: ", 1)[0]
        assert not [x for x in before.splitlines() if x and not x.startswith("--")], path.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: a\nselect 1\n", "no sentence"),
        ("-- name: a\n-- One.\nselect 1\n\n-- name: a\n-- Two.\nselect 2\n", "twice"),
    ],
)
def test_a_statement_without_a_sentence_or_with_a_taken_name_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql/planted.sql").write_text(text)
    monkeypatch.setattr(queries, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=message):
        queries.load("planted")


PATH = re.compile(r"\b((?:tests|docs|libs|services|loadtest)/[\w/.-]+\.[a-z]+)\b")


def test_every_path_named_in_production_leads_somewhere() -> None:
    rooms = [ROOT / "libs", ROOT / "services"]
    files = [p for p in project_files(".py", ".sql") if any(p.is_relative_to(r) for r in rooms)]
    named = {(str(p.relative_to(ROOT)), name) for p in files for name in PATH.findall(read(p))}
    assert {name for _, name in named} >= {"docs/protocols.md"}
    assert {(file, name) for file, name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("service", ["tickrail_scheduler", "tickrail_worker"])
def test_an_owner_and_a_worker_start_without_what_they_do_not_use(service: str) -> None:
    """A takeover waits for this start."""
    code = (
        f"import sys, {service}.main\n"
        "print([m for m in ('sqlalchemy', 'alembic', 'fastapi') if m in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.strip() == "[]"

"""`.ci/run`: what it holds, and that it refuses and fails when it must."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.tree import ROOT

RUN = ROOT / ".ci/run"
GATES = ["environment", "ruff check", "ruff format", "mypy", "import contracts"]
PARTS = [
    *GATES,
    "bill of materials",
    "audit",
    "etcd of the tests",
    "helm of the tests",
    "fuzz",
    "load",
]


def run(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_gate_is_a_part_before_the_tests() -> None:
    text = RUN.read_text()
    assert re.findall(r'^part "([^"]+)"', text, re.MULTILINE) == PARTS
    assert text.index("make --no-print-directory test") > text.index(f'part "{PARTS[-1]}"')


def test_a_python_that_is_too_old_or_none_is_refused() -> None:
    done = run(RUN, PYTHON="/bin/false")
    assert done.returncode == 2
    assert "Python 3.11 or newer" in done.stderr


@pytest.fixture
def rehearsal(tmp_path: Path) -> Path:
    """A project in which each gate is a program that does as it is told by a variable."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci/run")
    program = '#!/bin/sh\\n[ \\"$$BROKEN\\" != \\"$$(basename $$0)\\" ]\\n'
    makes = "\n".join(
        f"\tprintf '{program}' > $(VENV)/bin/{name} && chmod +x $(VENV)/bin/{name}"
        for name in ("python", "ruff", "mypy", "lint-imports")
    )
    (tmp_path / "Makefile").write_text(
        f"$(VENV)/.dev:\n\tmkdir -p $(VENV)/bin\n{makes}\n"
        'test:\n\t@[ "$$BROKEN" != tests ] && echo "== 1 passed in 0.01s =="\n'
        'fuzz:\n\t@[ "$$BROKEN" != fuzz ]\n'
        'audit:\n\t@[ "$$BROKEN" != audit ]\n'
        'load:\n\t@[ "$$BROKEN" != load ]\n'
    )
    return tmp_path / ".ci/run"


def test_it_ends_with_the_closing_lines_of_the_tests(rehearsal: Path) -> None:
    done = run(rehearsal)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "== 1 passed in 0.01s =="
    assert done.stdout.splitlines()[-2] == "== 1 passed in 0.01s =="
    timed = re.findall(r"^-- ([a-z ]+): \d+ s$", done.stdout, re.MULTILINE)
    assert timed == PARTS


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        ("ruff", "ruff check ruff format"),
        ("mypy", "mypy"),
        ("lint-imports", "import contracts"),
        ("tests", "tests"),
        ("fuzz", "fuzz"),
        ("load", "load"),
        ("audit", "audit"),
    ],
)
def test_a_failure_anywhere_fails_the_whole_and_is_named(
    rehearsal: Path, broken: str, part: str
) -> None:
    done = run(rehearsal, BROKEN=broken)
    assert done.returncode == 1
    assert f".ci/run: failed: {part}" in done.stderr
    assert ("== 1 passed" in done.stdout) == (broken != "tests")


def test_without_an_environment_nothing_else_is_tried(rehearsal: Path) -> None:
    done = run(rehearsal, BROKEN="python")
    assert done.returncode == 1
    assert "nothing was checked" in done.stderr
    assert "== mypy" not in done.stdout

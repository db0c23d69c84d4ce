"""The audit of the locks: what is known fails, a service that is away does not."""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.tree import ROOT

PROGRAM = runpy.run_path(str(ROOT / "requirements/audit.py"))
FOUND = {
    "name": "anyio",
    "version": "4.9.0",
    "vulns": [{"id": "GHSA-1", "aliases": ["CVE-2026-1"], "fix_versions": ["4.9.1"]}],
}
CLEAN = {"name": "click", "version": "8.1.0", "vulns": []}
LEFT_OUT = {"name": "colorama", "skip_reason": "not for this platform"}


def audit(
    locks: Sequence[Path], printed: str, *, away: Sequence[str | None] = (None,), **accepted: str
) -> tuple[int, list[str]]:
    answers = iter(away)
    done: Any = PROGRAM["audit"](
        [str(lock) for lock in locks],
        {name.replace("_", "-"): why for name, why in accepted.items()},
        ask=lambda _: (printed, "Traceback\nit broke"),
        away=lambda: next(answers),
    )
    return done


@pytest.fixture
def locks(tmp_path: Path) -> list[Path]:
    first, second = tmp_path / "first.lock", tmp_path / "second.lock"
    first.write_text("anyio==4.9.0 \\\n    --hash=sha256:0\n")
    second.write_text("anyio==4.9.0 \\\n    --hash=sha256:0\nclick==8.1.0 \\\n")
    return [first, second]


def test_no_known_vulnerability_passes_and_says_of_how_many_packages(locks: list[Path]) -> None:
    printed = json.dumps({"dependencies": [CLEAN, LEFT_OUT]})
    assert audit(locks, printed) == (0, ["2 packages, no known vulnerability"])


def test_a_known_vulnerability_fails_and_names_what_would_end_it(locks: list[Path]) -> None:
    printed = json.dumps({"dependencies": [FOUND, CLEAN]})
    assert audit(locks, printed) == (1, ["anyio 4.9.0: GHSA-1 = CVE-2026-1, fixed in 4.9.1"])


@pytest.mark.parametrize("name", ["GHSA_1", "CVE_2026_1"])
def test_one_that_is_accepted_passes_and_is_counted(locks: list[Path], name: str) -> None:
    printed = json.dumps({"dependencies": [FOUND]})
    status, lines = audit(locks, printed, **{name: "that function is not used"})
    assert (status, lines) == (0, ["2 packages, no known vulnerability, 1 known and accepted"])


@pytest.mark.parametrize("away", [("no route",), (None, "no route")])
def test_a_service_that_is_away_is_told_in_one_line_and_fails_nothing(
    locks: list[Path], away: Sequence[str | None]
) -> None:
    status, lines = audit(locks, "", away=away)
    assert status == 0
    (line,) = lines
    assert line.startswith("vulnerabilities not looked up: ")
    assert "no route" in line


def test_a_program_that_fails_although_the_service_answers_is_a_failure(locks: list[Path]) -> None:
    assert audit(locks, "", away=(None, None)) == (
        2,
        ["pip-audit failed:", "Traceback", "it broke"],
    )


def test_one_that_takes_too_long_fails_nothing(locks: list[Path]) -> None:
    def ask(_: Sequence[str]) -> tuple[str, str]:
        raise subprocess.TimeoutExpired("pip-audit", 1)

    status, lines = PROGRAM["audit"]([str(x) for x in locks], {}, ask=ask, away=lambda: None)
    assert status == 0
    assert len(lines) == 1


def test_each_accepted_one_has_its_reason() -> None:
    assert [name for name, why in PROGRAM["ACCEPTED"].items() if len(why.split()) < 4] == []

"""Options of the measuring programs that make no sense are refused before a server is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("option", "given"),
    [("--launches", "0"), ("--launches", "-5"), ("--rate", "0"), ("--tenants", "none")],
)
def test_a_history_needs_at_least_one_of_each(option: str, given: str) -> None:
    done = subprocess.run(
        [sys.executable, "loadtest/history.py", f"{option}={given}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    said = done.stderr.splitlines()[-1]
    assert said.endswith(f"argument {option}: is {given!r}; a whole number from 1 on")

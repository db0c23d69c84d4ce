"""The example is as good as the project: its own tests pass, and its README is true."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.support.tree import ROOT

SHOP = ROOT / "examples/shop"
README = (SHOP / "README.md").read_text()


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=SHOP,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass() -> None:
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert re.search(r"^10 passed", said, re.MULTILINE), said


def test_the_sessions_of_its_readme_go_as_shown() -> None:
    assert README.count(">>> ") == 5
    assert "5 items passed all tests" not in run("-m", "doctest", "README.md")
    said = run("-m", "doctest", "-v", "README.md")
    assert "5 passed and 0 failed" in said


def test_its_readme_names_every_job_and_task() -> None:
    for file in (SHOP / "jobs").glob("*.yaml"):
        assert f"jobs create -f jobs/{file.name}" in README
        assert file.stem.replace("-", "_") in README


@pytest.mark.parametrize("path", ["shop/tasks.py", "jobs", "tests/test_tasks.py"])
def test_what_its_readme_links_to_is_there(path: str) -> None:
    assert f"]({path})" in README
    assert (SHOP / path).exists()

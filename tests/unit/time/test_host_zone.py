"""The cases hold whatever zone the machine is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).with_name("test_cases.py")


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "Australia/Sydney", "Europe/London"])
def test_a47_cases_in_another_host_zone(zone: str) -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not a39",
            str(CASES),
        ],
        cwd=CASES.parents[3],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]

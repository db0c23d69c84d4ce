"""The cases hold whatever zone the machine is in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.schedules import at, cron, fires

CASES = Path(__file__).with_name("test_cases.py")


@pytest.fixture(params=["Australia/Sydney", "Europe/London", "Australia/Lord_Howe"])
def host_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process in another zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def test_a47_utc_on_a_host_in_another_zone(host_zone: str) -> None:
    assert time.tzname != ("UTC", "UTC"), host_zone
    found = fires(cron("0 * * * *"), at("2025-10-05T02:00Z"), 3)
    assert [text[11:16] for text in found] == ["03:00", "04:00", "05:00"]
    for text in ("00:59", "01:00", "01:01", "01:30", "01:59", "02:00"):
        hour, minute = text.split(":")
        found = fires(cron(f"{minute} {hour} * * *"), at("2022-10-29T12:00Z"), 2)
        assert found == [f"2022-10-30T{text}:00Z", f"2022-10-31T{text}:00Z"]


def test_a47_all_cases_on_a_host_in_another_zone() -> None:
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
        env=os.environ | {"TZ": "Australia/Lord_Howe"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]

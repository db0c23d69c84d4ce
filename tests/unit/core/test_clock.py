"""The machine's clock."""

from __future__ import annotations

import time
from datetime import UTC

import pytest

from tickrail.core.clock import SystemClock

READINGS = {time.CLOCK_BOOTTIME: 777.0, time.CLOCK_MONOTONIC: 5.0}


@pytest.fixture(autouse=True)
def readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was suspended for 772 s."""
    monkeypatch.setattr(time, "clock_gettime", READINGS.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)


def test_the_time_spent_suspended_counts() -> None:
    assert SystemClock().monotonic() == 777.0


def test_without_such_a_clock_the_ordinary_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert SystemClock().monotonic() == 5.0


def test_instants_are_aware() -> None:
    assert SystemClock().now().tzinfo is UTC

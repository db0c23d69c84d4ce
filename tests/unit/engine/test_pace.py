"""The rate of a redrive of many: exact over a minute, whatever the processes do meanwhile."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.support.clock import START

from tickrail.engine.letter_operations import BURST, Pace
from tickrail.engine.operations import BATCH

TURN = 0.02
"""Seconds that a batch takes."""


def times(
    rate: int, seconds: float, late: float, lull: tuple[float, float] = (0, 0)
) -> list[float]:
    """When letters go, if each look comes up to `late` seconds late and none in the lull."""
    rng, pace, now, found = random.Random(rate), Pace(1.0, START), 0.0, list[float]()
    while now < seconds:
        if lull[0] <= now < lull[1]:
            now = lull[1]
        pace = pace.now(START + timedelta(seconds=now), rate)
        count = min(BATCH, int(pace.tokens))
        found += [now] * count
        pace = Pace(pace.tokens - count, pace.at)
        wait = pace.wait(rate)
        now += TURN if wait == 0 else wait + rng.uniform(0, late)
    return found


@pytest.mark.parametrize("rate", [10, 60, 250, 1000, 6000, 60_000])
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_over_a_minute_it_is_exact_within_5_percent(rate: int, late: float) -> None:
    found = times(rate, 300, late)
    for began in (0.0, 60.0, 117.3, 200.0):
        count = sum(began <= t < began + 60 for t in found)
        assert abs(count - rate) <= max(1.0, 0.05 * rate)


@pytest.mark.parametrize("rate", [60, 1000, 6000])
def test_after_a_pause_nothing_is_made_up_for(rate: int) -> None:
    found = times(rate, 300, 0.5, lull=(100, 160))
    assert not [t for t in found if 100 <= t < 160]
    for began in (0.0, 140.0, 160.0, 161.0):
        count = sum(began <= t < began + 60 for t in found)
        assert count <= rate * (1 + BURST / 60) + 1


def test_a_slow_rate_is_waited_for() -> None:
    pace = Pace(0.0, START)
    assert pace.wait(1) == 60
    assert pace.now(START + timedelta(seconds=45), 1).wait(1) == pytest.approx(15)
    assert pace.now(START - timedelta(hours=1), 60).tokens == 0, "a clock that went back"

"""How much of a lane may wait in Kafka: what its workers start in a quarter of a second."""

from __future__ import annotations

import pytest

from tickrail.core.ports import Lane
from tickrail.engine.windows import FIRST, FLOOR, Windows

LANE = Lane("default", 1)
SHARE = 1000


def drive(windows: Windows, rate: float, seconds: float, *, crowd: bool = True) -> float:
    """A lane whose workers start at a rate; how long a message waits there at the end."""
    queued, now, step = 0, 100.0, 0.1
    windows.observe({LANE: queued}, [LANE], now)
    for _ in range(round(seconds / step)):
        room = windows.size(LANE, SHARE) - queued
        sent = max(0, room) if crowd else 1
        for _ in range(sent):
            windows.marked(LANE)
        if crowd:
            windows.hit(LANE)
        queued = max(0, queued + sent - round(rate * step))
        now += step
        windows.observe({LANE: queued}, [LANE], now)
    return queued / rate


@pytest.mark.parametrize("rate", [150, 400, 1000, 5000])
def test_a_message_waits_for_less_than_a_second_whatever_the_workers_do(rate: float) -> None:
    windows = Windows()
    assert drive(windows, rate, 5) <= 0.6
    # And the workers are kept busy: a look each tenth of a second finds enough for the next.
    assert windows.size(LANE, SHARE) >= min(SHARE, rate * 0.1)


def test_fast_workers_have_the_whole_share_within_a_second() -> None:
    windows = Windows()
    drive(windows, 20_000, 1)
    assert windows.size(LANE, SHARE) == SHARE


def test_the_slowest_workers_have_the_floor() -> None:
    windows = Windows()
    drive(windows, 1, 5)
    assert windows.size(LANE, SHARE) == FLOOR


def test_a_lane_with_room_keeps_its_window() -> None:
    windows = Windows()
    drive(windows, 10, 5, crowd=False)
    assert windows.size(LANE, SHARE) == FIRST
    assert windows.size(LANE, 8) == 8

"""How much of a lane may wait in Kafka: what its workers start in a quarter of a second."""

from __future__ import annotations

import pytest

from tickrail.core.ids import Partition
from tickrail.core.ports import Lane
from tickrail.engine.windows import FIRST, FLOOR, Windows

LANE = Lane("default", 1)
SHARE = 1000
STEP = 0.1


class Lanes:
    """A lane over some partitions whose workers start at a rate."""

    def __init__(self, partitions: int = 1) -> None:
        self.windows = Windows()
        self.queued = dict.fromkeys(map(Partition, range(partitions)), 0)
        self.now = 100.0
        self.started = 0
        self.see()

    def see(self) -> None:
        queued = {(LANE, p): n for p, n in self.queued.items() if n}
        self.windows.observe(queued, [LANE], self.now)

    def drive(
        self, rate: float, seconds: float, *, crowd: bool = True, dead: tuple[int, ...] = ()
    ) -> float:
        """Publish what there is room for; how long a message waits at the end.

        Args:
            rate: starts a second of all partitions.
            seconds: how long.
            crowd: as much waits as there is room for; else one comes each step.
            dead: partitions that nobody reads.
        """
        alive = [p for p in self.queued if p not in dead]
        for _ in range(round(seconds / STEP)):
            sent = 0
            while (crowd or not sent) and not self.windows.full(LANE, 0, SHARE):
                to = Partition(sent % len(self.queued))
                self.windows.marked(LANE, to)
                self.queued[to] += 1
                sent += 1
            for p in alive:
                begun = min(self.queued[p], round(rate * STEP / len(self.queued)))
                self.queued[p] -= begun
                self.started += begun
            self.now += STEP
            self.see()
        return sum(self.queued[p] for p in alive) / rate


@pytest.mark.parametrize("rate", [150, 400, 1000, 5000])
def test_a_message_waits_for_less_than_a_second_whatever_the_workers_do(rate: float) -> None:
    lane = Lanes()
    assert lane.drive(rate, 5) <= 0.6
    # And the workers are kept busy: a look each tenth of a second finds enough for the next.
    assert lane.windows.size(LANE, SHARE) >= min(SHARE, rate * 0.1)


def test_fast_workers_have_the_whole_share_within_a_second() -> None:
    lane = Lanes()
    lane.drive(20_000, 1)
    assert lane.windows.size(LANE, SHARE) == SHARE


def test_the_slowest_workers_have_the_floor() -> None:
    lane = Lanes()
    lane.drive(1, 5)
    assert lane.windows.size(LANE, SHARE) == FLOOR


def test_a_lane_with_room_keeps_its_window() -> None:
    lane = Lanes()
    lane.drive(10, 5, crowd=False)
    assert lane.windows.size(LANE, SHARE) == FIRST
    assert lane.windows.size(LANE, 8) == 8


@pytest.mark.parametrize("rate", [160, 480, 1600])
def test_partitions_that_nobody_reads_hold_up_no_other(rate: float) -> None:
    """A worker was killed; until Kafka gives its partitions to another nobody reads them."""
    lane = Lanes(16)
    lane.drive(rate, 3)
    before = lane.started
    lane.drive(rate, 2, dead=(0, 4, 8, 12))
    # What the living workers could start of their partitions, less a moment to notice.
    assert lane.started - before >= 0.75 * rate * 2 * 0.7


def test_of_partitions_that_stand_still_there_is_no_more_than_the_share_again() -> None:
    lane = Lanes(16)
    lane.drive(1600, 3)
    lane.drive(1600, 60, dead=(0, 4, 8, 12))
    assert sum(lane.queued.values()) <= 2 * SHARE


def test_a_partition_that_is_read_again_counts_again() -> None:
    lane = Lanes(2)
    lane.drive(200, 3, dead=(1,))
    assert not lane.windows.full(LANE, 0, SHARE)
    stood = lane.queued[Partition(1)]
    lane.drive(200, 0.2)
    assert lane.queued[Partition(1)] < stood
    assert lane.queued[Partition(1)] > lane.windows.size(LANE, SHARE)
    assert lane.windows.full(LANE, 0, SHARE)

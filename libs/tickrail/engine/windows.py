"""How much of each lane may be published and not started.

A message in Kafka waits for those before it, of whatever tenant. So a lane keeps as much there as
its workers start in a quarter of a second, between a floor and the owner's share: a tenant's only
launch waits for that and not for the crowd of another. Fast workers have the whole share, slow ones
less.

What stands in a partition that nobody reads (its worker was lost, and Kafka has not noticed yet) is
not counted, or it would hold up the others; of it there may be as much again as the share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tickrail.core.ids import Partition
from tickrail.core.ports import Lane, Place

FLOOR = 50
FIRST = 250
"""Where a lane begins."""
WAIT = 0.25
"""Seconds for which a message may wait in Kafka while workers are busy."""
STANDS_STILL = 5.0
"""A partition of which nothing was started while this many of it would have been, had it had its
part of the lane's starts. By chance that happens once in 150 times, and costs little."""
_LEAST = 0.1


class Windows:
    """What is published of an owner's lanes and not started, and how much that may be."""

    def __init__(self) -> None:
        self._sizes: dict[Lane, float] = {}
        self._queued: Counter[Place] = Counter()
        self._moving: Counter[Lane] = Counter()
        self._still: Counter[Lane] = Counter()
        self._missed: dict[Place, float] = {}  # starts that a partition had no part in
        self._before: Mapping[Place, int] = {}
        self._marked: Counter[Place] = Counter()
        self._hit: set[Lane] = set()
        self._at: float | None = None

    def size(self, lane: Lane, share: int) -> int:
        """How many of the lane may be on their way, of the owner's share."""
        return min(share, int(self._sizes.get(lane, FIRST)))

    def full(self, lane: Lane, under_way: int, share: int) -> bool:
        """Whether no more of the lane may be published now.

        Args:
            lane: of which something waits.
            under_way: how many were handed over and are not marked.
            share: of this owner.
        """
        moving = self._moving[lane] + under_way
        full = moving >= self.size(lane, share) or moving + self._still[lane] >= 2 * share
        if full:
            self._hit.add(lane)
        return full

    def marked(self, lane: Lane, partition: Partition) -> None:
        """One more is `queued`."""
        place = (lane, partition)
        self._marked[place] += 1
        self._queued[place] += 1
        (self._still if self._stands_still(place) else self._moving)[lane] += 1

    def observe(self, queued: Mapping[Place, int], lanes: Collection[Lane], now: float) -> None:
        """Take over what is `queued` now, and learn from it how many were started.

        Args:
            queued: by lane and partition, as just read.
            lanes: those of which something waits.
            now: the monotonic time.
        """
        self._queued = Counter(queued)
        if self._at is None or now - self._at >= _LEAST:
            if self._at is not None:
                self._learn(lanes, now - self._at)
            self._before = dict(queued)
            self._marked.clear()
            self._hit.clear()
            self._at = now
        self._count()

    def _count(self) -> None:
        self._moving.clear()
        self._still.clear()
        for place, count in self._queued.items():
            (self._still if self._stands_still(place) else self._moving)[place[0]] += count

    def _stands_still(self, place: Place) -> bool:
        return self._missed.get(place, 0.0) >= STANDS_STILL

    def _learn(self, lanes: Iterable[Lane], seconds: float) -> None:
        places = {*self._before, *self._marked}
        started = {
            p: max(0, self._before.get(p, 0) + self._marked[p] - self._queued[p]) for p in places
        }
        of_lane, parts = Counter[Lane](), Counter[Lane]()
        for place, count in started.items():
            of_lane[place[0]] += count
            parts[place[0]] += 1
        for place, count in started.items():
            if count or not self._queued[place]:
                self._missed.pop(place, None)
            else:
                lane = place[0]
                part = of_lane[lane] / parts[lane]
                self._missed[place] = self._missed.get(place, 0.0) + part
        self._count()
        for lane in lanes:
            if lane in self._hit:
                self._resize(lane, of_lane[lane] / seconds)

    def _resize(self, lane: Lane, rate: float) -> None:
        size = self._sizes.get(lane, float(FIRST))
        if self._moving[lane] <= size / 4:
            self._sizes[lane] = min(size * 2, 1e6)  # the workers were waiting
        else:
            self._sizes[lane] = max(FLOOR, size / 2, min(size * 2, WAIT * rate))

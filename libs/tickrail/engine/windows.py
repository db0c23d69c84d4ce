"""How much of each lane may be published and not started.

A message in Kafka waits for those before it, of whatever tenant. So a lane keeps as much there as
its workers start in a quarter of a second, between a floor and the owner's share: a tenant's only
launch waits for that and not for the crowd of another. Fast workers have the whole share, slow ones
less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tickrail.core.ports import Lane

FLOOR = 50
FIRST = 250
"""Where a lane begins."""
WAIT = 0.25
"""Seconds for which a message may wait in Kafka while workers are busy."""
_LEAST = 0.1


class Windows:
    """The windows of an owner's lanes, by what was seen of their starts."""

    def __init__(self) -> None:
        self._sizes: dict[Lane, float] = {}
        self._before: Mapping[Lane, int] = {}
        self._marked: Counter[Lane] = Counter()
        self._hit: set[Lane] = set()
        self._at: float | None = None

    def size(self, lane: Lane, share: int) -> int:
        """How many of the lane may be on their way, of the owner's share."""
        return min(share, int(self._sizes.get(lane, FIRST)))

    def hit(self, lane: Lane) -> None:
        """More would have been published had there been room."""
        self._hit.add(lane)

    def marked(self, lane: Lane) -> None:
        """One more is `queued`."""
        self._marked[lane] += 1

    def observe(self, queued: Mapping[Lane, int], lanes: Iterable[Lane], now: float) -> None:
        """Learn from what is `queued` now how many were started.

        Args:
            queued: by lane, as just read.
            lanes: those that matter now.
            now: the monotonic time.
        """
        if self._at is not None and now - self._at < _LEAST:
            return
        if self._at is not None:
            for lane in lanes:
                self._learn(lane, queued.get(lane, 0), now - self._at)
        self._before = dict(queued)
        self._marked.clear()
        self._hit.clear()
        self._at = now

    def _learn(self, lane: Lane, left: int, seconds: float) -> None:
        size = self._sizes.get(lane, float(FIRST))
        started = max(0, self._before.get(lane, 0) + self._marked[lane] - left)
        if lane not in self._hit:
            return
        if left <= size / 4:
            self._sizes[lane] = min(size * 2, 1e6)  # the workers were waiting
        else:
            wanted = WAIT * started / seconds
            self._sizes[lane] = max(FLOOR, size / 2, min(size * 2, wanted))

"""Which offset of a Kafka partition may be committed, when work ends out of order.

A tracker belongs to one assignment of one partition (topic, partition, generation). When the
partition is revoked its tracker goes too: results that come later are dropped, never committed.
"""

from __future__ import annotations

from collections import deque


class OffsetTracker:
    """The offsets handed out by one assignment of one partition, and which of them are done.

    Pure and not thread-safe: the thread that owns the consumer owns the trackers.
    """

    __slots__ = ("_committed", "_next", "_open", "_pending", "generation", "limit")

    def __init__(self, generation: int = 0, limit: int = 1000) -> None:
        """An empty window.

        Args:
            generation: the assignment it belongs to.
            limit: how many offsets may be open or done behind an open one before `full`.
        """
        self.generation = generation
        self.limit = limit
        self._open: deque[int] = deque()  # handed out, in order, from the first that is not done
        self._pending: set[int] = set()  # those of _open that are not done
        self._next: int | None = None  # one past the highest offset below which all is done
        self._committed: int | None = None

    def add(self, offset: int) -> bool:
        """Take an offset into the window; False if it, or a later one, was taken before."""
        opened = self._open
        last = opened[-1] if opened else self._next - 1 if self._next is not None else -1
        if offset <= last:
            return False
        opened.append(offset)
        self._pending.add(offset)
        return True

    def done(self, offset: int) -> bool:
        """Record that an offset needs nothing more; False (an ordinary answer) if not open."""
        pending = self._pending
        if offset not in pending:
            return False
        pending.discard(offset)
        opened = self._open
        while opened and opened[0] not in pending:
            self._next = opened.popleft() + 1
        return True

    def committable(self) -> int | None:
        """One past the highest offset below which everything is done, if not committed yet.

        This is Kafka's convention for a committed offset: the next one to read.
        """
        return self._next if self._next != self._committed else None

    def committed(self, position: int) -> None:
        """Record that a position was committed, so that it is not asked for again."""
        self._committed = position

    @property
    def window(self) -> int:
        """Offsets held: open ones, and done ones behind an open one."""
        return len(self._open)

    @property
    def open(self) -> int:
        """Offsets handed out and not done."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        """Whether the partition should be paused."""
        return len(self._open) >= self.limit

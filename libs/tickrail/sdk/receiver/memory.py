"""Idempotency keys in the memory of one process: for tests, and for receivers of one process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from tickrail.core.clock import Clock, SystemClock
from tickrail.sdk.receiver.store import (
    Answer,
    Begun,
    Record,
    Started,
    State,
    decide,
    number,
)

KEEP = timedelta(days=1)
"""How long a key is kept after it was last begun or finished."""


@dataclass(slots=True)
class _Entry:
    fence: int
    holder: int
    state: State
    lease_until: float
    expires_at: float
    answer: Answer | None = None


class MemoryStore:
    """`IdempotencyStore` in memory; forgets all with its process."""

    def __init__(self, keep: timedelta = KEEP, clock: Clock | None = None) -> None:
        """Empty.

        Args:
            keep: how long a key is kept after it was last begun or finished.
            clock: measures that, and leases.
        """
        self._keep = keep.total_seconds()
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, key: str, fence: int | None, lease: float) -> Begun:
        """As the port says."""
        mine, now = number(fence), self._clock.monotonic()
        with self._lock:
            self._forget(now)
            entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry(mine, mine, "started", now + lease, now + self._keep)
                return Started()
            record = Record(
                entry.fence, entry.holder, entry.state, entry.lease_until - now, entry.answer
            )
            begun = decide(record, mine)
            entry.fence = max(entry.fence, mine)
            if isinstance(begun, Started):
                entry.holder, entry.state, entry.lease_until = mine, "started", now + lease
                self._touch(key, entry, now)
            return begun

    def finish(self, key: str, fence: int | None, answer: Answer) -> bool:
        """As the port says."""
        mine = number(fence)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != mine or entry.state == "free":
                return False
            entry.state, entry.answer = "done", answer
            self._touch(key, entry, self._clock.monotonic())
            return True

    def abandon(self, key: str, fence: int | None) -> bool:
        """As the port says."""
        mine = number(fence)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.holder != mine or entry.state != "started":
                return False
            entry.state = "free"
            return True

    def _touch(self, key: str, entry: _Entry, now: float) -> None:
        entry.expires_at = now + self._keep
        self._entries.move_to_end(key)

    def _forget(self, now: float) -> None:
        # In the order of their last touch: the first are the oldest.
        while self._entries and next(iter(self._entries.values())).expires_at <= now:
            self._entries.popitem(last=False)

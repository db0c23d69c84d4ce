"""Values that are read elsewhere and kept for a moment, for calls on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Generic, TypeVar

from tickrail.core.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_MOST = 10_000


class Kept(Generic[K, V]):
    """Reads a value in a thread, once for all who ask at the same time. Lives on one loop."""

    def __init__(
        self, read: Callable[[K], V], threads: Executor, clock: Clock, seconds: float
    ) -> None:
        """Nothing kept yet.

        Args:
            read: gets a value; may block, may raise.
            threads: where it is called.
            clock: measures how long a value is kept.
            seconds: for so long.
        """
        self._read = read
        self._threads = threads
        self._clock = clock
        self._seconds = seconds
        self._values: dict[K, tuple[float, V]] = {}
        self._reading: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """The value; raises what `read` raises."""
        kept = self._values.get(key)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(self._fetch(key))
            task.add_done_callback(_heard)
        return await asyncio.shield(task)

    async def _fetch(self, key: K) -> V:
        try:
            loop = asyncio.get_running_loop()
            began = self._clock.monotonic()
            value = await loop.run_in_executor(self._threads, self._read, key)
            if len(self._values) >= _MOST:
                self._values.clear()
            self._values[key] = (began + self._seconds, value)
            return value
        finally:
            del self._reading[key]


def _heard(task: asyncio.Task[V]) -> None:
    """Whoever asked may have gone: an error nobody waits for is none to complain about."""
    if not task.cancelled():
        task.exception()

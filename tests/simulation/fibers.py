"""Turns that wait: each on a thread of its own, of which exactly one runs at any moment.

A thread runs what is to come until a turn of its own waits; then another one goes on. Who runs is
decided by the heap of the kernel alone, so the same seed is the same history.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Fiber:
    """A thread that runs only while it has the baton, a lock that is released for it alone."""

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.body: Callable[[Fiber], None] = lambda _fiber: None
        threading.Thread(target=self._loop, daemon=True, name="fiber").start()

    def _loop(self) -> None:
        while True:
            self.baton.acquire()
            self.body(self)


_IDLE: list[Fiber] = []
os.register_at_fork(after_in_child=_IDLE.clear)  # a child of this process has none of the threads


def go_on(body: Callable[[Fiber], None]) -> None:
    """Have an idle thread do this; the caller must wait for its own baton then, or end."""
    fiber = _IDLE.pop() if _IDLE else Fiber()
    fiber.body = body
    fiber.baton.release()


def rest(fiber: Fiber) -> None:
    """The thread has nothing more to do; call it last before the baton is given away."""
    _IDLE.append(fiber)

"""Threads that do not keep a process alive: what cannot be stopped must not hold its end up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class DaemonThreads:
    """Does work on daemon threads, so many at a time; more waits in order. Thread-safe.

    The pool of the standard library waits for its threads when the interpreter ends.
    """

    def __init__(self, most: int, name: str) -> None:
        """No thread yet: one is made when there is work and none is free.

        Args:
            most: how many threads.
            name: what they are called.
        """
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._threads = 0
        self._made = 0

    def submit(self, work: Work) -> None:
        """Do it as soon as a thread is free. It must not raise."""
        with self._lock:
            self._waiting.append(work)
            if self._threads >= self._most:
                return
            self._threads += 1
            self._made += 1
            name = f"{self._name} {self._made}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def withdraw(self, work: Work) -> bool:
        """Take back what has not begun; whether that was so."""
        with self._lock:
            try:
                self._waiting.remove(work)
            except ValueError:
                return False
            return True

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            work()

"""Time that stands still until somebody moves it, for tests of tasks."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Where a FakeClock begins unless told otherwise."""


class FakeClock:
    """A clock that stands still until somebody moves it.

    Args:
        now: where it begins, aware.
    """

    def __init__(self, now: datetime = START) -> None:
        if now.tzinfo is None:
            raise ValueError("a FakeClock begins at an aware instant")
        self._start = now.astimezone(UTC)
        self._passed = 0.0

    def now(self) -> datetime:
        """The present instant, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds since it began."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._passed += seconds


class FakeFlag:
    """Stands for a `threading.Event`: to wait for it lets the fake time pass.

    Args:
        clock: the time.
        look: raises the flag if it is time; answers when it will be, by the monotonic clock.
    """

    def __init__(self, clock: FakeClock, look: Callable[[], float]) -> None:
        self._clock = clock
        self._look = look
        self._set = False

    def set(self) -> None:
        """Raise it, for good."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it is raised by now."""
        self._look()
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Let time pass until it is raised, so many seconds at most; whether it is."""
        left = self._look() - self._clock.monotonic()
        if not self._set:
            self._clock.advance(max(0.0, left if timeout is None else min(left, timeout)))
        return self.is_set()


class FakeLoop(asyncio.SelectorEventLoop):
    """An event loop that lives in a fake clock's time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_FakeSelector(clock))
        self._fake = clock

    def time(self) -> float:
        """The fake clock's."""
        return self._fake.monotonic()


class _FakeSelector(selectors.DefaultSelector):
    """Lets the fake time pass where a loop would sleep."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._fake = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # for another thread
            return super().select(None)
        self._fake.advance(timeout)
        return super().select(0)

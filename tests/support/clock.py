"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
"""A Monday in winter time: where a FakeClock begins unless told otherwise."""


class FakeClock:
    """A `tickrail.core.clock.Clock` in the hands of a test. Safe to use from several threads."""

    def __init__(self, now: datetime = START, monotonic: float = 1000.0) -> None:
        if now.tzinfo is None:
            raise ValueError("a FakeClock starts at an aware instant")
        self._lock = threading.Lock()
        self._now = now.astimezone(UTC)
        self._monotonic = monotonic

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass: both readings move on."""
        if seconds < 0:
            raise ValueError("time does not go back; use set_now for a clock that was set back")
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def set_now(self, now: datetime) -> None:
        """Set the wall clock alone, as an operator or NTP would; monotonic() stays."""
        if now.tzinfo is None:
            raise ValueError("set_now takes an aware instant")
        with self._lock:
            self._now = now.astimezone(UTC)

    def set_monotonic(self, seconds: float) -> None:
        """Set the monotonic reading alone, as a restart of the machine would."""
        with self._lock:
            self._monotonic = seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, forth or back."""
        with self._lock:
            self._now += timedelta(seconds=seconds)

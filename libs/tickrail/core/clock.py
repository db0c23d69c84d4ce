"""The one door to time.

Instants are timezone-aware UTC datetimes and travel as arguments; durations are differences of
`monotonic()`. Only this file reads a clock; everything else is handed one, so tests step time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back, counts the time spent suspended."""
        ...


class SystemClock:
    """The clock of this machine.

    `monotonic()` reads CLOCK_BOOTTIME where there is one (Linux), since CLOCK_MONOTONIC stands
    still while a machine or its virtual host is suspended, and a lease does not.
    """

    def __init__(self) -> None:
        self._boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads the wall clock

    def monotonic(self) -> float:
        """Seconds since boot, the time spent suspended included where the system counts it."""
        if self._boottime is not None:
            return time.clock_gettime(self._boottime)
        return time.monotonic()  # noqa: TID251 - the one place that reads the monotonic clock

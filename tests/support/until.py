"""Waiting for a real server: a condition is polled until a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tickrail.core.clock import SystemClock

_CLOCK = SystemClock()
_PAUSE = threading.Event()


def until(condition: Callable[[], object], seconds: float = 10, every: float = 0.01) -> float:
    """Wait until the condition is true; the seconds that took. AssertionError at the deadline."""
    began = _CLOCK.monotonic()
    while not condition():
        waited = _CLOCK.monotonic() - began
        assert waited < seconds, f"not so within {seconds} s"
        _PAUSE.wait(every)
    return _CLOCK.monotonic() - began


def pause(seconds: float) -> None:
    """Let real time pass, where a test measures what happens in it."""
    _PAUSE.wait(seconds)

"""Keeps processes running: what ends is started again, after a pause that grows.

The decision is made by `run_once` from the clock it is handed; whoever calls it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError

_log = structlog.get_logger("tickrail.up")

FIRST_PAUSE = 0.5
"""Seconds before the first restart; each further one waits twice as long."""
LONGEST_PAUSE = 30.0
"""Seconds that no restart waits longer than."""
SETTLED = 60.0
"""A process that lived so many seconds begins with the first pause again."""
LOOK_EVERY = 0.2


class Child(Protocol):
    """A process that is to run."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How it ended last (negative: by this signal); None while it runs or never did."""
        ...

    def start(self) -> None:
        """Start it.

        Raises:
            OSError, TickrailError: it cannot be started now.
        """
        ...


def pause_before(restarts: int) -> float:
    """Seconds to wait before the next restart, after so many short lives in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(restarts, 16))


@dataclass
class _Kept:
    child: Child
    started: float = 0.0
    short_lives: int = 0
    start_at: float | None = None
    """When to start it; None while it is held to run."""


class Supervisor:
    """Starts each child and starts it again when it ended.

    Args:
        children: what is to run.
        clock: measures lives and pauses.
    """

    def __init__(self, children: Sequence[Child], clock: Clock) -> None:
        self._clock = clock
        self._kept = [_Kept(child) for child in children]
        self.restarts: dict[str, int] = {child.name: 0 for child in children}

    def start(self) -> None:
        """Start those that do not run yet; one that cannot be started is tried again later."""
        now = self._clock.monotonic()
        for kept in self._kept:
            kept.started = now
            if not kept.child.alive:
                self._start(kept, now)

    def run_once(self) -> float:
        """Look at each child once; the seconds after which to look again."""
        now = self._clock.monotonic()
        for kept in self._kept:
            if kept.start_at is None and not kept.child.alive:
                self._ended(kept, now)
            if kept.start_at is not None and kept.start_at <= now:
                self.restarts[kept.child.name] += 1
                self._start(kept, now)
        return LOOK_EVERY

    def _ended(self, kept: _Kept, now: float) -> None:
        if now - kept.started >= SETTLED:
            kept.short_lives = 0
        pause = pause_before(kept.short_lives)
        kept.short_lives += 1
        kept.start_at = now + pause
        _log.warning(
            "ended",
            child=kept.child.name,
            how=how(kept.child.exit_code),
            lived=round(now - kept.started, 1),
            again_in=pause,
        )

    def _start(self, kept: _Kept, now: float) -> None:
        kept.started, kept.start_at = now, None
        try:
            kept.child.start()
        except (OSError, TickrailError) as error:
            pause = pause_before(kept.short_lives)
            kept.short_lives += 1
            kept.start_at = now + pause
            _log.error("cannot start", child=kept.child.name, reason=str(error), again_in=pause)


def how(exit_code: int | None) -> str:
    """An exit code in words."""
    if exit_code is None:
        return "unknown"
    return f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"

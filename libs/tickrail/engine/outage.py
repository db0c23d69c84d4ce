"""An outage is said once when it begins and once when it ends, not at each try in between."""

from __future__ import annotations

import random
import threading

import structlog

from tickrail.core.clock import Clock

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 1.0
_LOG = structlog.get_logger()


class Outage:
    """Whether one server answers: the log lines, and how long to wait before the next try.

    Safe to use from several threads.

    Args:
        server: the server's name in the log lines.
        clock: measures the length of the outage.
        rng: the source of the jitter.
    """

    def __init__(self, server: str, clock: Clock, rng: random.Random) -> None:
        self._server = server
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._since: float | None = None
        self._delay = _FIRST_DELAY

    @property
    def ongoing(self) -> bool:
        """Whether the last call failed."""
        return self._since is not None

    def failed(self, error: Exception) -> float:
        """A call failed; the seconds to wait before the next (0.1 s doubling to 1 s, jittered)."""
        with self._lock:
            began = self._since is None
            if began:
                self._since = self._clock.monotonic()
                self._delay = _FIRST_DELAY
            delay = self._delay
            self._delay = min(_LONGEST_DELAY, delay * 2)
        if began:
            _LOG.warning("server away", server=self._server, error=str(error))
        return delay * self._rng.uniform(0.5, 1.0)

    def answered(self) -> None:
        """A call succeeded."""
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            seconds = round(self._clock.monotonic() - since, 3)
            _LOG.info("server back", server=self._server, seconds_away=seconds)

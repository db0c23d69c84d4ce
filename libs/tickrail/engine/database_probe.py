"""A look at PostgreSQL now and then: does it answer, does the clock agree, which generation."""

from __future__ import annotations

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError
from tickrail.core.ports_ownership import FenceStore
from tickrail.engine.outage import Outage

_LOG = structlog.get_logger()


class DatabaseProbe:
    """What the last look showed. Written by one thread; the attributes may be read by any.

    Attributes:
        up: whether PostgreSQL answered.
        clock_right: whether the local clock agreed with the database's when that last answered.
        clock_skew: by how many seconds the local clock was ahead.
        generation: the installation's generation.
        next_at: the monotonic reading of the next look.
        answered_at: the monotonic reading when the last look that was answered was sent.

    Args:
        store: the fence in PostgreSQL.
        clock: the local clock.
        outage: says when PostgreSQL goes and comes.
        every: seconds between two looks.
        tolerance: seconds the local clock may be off, half the round trip not counted.
    """

    def __init__(
        self, store: FenceStore, clock: Clock, outage: Outage, *, every: float, tolerance: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._outage = outage
        self._every = every
        self._tolerance = tolerance
        self.up = False
        self.clock_right = False
        self.clock_skew = 0.0
        self.generation = 0
        self.next_at = float("-inf")
        self.answered_at = float("-inf")

    def look(self) -> None:
        """Look, if it is time to."""
        sent = self._clock.monotonic()
        if sent < self.next_at:
            return
        local = self._clock.now()
        try:
            database = self._store.database_now()
            took = self._clock.monotonic() - sent
            self.generation = self._store.generation()
        except UnavailableError as error:
            self.failed(error)
            return
        self._outage.answered()
        self.up = True
        self.answered_at = sent
        self.next_at = self._clock.monotonic() + self._every
        # The database read its clock somewhere in the round trip; its middle is the best guess.
        self.clock_skew = (local - database).total_seconds() + took / 2
        right = abs(self.clock_skew) <= self._tolerance + took / 2
        if right and not self.clock_right:
            _LOG.info("local clock agrees with the database", skew_seconds=self.clock_skew)
        elif self.clock_right and not right:
            _LOG.error("local clock is wrong", skew_seconds=self.clock_skew)
        self.clock_right = right

    def troubles(self) -> dict[str, str]:
        """What the last look found wrong, in words: `postgres` or `clock`."""
        if not self.up:
            return {"postgres": "does not answer"}
        if not self.clock_right:
            off = f"{self.clock_skew:+.3f} s off the database's"
            return {"clock": f"this machine's clock is {off}"}
        return {}

    def failed(self, error: UnavailableError) -> None:
        """PostgreSQL did not answer, here or to another call of the owner's."""
        self.up = False
        self.next_at = self._clock.monotonic() + self._outage.failed(error)

"""A look at a server for a readiness answer, which must not wait as long as the server may."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tickrail.core.clock import Clock

WITHIN = 2.0
"""Seconds that an answer waits for the look."""


class Look:
    """Looks when it is asked to, on a thread of its own, and waits only so long for what it finds.

    A server that is frozen keeps a look for as long as the connection's timeouts allow. That look
    goes on; who asks meanwhile is told how long it has taken. Never are two under way. Safe to use
    from several threads.

    Args:
        server: what the problem is called.
        look: finds what is wrong, in words by name; empty when nothing is.
        clock: measures.
        within: seconds that `read` waits.
    """

    def __init__(
        self,
        server: str,
        look: Callable[[], Mapping[str, str]],
        clock: Clock,
        *,
        within: float = WITHIN,
    ) -> None:
        self._server = server
        self._look = look
        self._clock = clock
        self._within = within
        self._changed = threading.Condition()
        self._began: float | None = None
        self._ended = 0
        self._found: Mapping[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """What is wrong now; that there is no answer, where the look takes longer."""
        with self._changed:
            if self._began is None:
                self._began = self._clock.monotonic()
                threading.Thread(target=self._run, name=f"look {self._server}", daemon=True).start()
            began, ended = self._began, self._ended
            if self._changed.wait_for(lambda: self._ended != ended, self._within):
                return self._found
        waited = max(self._within, self._clock.monotonic() - began)
        return {self._server: f"no answer for {waited:.0f} s"}

    def _run(self) -> None:
        try:
            found = self._look()
        except Exception as e:  # noqa: BLE001 - whatever it is, the process is not ready
            found = {self._server: str(e) or type(e).__name__}
        with self._changed:
            self._found, self._began = found, None
            self._ended += 1
            self._changed.notify_all()

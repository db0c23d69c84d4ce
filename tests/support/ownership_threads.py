"""Ownership in real threads, as a process runs it, for tests on real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tickrail.core.clock import SystemClock
from tickrail.core.ports_ownership import Coordinator, FenceStore
from tickrail.engine.ownership import Ownership, OwnershipSettings


class OwnershipThreads:
    """The two loops in two threads, the watch wakes the first. `die()` is a kill -9."""

    def __init__(
        self, settings: OwnershipSettings, coordinator: Coordinator, store: FenceStore
    ) -> None:
        self._woken = threading.Event()
        self._ended = threading.Event()
        self.errors: list[Exception] = []
        self._coordinator = coordinator
        self.ownership = Ownership(
            settings, coordinator, store, SystemClock(), wake=self._woken.set
        )
        self._threads = [
            threading.Thread(target=self._main, daemon=True),
            threading.Thread(target=self._renewals, daemon=True),
        ]

    def start(self) -> OwnershipThreads:
        self._coordinator.watch(self._woken.set)
        for one in self._threads:
            one.start()
        return self

    @property
    def count(self) -> int:
        return len(self.ownership.owned())

    def stop(self) -> None:
        """In good order."""
        self.ownership.stop()
        self.die()

    def die(self) -> None:
        """At once; keys and lease stay."""
        self._ended.set()
        self._woken.set()
        for one in self._threads:
            one.join(10)
        self._coordinator.close()

    def _main(self) -> None:
        while not self._ended.is_set():
            self._woken.clear()
            wait = self._guarded(lambda: self.ownership.run_once().next_in)
            self._woken.wait(wait)

    def _renewals(self) -> None:
        while not self._ended.wait(self._guarded(self.ownership.renew_once)):
            pass

    def _guarded(self, body: Callable[[], float]) -> float:
        try:
            return body()
        except Exception as error:  # noqa: BLE001 - kept for the test to look at
            self.errors.append(error)
            return 1.0

"""What a scheduler's metrics tell of its ownership: changes, and leases that were nearly lost."""

from __future__ import annotations

from typing import Protocol

from tickrail.core.ports_metrics import Metrics
from tickrail.engine.ownership_state import OwnershipResult, OwnershipStatus

NEARLY = 1 / 3
"""Of the trust window: with less left, one more renewal that fails may lose it."""


class Owning(Protocol):
    """The two loop bodies of `ownership.Ownership`, and its state."""

    def run_once(self) -> OwnershipResult:
        """Look at the servers, claim, hand over."""
        ...

    def renew_once(self) -> float:
        """Renew the lease if that is due."""
        ...

    def status(self) -> OwnershipStatus:
        """The present state."""
        ...


class LeaseWatch:
    """Turns the loops of ownership and counts what happens to it.

    A gauge is seen when it is scraped; a lease that was nearly lost in between is not. So it is
    looked at before and after each renewal, in the thread that renews.

    Args:
        ownership: is turned.
        metrics: where it is counted.
        window: the trust window in seconds.
    """

    def __init__(self, ownership: Owning, metrics: Metrics, window: float) -> None:
        self._ownership = ownership
        self._metrics = metrics
        self._narrow = NEARLY * window
        self._identity = ""
        self._owned = 0
        self._near = False

    def run_once(self) -> float:
        """One turn of ownership; the seconds until it wants to be called again."""
        result = self._ownership.run_once()
        for change, partitions in (("gained", result.gained), ("lost", result.lost)):
            if partitions:
                self._metrics.count("ownership_changes_total", len(partitions), change=change)
        return result.next_in

    def renew_once(self) -> float:
        """Renew the lease if that is due; the seconds until it wants to be called again."""
        self._look()
        wait = self._ownership.renew_once()
        self._look()
        return wait

    def _look(self) -> None:
        status = self._ownership.status()
        if self._identity and status.identity != self._identity and self._owned:
            self._metrics.count("leases_lost_total")
        near = bool(status.identity) and status.lease_remaining < self._narrow
        if near and not self._near:
            self._metrics.count("lease_nearly_lost_total")
        self._identity, self._owned, self._near = status.identity, len(status.owned), near

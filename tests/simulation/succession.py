"""A partition without an owner gets one in time, also while things go wrong elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.processes import PARTITIONS, TTL, Scheduler
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

WITHIN = TTL + 2.0
"""A dead owner's lease, and 2 seconds, as promised."""


class Succession:
    """Looks every now and then; knows since when a partition has no owner that may act.

    It is asked only of times in which the servers answer and every scheduler that lives is well:
    else a frozen or cut off member may be the one that should take it.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._free = dict.fromkeys(range(PARTITIONS), 0.0)

    def begin_again(self) -> None:
        """A scheduler is gone, or etcd was put back and gives leases their whole time again.

        Until the dead one's lease ends it may seem to be the one that takes the partition.
        """
        now = self._world.kernel.now
        self._free = {p: max(since, now) for p, since in self._free.items()}

    def look(self) -> None:
        """Compare with what is promised."""
        world, now = self._world, self._world.kernel.now
        living = world.schedulers()
        trusted = Counter(p for s in living for p in s.ownership.owned())
        twice = [p for p, trusts in trusted.items() if trusts > 1]
        if twice and not world.account.leases_were_taken:
            raise Violation("one trusts", f"two processes may act for {twice}")
        owned = {p for s in living if not s.owning.stuck for p in s.ownership.owned()}
        possible = bool(living) and self._possible() and all(map(self._is_well, living))
        for p, since in self._free.items():
            if not possible or p in owned:
                self._free[p] = now
                continue
            if now - since > WITHIN:
                raise Violation("a free partition is taken", f"{p} has no owner since {since:.3f}")

    def _possible(self) -> bool:
        kernel = self._world.kernel
        return not (kernel.noise or kernel.down["etcd"] or kernel.down["db"])

    def _is_well(self, one: Scheduler) -> bool:
        kernel, status = self._world.kernel, one.ownership.status()
        return (
            not one.owning.stuck
            and not status.refused
            and one.disturbed_until < kernel.now
            and one.clock.ahead == self._world.db.clock.ahead
            and one.reaches("etcd", kernel.now)
            and one.reaches("db", kernel.now)
        )

"""Brakes of the relay: it publishes no more under a limit than can be of use.

The claim is what keeps a limit. Without brakes a backlog under a small one would be published only
to be refused, and a paused queue's too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from tickrail.core.ids import TenantId
from tickrail.core.limits import INSTALLATION, QUEUE, Scope, shared_scopes
from tickrail.core.ports import Load, Publication

Pair = tuple[TenantId, str]
"""A tenant and a queue: what decides which limits a launch falls under."""
NO_LIMIT = 1 << 30
MAX_PAIRS = 2000
"""So many pairs are remembered; of others the limits are known only while some are due."""


class Brakes:
    """What may still be published under each limit, renewed at each scan."""

    def __init__(self) -> None:
        self._rooms: dict[Scope, int] = {}
        self._scopes: dict[Pair, tuple[Scope, ...]] = {}
        self._air: Counter[Pair] = Counter()
        self._pairs: dict[Pair, None] = {}
        self._paused: set[Scope] = set()
        self._limited = False

    @property
    def pairs(self) -> Collection[Pair]:
        """Tenants and queues whose limits are to be read at each scan."""
        return self._pairs

    def learn(self, p: Publication) -> bool:
        """Remember its tenant and queue; whether their limits must be read first."""
        pair = (p.tenant, p.queue)
        if pair in self._pairs or len(self._pairs) >= MAX_PAIRS:
            return False
        self._pairs[pair] = None
        return self._limited

    def renew(
        self, loads: Mapping[Scope, Load], owned: int, partitions: int, *, any_: bool
    ) -> None:
        """Take over what a scan has read.

        Args:
            loads: the limits of the pairs.
            owned: how many partitions are this owner's, of
            partitions: all that there are; it has a share of each limit accordingly.
            any_: whether there are limits at all.
        """
        self._limited = any_
        self._rooms.clear()
        self._paused = {s for s, load in loads.items() if load.limit.paused}
        self._scopes.clear()
        if not any_:
            self._pairs.clear()
            return
        for scope, load in loads.items():
            window = load.limit.window(load.running)
            if window is not None:
                self._rooms[scope] = -(-window * owned // partitions) - load.under_way
        for (tenant, queue), count in self._air.items():
            for scope in shared_scopes(tenant, queue):
                if scope in self._rooms:
                    self._rooms[scope] -= count

    def own(self, p: Publication) -> int:
        """How many more of its tenant and queue the tenant's limits let through."""
        if not self._rooms:
            return NO_LIMIT
        rooms = (self._rooms[s] for s in self._concerned(p) if s.tenant != INSTALLATION)
        return max(0, min(rooms, default=NO_LIMIT))

    def shared(self, queue: str) -> int:
        """How many more of a queue the limits of everybody let through."""
        return max(0, self._rooms.get(Scope(INSTALLATION, QUEUE, queue), NO_LIMIT))

    def paused(self, p: Publication) -> bool:
        """Whether its queue is paused, for everybody or for its tenant."""
        return bool(self._paused) and not self._paused.isdisjoint(self._concerned(p))

    def sent(self, p: Publication) -> None:
        """It was handed to the bus."""
        self._air[p.tenant, p.queue] += 1
        if self._rooms:
            for scope in self._concerned(p):
                self._rooms[scope] -= 1

    def landed(self, p: Publication) -> None:
        """It is marked as published, or was not delivered."""
        pair = (p.tenant, p.queue)
        self._air[pair] -= 1
        if self._air[pair] <= 0:
            del self._air[pair]

    def _concerned(self, p: Publication) -> tuple[Scope, ...]:
        pair = (p.tenant, p.queue)
        found = self._scopes.get(pair)
        if found is None:
            found = tuple(s for s in shared_scopes(*pair) if s in self._rooms)
            self._scopes[pair] = found
        return found

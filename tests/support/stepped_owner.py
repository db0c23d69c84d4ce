"""A scheduler process stepped by hand: ownership and the owner's loop in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd
from tests.support.memory_zone_data import MemoryZoneData
from tests.support.stepped import PARTITIONS, Counted, Stepped

from tickrail.core.ids import Epoch
from tickrail.engine.backfills import Backfills
from tickrail.engine.owner import OwnerLoop, OwnerParts
from tickrail.engine.ownership import Ownership, OwnershipSettings
from tickrail.engine.zone_data import ZoneData


@dataclass
class Process:
    """A scheduler process: ownership and the owner's loop, stepped by hand."""

    world: Stepped
    etcd: MemoryEtcd
    ownership: Ownership
    loop: OwnerLoop
    metrics: Counted

    def wait(self, seconds: float) -> None:
        """Let time pass; the lease is kept, the owner's loop stands still."""
        while seconds > 0:
            self.world.advance(min(1.0, seconds))
            seconds -= 1.0
            self.ownership.renew_once()


def make_process() -> Process:
    """The first one of a new installation; it owns every partition."""
    world = Stepped()
    world.take_over(Epoch(0))  # nobody has ever owned anything
    return join(world, MemoryEtcd(world.clock), "s-1")


def join(world: Stepped, etcd: MemoryEtcd, name: str) -> Process:
    """A process begins, and waits until it owns every partition: until an earlier one's lease ends.

    The earlier one is dead: its objects are not stepped any more.
    """
    world.begin_process()
    wakes: list[Callable[[], None]] = []
    ownership = Ownership(
        OwnershipSettings(name=name, partitions=PARTITIONS),
        MemoryCoordinator(etcd),
        world.db.fence,
        world.clock,
        healthy=lambda: True,
        wake=lambda: None,
        changed=lambda: [wake() for wake in wakes],
        rng=random.Random(1),
    )
    metrics = Counted()
    zones = ZoneData(MemoryZoneData(world.db), metrics)
    fills = Backfills(world.store, metrics)
    parts = OwnerParts(world.ticker, world.relayer, world.reaper, world.letters, zones, fills)
    loop = OwnerLoop(ownership, world.store, parts, world.clock, metrics)
    wakes.append(loop.wake)
    made = Process(world, etcd, ownership, loop, metrics)
    for _ in range(40):
        made.ownership.run_once()
        if len(made.ownership.owned()) == PARTITIONS:
            break
        world.advance(0.5)
    assert len(made.ownership.owned()) == PARTITIONS
    return made


def settle(process: Process, turns: int = 5) -> None:
    for _ in range(turns):
        process.loop.run_once()
        process.world.advance(0.02)

"""A small world: one etcd, one fence store, processes stepped by hand."""

from __future__ import annotations

import random
from typing import Any

from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd, MemoryFenceStore

from tickrail.core.ids import Partition, epoch_of
from tickrail.engine.ownership import Ownership, OwnershipSettings

PARTITIONS = 8


class Process:
    """A scheduler process as far as ownership goes."""

    def __init__(self, world: World, name: str, **settings: Any) -> None:
        self.clock = FakeClock(world.clock.now(), world.clock.monotonic())
        self.coordinator = MemoryCoordinator(world.etcd)
        self.healthy = True
        self.wakes = 0
        self.changes = 0
        self.ownership = Ownership(
            OwnershipSettings(name=name, partitions=world.partitions, **settings),
            self.coordinator,
            world.store,
            self.clock,
            healthy=lambda: self.healthy,
            wake=lambda: setattr(self, "wakes", self.wakes + 1),
            changed=lambda: setattr(self, "changes", self.changes + 1),
            rng=random.Random(name),
        )

    @property
    def owned(self) -> set[int]:
        return set(self.ownership.owned())

    def step(self, times: int = 1) -> Process:
        for _ in range(times):
            self.ownership.run_once()
        return self


class World:
    def __init__(self) -> None:
        self.partitions = PARTITIONS
        self.clock = FakeClock()
        self.etcd = MemoryEtcd(self.clock)
        self.store = MemoryFenceStore(self.clock, PARTITIONS)
        self.processes: list[Process] = []

    def process(self, name: str, **settings: Any) -> Process:
        one = Process(self, name, **settings)
        self.processes.append(one)
        return one

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for one in self.processes:
            one.clock.advance(seconds)

    def run(self, seconds: float, *processes: Process, every: float = 0.5) -> None:
        """Let time pass, these processes (default: all) stepping each `every` seconds."""
        passed = 0.0
        while passed < seconds:
            self.advance(every)
            passed += every
            for one in processes or self.processes:
                one.step()
                self.check()

    def check(self) -> None:
        """No partition is owned twice, and who may act holds the key and the fence."""
        seen: set[int] = set()
        for one in self.processes:
            for p, epoch in one.ownership.owned().items():
                assert p not in seen, f"partition {p} has two owners"
                seen.add(p)
                assert self.store.epochs[p] >= epoch
                key = self.etcd.owners[p]
                assert epoch_of(one.ownership.generation, key.create_revision) == epoch

    def key_set(self) -> set[int]:
        self.etcd.settle()
        return set(self.etcd.owners)


ALL = {Partition(p) for p in range(PARTITIONS)}

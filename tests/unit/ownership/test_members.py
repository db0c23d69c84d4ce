"""Counts for the metrics of a process that is no member."""

from __future__ import annotations

import threading

from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd
from tests.support.ownership_world import PARTITIONS, World

from tickrail.core.ids import Partition
from tickrail.engine.members import Census, Counts


def test_counts_are_read_again_after_some_seconds() -> None:
    clock = FakeClock()
    etcd = MemoryEtcd(clock)
    coordinator = MemoryCoordinator(etcd)
    census = Census(coordinator, 4, clock)
    assert census.read() == Counts(0, 4)
    lease = coordinator.grant(60).id
    coordinator.claim(Partition(1), "a-1", lease)
    coordinator.claim(Partition(9), "a-1", lease)  # of another P; not counted
    coordinator.claim(Partition(-1), "a-1", lease)
    assert census.read() == Counts(0, 4)
    clock.advance(3)
    assert census.read() == Counts(0, 3)
    assert coordinator.calls.count("snapshot") == 2


def test_without_etcd_nothing_is_known() -> None:
    clock = FakeClock()
    etcd = MemoryEtcd(clock)
    census = Census(MemoryCoordinator(etcd), 4, clock)
    assert census.read() == Counts(0, 4)
    etcd.down = True
    clock.advance(3)
    assert census.read() is None
    etcd.down = False
    assert census.read() is None
    clock.advance(3)
    assert census.read() == Counts(0, 4)


def test_who_comes_while_another_reads_does_not_wait() -> None:
    clock = FakeClock()
    coordinator = MemoryCoordinator(MemoryEtcd(clock))
    census = Census(coordinator, 4, clock)
    said: list[Counts | None] = []
    inside, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        inside.set()
        go_on.wait(10)

    coordinator.before["snapshot"] = stand
    reader = threading.Thread(target=lambda: said.append(census.read()))
    reader.start()
    assert inside.wait(10)
    assert census.read() is None
    go_on.set()
    reader.join(10)
    assert said == [Counts(0, 4)]


def test_a_member_knows_how_many_are_unowned_and_another_does_not(world: World) -> None:
    a = world.process("a")
    assert a.ownership.status().unowned is None
    a.step()
    world.advance(0.2)
    a.step()
    assert a.ownership.status().unowned == 0
    world.etcd.down = True
    world.run(10)
    assert a.ownership.status().unowned is None
    census = Census(a.coordinator, PARTITIONS, a.clock)
    world.etcd.down = False
    world.etcd.settle()
    assert census.read() == Counts(0, PARTITIONS)

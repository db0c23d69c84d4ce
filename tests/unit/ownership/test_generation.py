"""Whether a new generation is needed, and what the operator is told."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd, MemoryFenceStore
from tests.support.ownership_world import PARTITIONS, World

from tickrail.core.ids import Epoch, Partition, epoch_of
from tickrail.engine.generation import look, went_back


def test_an_etcd_that_goes_on_needs_none(world: World) -> None:
    a = world.process("a").step(2)
    found = look(world.store, a.coordinator)
    assert found.needed is False
    assert (found.members, found.owned) == (1, PARTITIONS)
    assert f"knows 1 members and {PARTITIONS} owned partitions" in found.words()


def test_one_that_went_back_needs_one_until_it_is_raised(world: World) -> None:
    a = world.process("a").step(2)
    world.etcd.restore(revision=2)
    world.run(1)
    found = look(world.store, a.coordinator)
    assert found.needed
    assert found.owned == 0
    assert a.ownership.status().refused
    world.store.stored_generation += 1
    assert look(world.store, a.coordinator).needed is False
    world.run(5)
    assert len(a.owned) == PARTITIONS


def test_without_etcd_it_is_not_known() -> None:
    clock = FakeClock()
    etcd, store = MemoryEtcd(clock), MemoryFenceStore(clock, 4)
    store.epochs[Partition(1)] = epoch_of(3, 700)
    store.stored_generation = 3
    etcd.down = True
    found = look(store, MemoryCoordinator(etcd))
    assert found.needed is None
    assert found.words() == (
        "PostgreSQL's highest epoch was made at revision 700 of generation 3; the generation is 3."
        " etcd does not answer."
    )


@pytest.mark.parametrize(
    ("generation", "revision", "highest", "back"),
    [(0, 5, 0, False), (0, 5, 4, False), (0, 5, 5, True), (0, 5, 9, True), (1, 5, 9, False)],
)
def test_the_comparison(generation: int, revision: int, highest: int, back: bool) -> None:
    assert went_back(generation, revision, Epoch(highest)) is back

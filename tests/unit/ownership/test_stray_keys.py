"""Owner keys that no scheduler made, and keys put over those of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.support.ownership_world import ALL, PARTITIONS, Process, World

from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import OwnerKey
from tickrail.engine.members import Census, Counts, MemberDirectory, PartitionState

Make = Callable[..., Process]
P0 = Partition(0)


@pytest.mark.parametrize("over_live_key", [True, False])
def test_an_owner_key_without_a_lease_is_no_owner(
    world: World, make: Make, over_live_key: bool
) -> None:
    a = make("a").step()
    first, key = a.ownership.status().identity, world.etcd.owners[P0]
    if over_live_key:
        ghost = replace(key, identity="ghost-00000000", lease=0)
    else:
        a.ownership.stop()
        world.processes.remove(a)
        a = make("a2")
        ghost = OwnerKey(P0, "ghost-00000000", 0, key.create_revision)
    world.etcd.owners[P0] = ghost
    assert Census(a.coordinator, PARTITIONS, a.clock).read() == Counts(
        1 if over_live_key else 0, 1 if over_live_key else PARTITIONS
    )
    with capture_logs() as logs:
        world.run(1)
    assert a.owned == ALL
    assert a.ownership.status().identity != first
    assert world.etcd.owners[P0].create_revision > key.create_revision
    said = [x for x in logs if x["event"] == "owner key without a lease deleted"]
    assert [(x["partition"], x["member"]) for x in said] == [(P0, "ghost-00000000")]


def test_a_key_put_over_ours_by_another_is_not_ours(world: World, make: Make) -> None:
    a = make("a").step()
    key = world.etcd.owners[P0]
    world.etcd.owners[P0] = replace(key, identity="x-1", lease=world.etcd.new_lease(30))
    a.step()
    assert a.owned == set()
    a.step()
    assert a.owned == ALL - {P0}
    world.run(31)
    assert a.owned == ALL


def test_a_key_without_a_lease_counts_as_unowned_until_somebody_may_take_it(
    world: World, make: Make
) -> None:
    world.etcd.owners[P0] = OwnerKey(P0, "ghost-00000000", 0, 7)
    a = make("a", weight=0.0)
    world.run(2)
    assert a.ownership.status().unowned == PARTITIONS
    views = MemberDirectory(a.coordinator).partitions({P0: Epoch(0)}, 0)
    assert views[P0].state is PartitionState.UNOWNED

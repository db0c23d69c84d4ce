"""Ownership, stepped by hand: claims and the fence."""

from __future__ import annotations

from collections.abc import Callable

from structlog.testing import capture_logs
from tests.support.ownership_world import ALL, PARTITIONS, Process, World

from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import DropReason
from tickrail.core.sharding import assign

Make = Callable[..., Process]
P0, P1 = Partition(0), Partition(1)


# -- claims ------------------------------------------------------------------------------------


def test_c03_a_claim_of_unknown_outcome_is_settled_by_reading(world: World, make: Make) -> None:
    a = make("a")
    a.coordinator.lose_reply = ["claim"]
    a.step()
    assert a.owned == set()
    assert len(world.key_set()) == 1
    a.step()
    assert a.owned == ALL
    assert a.coordinator.calls.count("claim") == PARTITIONS


def test_c03_a_failed_claim_is_not_ownership(make: Make) -> None:
    a = make("a")
    a.coordinator.fail_next = ["claim"] * 10
    for _ in range(10):
        assert a.step().owned == set()
    assert a.step().owned == ALL


def test_a_claim_that_lands_after_the_reading_is_given_back(world: World, make: Make) -> None:
    a = make("a")
    a.coordinator.fail_next = ["claim"]
    a.step()
    a.step()
    identity, (lease,) = a.ownership.status().identity, world.etcd.leases
    # The key of a partition that is not held appears under our name, long after the call failed.
    a.ownership.dropped(P0, DropReason.FENCE_HIGHER)
    a.step()
    make("late").coordinator.claim(P0, identity, lease)
    a.step()
    assert P0 not in a.owned
    assert P0 not in world.key_set()
    world.run(2, a)
    assert a.owned == ALL


def test_a_release_of_unknown_outcome_does_no_harm(world: World, make: Make) -> None:
    a = make("a").step()
    a.coordinator.lose_reply = ["release"]
    b = make("b")
    world.run(6)
    assert a.owned | b.owned == ALL
    assert b.owned


def test_a_quicker_claim_of_another_is_respected(world: World, make: Make) -> None:
    a = make("a")
    x = make("x")
    lease = world.etcd.new_lease(100)
    a.coordinator.before["claim"] = lambda: x.coordinator.claim(P0, "x-1", lease)
    a.step()
    assert a.owned == ALL - {P0}


# -- the fence ---------------------------------------------------------------------------------


def test_a_partition_is_not_owned_before_its_fence_is_raised(world: World, make: Make) -> None:
    world.store.locked = {P0}
    a = make("a")
    result = a.ownership.run_once()
    assert a.owned == ALL - {P0}
    assert world.key_set() == ALL
    assert result.next_in <= 0.2
    world.store.locked = set()
    a.step()
    assert a.owned == ALL


def test_rows_that_stay_locked_hold_up_no_other_partition(world: World, make: Make) -> None:
    world.store.locked = {P0, P1}
    a = make("a").step()
    assert a.owned == set(), "each waits for 2 s, so after two the loop looks at etcd again"
    a.step()
    assert a.owned == ALL - {P0, P1}


def test_two_raises_that_fail_end_the_round(world: World, make: Make) -> None:
    """Each may take 2 s; more of them would hold up renewals and member key."""
    tries: list[None] = []
    world.store.locked = set(ALL)
    world.store.before_raise = lambda: tries.append(None)
    a = make("a").step()
    assert len(tries) == 2
    a.step()
    assert len(tries) == 4


def test_a_higher_epoch_at_the_raise_gives_the_key_up(world: World, make: Make) -> None:
    a = make("a")
    raised = []

    def race() -> None:
        if not raised:
            raised.append(1)
            world.store.epochs[P0] = Epoch(10_000)

    world.store.before_raise = race
    a.step()
    assert P0 not in a.owned
    assert P0 not in world.key_set()


def test_the_fence_found_higher_steps_down_for_that_partition(world: World, make: Make) -> None:
    a = make("a").step()
    epoch = a.ownership.owned()[P0]
    a.ownership.dropped(P0, DropReason.FENCE_HIGHER, epoch)
    assert a.owned == ALL - {P0}
    a.step()
    assert P0 not in world.key_set()
    world.run(1.5)
    assert a.ownership.owned()[P0] > epoch


def test_a_partition_whose_fence_was_higher_is_left_alone_for_a_second(
    world: World, make: Make
) -> None:
    a = make("a").step()
    a.ownership.dropped(P0, DropReason.FENCE_HIGHER)
    a.step(5)
    assert P0 not in world.key_set()
    world.advance(0.9)
    a.step(2)
    assert P0 not in world.key_set()
    world.advance(0.2)
    a.step()
    assert P0 in a.owned


def test_the_fence_found_lower_is_raised_again_with_the_same_epoch(
    world: World, make: Make
) -> None:
    a = make("a").step()
    before = dict(a.ownership.owned())
    world.store.epochs[P0] = world.store.epochs[P1] = Epoch(1)
    a.ownership.dropped(P0, DropReason.FENCE_LOWER, before[P0])
    a.ownership.dropped(P1, DropReason.FENCE_LOWER)
    assert a.owned == ALL - {P0, P1}
    a.step()
    assert dict(a.ownership.owned()) == before
    assert world.store.epochs[P0] == before[P0]
    assert world.store.claims_advanced == 1


def test_a_report_about_an_earlier_epoch_is_ignored(make: Make) -> None:
    a = make("a").step()
    a.ownership.dropped(P0, DropReason.FENCE_HIGHER, Epoch(1))
    assert a.owned == ALL
    a.ownership.dropped(Partition(99), DropReason.FENCE_HIGHER)
    assert a.owned == ALL


def test_an_etcd_whose_revisions_went_back_is_refused_until_the_generation_is_raised(
    world: World, make: Make
) -> None:
    a = make("a").step()
    highest = max(world.store.epochs.values())
    world.etcd.restore(revision=2)
    world.run(20)
    assert a.owned == set()
    assert world.key_set() == set(), "not even a key is made"
    refused = a.ownership.status().refused
    assert f"revision {highest} of generation 0" in refused
    assert "tickrail system raise-generation" in refused
    world.store.stored_generation = 1
    world.run(4)
    assert a.owned == ALL
    assert a.ownership.status().refused == ""
    assert min(a.ownership.owned().values()) > highest


def test_an_etcd_that_goes_back_between_reading_and_claim_is_refused(
    world: World, make: Make
) -> None:
    a = make("a")
    world.store.epochs[P0] = Epoch(50)
    world.etcd.revision = 60

    def back() -> None:
        world.etcd.revision = 10

    a.coordinator.before["claim"] = back
    a.step()
    assert a.owned == set()
    assert a.ownership.status().refused
    assert world.key_set() == set()


def test_a_raised_generation_makes_members_enter_again(world: World, make: Make) -> None:
    a = make("a").step()
    before = dict(a.ownership.owned())
    world.store.stored_generation = 1
    world.run(4)
    assert a.owned == ALL
    assert all(epoch >= 1 << 48 > before[p] for p, epoch in a.ownership.owned().items())


# -- a fence row that is not there -------------------------------------------------------------


def test_a_missing_fence_row_keeps_its_partition_alone_and_says_so(
    world: World, make: Make
) -> None:
    for lost in (P0, Partition(3)):
        del world.store.epochs[lost]
    a, b = make("a"), make("b")
    with capture_logs() as logs:
        world.run(30)
    assert a.owned | b.owned == ALL - {P0, Partition(3)}
    assert a.owned
    assert b.owned
    assert world.key_set() == ALL - {P0, Partition(3)}
    assert [x.ownership.status().unowned for x in (a, b)] == [2, 2]
    said = [x for x in logs if x["event"] == "partition cannot be owned"]
    assert {x["partition"] for x in said} == {P0, Partition(3)}
    assert "no partition" in said[0]["error"]
    assert len(said) <= 4, "not at every try"
    world.store.epochs[P0] = world.store.epochs[Partition(3)] = Epoch(0)
    world.run(6)
    assert a.owned | b.owned == ALL


def test_a_partition_without_a_row_does_not_count_as_moving(world: World, make: Make) -> None:
    a, b = make("a", at_once=1).step(), make("b").step()
    a.step()
    wanted = assign(dict(a.ownership.status().members), PARTITIONS)
    wins = {p for p, who in wanted.items() if who == b.ownership.status().identity}
    lost = min(ALL - wins)
    del world.store.epochs[lost]
    a.ownership.dropped(lost, DropReason.FENCE_LOWER)
    world.run(8)
    assert len(wins) > 1
    assert (a.owned, b.owned) == (ALL - wins - {lost}, wins)


def test_a_partition_whose_row_goes_while_it_is_owned_is_given_up_alone(
    world: World, make: Make
) -> None:
    a = make("a").step()
    del world.store.epochs[P0]
    a.ownership.dropped(P0, DropReason.FENCE_LOWER)
    world.run(2)
    assert a.owned == ALL - {P0}
    assert P0 not in world.key_set()

"""Ownership, stepped by hand: joining, leaving, death, the trust window."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from tests.support.ownership_world import ALL, PARTITIONS, Process, World

from tickrail.core.ids import Partition, epoch_of
from tickrail.core.ports_ownership import Drain
from tickrail.core.sharding import assign

Make = Callable[..., Process]
P0, P1 = Partition(0), Partition(1)


# -- joining and leaving -----------------------------------------------------------------------


def test_the_first_member_takes_all_partitions_at_once(world: World, make: Make) -> None:
    a = make("a")
    result = a.ownership.run_once()
    assert result.gained == ALL
    assert a.owned == ALL
    assert a.changes == 1
    world.check()
    assert set(world.store.owners.values()) == {a.ownership.status().identity}


def test_the_epoch_is_the_keys_create_revision_with_the_generation_above(
    world: World, make: Make
) -> None:
    world.store.stored_generation = 3
    a = make("a").step()
    assert a.ownership.generation == 3
    for p, epoch in a.ownership.owned().items():
        assert epoch == epoch_of(3, world.etcd.owners[p].create_revision)
        assert world.store.epochs[p] == epoch


def test_a_second_member_gets_its_share_after_the_quiet_time_a_few_at_a_time(
    world: World, make: Make
) -> None:
    a, b = make("a", at_once=2).step(), make("b")
    b.step()
    a.step()
    assert a.owned == ALL
    world.run(1.5, every=0.5)
    assert b.owned == set()
    world.run(0.5)
    sizes = [len(a.owned)]
    assert sizes[0] == PARTITIONS - 2
    for _ in range(6):
        a.step()
        world.check()
        b.step()
        sizes.append(len(a.owned))
    assert all(before - after <= 2 for before, after in pairwise(sizes))
    wanted = assign(dict(a.ownership.status().members), PARTITIONS)
    assert a.owned == {p for p, who in wanted.items() if who.startswith("a-")}
    assert b.owned == ALL - a.owned
    assert b.owned


def test_what_was_handed_over_and_not_taken_yet_counts_as_moving(world: World, make: Make) -> None:
    a, b = make("a", at_once=2).step(), make("b").step()
    world.run(2.5, a)
    assert len(a.owned) == PARTITIONS - 2
    for _ in range(5):
        world.advance(0.5)
        b.ownership.renew_once()
        a.step()
        assert len(a.owned) == PARTITIONS - 2
        assert len(world.key_set()) == PARTITIONS - 2
    b.step()
    a.step(2)
    assert len(a.owned) == PARTITIONS - 4


def test_what_was_handed_over_has_a_higher_epoch(world: World, make: Make) -> None:
    a = make("a").step()
    before = dict(a.ownership.owned())
    b = make("b")
    world.run(4)
    assert b.owned
    assert all(epoch > before[p] for p, epoch in b.ownership.owned().items())


def test_a_stopped_member_is_replaced_at_the_next_step(world: World, make: Make) -> None:
    a = make("a").step()
    b = make("b")
    world.run(4)
    b.ownership.stop()
    assert b.owned == set()
    assert not world.etcd.leases.keys() - {world.etcd.members[m].lease for m in world.etcd.members}
    a.step()
    assert a.owned == ALL
    assert b.step().owned == set()


def test_stopping_wakes_the_others_and_deletes_the_member_key_first(
    world: World, make: Make
) -> None:
    a = make("a").step()
    woken: list[None] = []
    b = make("b")
    world.run(4)
    a.coordinator.watch(lambda: woken.append(None))
    b.coordinator.calls.clear()
    b.ownership.stop()
    assert woken
    assert b.coordinator.calls[0] == "remove_member"
    assert b.coordinator.calls[-1] == "revoke"


def test_stopping_without_etcd_leaves_the_lease_to_end(world: World, make: Make) -> None:
    a = make("a").step()
    world.etcd.down = True
    a.ownership.stop()
    assert a.owned == set()
    world.etcd.down = False
    assert world.key_set() == ALL
    world.advance(10)
    assert world.key_set() == set()


def test_more_members_than_partitions(world: World, make: Make) -> None:
    for i in range(PARTITIONS + 4):
        make(f"m{i}")
    world.run(15)
    owned = [one.owned for one in world.processes]
    assert set().union(*owned) == ALL
    assert sum(map(len, owned)) == PARTITIONS
    assert set() in owned


def test_flapping_members_never_let_live_partitions_move(world: World, make: Make) -> None:
    a = make("a").step()
    for i in range(6):
        flapper = make(f"f{i}").step()
        world.run(1, a, every=0.5)
        flapper.ownership.stop()
        world.processes.remove(flapper)
    assert a.owned == ALL


def test_a_member_that_dies_again_and_again_moves_nothing_between_the_others(
    world: World, make: Make
) -> None:
    a, b = make("a"), make("b")
    world.run(5)
    base, epochs = (a.owned, b.owned), dict(a.ownership.owned()) | dict(b.ownership.owned())
    touched: set[int] = set()
    for i in range(4):
        flapper = make(f"f{i}")
        world.run(5)
        assert flapper.owned == ALL - a.owned - b.owned
        touched |= flapper.owned
        world.processes.remove(flapper)  # kill -9
        world.run(11)
        assert (a.owned, b.owned) == base
    after = dict(a.ownership.owned()) | dict(b.ownership.owned())
    assert touched
    assert {p for p in ALL if after[p] != epochs[p]} == touched


def test_weight_zero_takes_nothing(world: World, make: Make) -> None:
    a = make("a", weight=0.0)
    world.run(30, a)
    assert a.owned == set()
    assert a.ownership.status().unowned == PARTITIONS


# -- death and takeover ------------------------------------------------------------------------


def test_a_dead_member_is_replaced_when_its_lease_ends(world: World, make: Make) -> None:
    a, b = make("a").step(), make("b")
    world.run(4)
    dead = b.owned
    assert dead
    world.run(6, a)
    assert a.owned == ALL - dead
    world.run(4.5, a)
    assert a.owned == ALL


def test_a_winner_that_does_not_claim_is_stood_in_for(world: World, make: Make) -> None:
    b, c = make("b").step(), make("c")
    world.run(4)
    stuck = b.owned
    assert stuck
    # b's loop does not turn, only its renewals go on; its keys are deleted by hand.
    for p in stuck:
        b.coordinator.release(p, world.etcd.owners[p].create_revision)
    c.step()

    def pass_time(steps: int) -> None:
        for _ in range(steps):
            world.advance(0.5)
            b.ownership.renew_once()
            c.step()

    pass_time(39)
    assert c.owned == ALL - stuck
    pass_time(1)
    assert c.owned == ALL, "after twice the TTL"
    pass_time(20)
    assert b.ownership.status().identity in world.etcd.members
    assert c.owned == ALL, "and it is not handed back to one that does not take it"


def test_a_member_that_takes_nothing_is_handed_no_more(world: World, make: Make) -> None:
    """Its lease lives and its loop does not turn: the first partition handed to it tells."""
    a = make("a", at_once=1).step()
    stuck = make("stuck").step()
    lowest, free = PARTITIONS, 0.0
    with capture_logs() as logs:
        for _ in range(180):
            world.advance(0.5)
            stuck.ownership.renew_once()
            a.step()
            lowest = min(lowest, len(a.owned))
            free += 0.5 * (PARTITIONS - len(world.key_set()))
    wins = sum(
        who.startswith("stuck-")
        for who in assign(dict(a.ownership.status().members), PARTITIONS).values()
    )
    assert wins > 2
    assert lowest == PARTITIONS - 1
    assert free <= 21, "seconds without an owner, of all partitions together"
    said = [x for x in logs if x["event"] == "member does not take what it is handed"]
    assert [x["member"].partition("-")[0] for x in said] == ["stuck"]
    world.run(3.5)  # it turns again
    assert a.owned == ALL
    world.run(30)
    assert len(stuck.owned) == wins


def test_a_drained_member_gives_even_what_the_next_one_does_not_take(
    world: World, make: Make
) -> None:
    a = make("a", at_once=1).step()
    stuck = make("stuck").step()
    for _ in range(50):
        world.advance(0.5)
        stuck.ownership.renew_once()
        a.step()
    assert len(a.owned) >= PARTITIONS - 1
    world.etcd.drains["a"] = Drain("a")
    a.step()
    assert a.owned == set()


# -- trust window and lease --------------------------------------------------------------------


def test_without_etcd_ownership_ends_before_the_lease_can(world: World, make: Make) -> None:
    a = make("a").step()
    world.etcd.down = True
    world.advance(8.9)
    assert a.owned == ALL
    assert a.ownership.trusted()
    world.advance(0.1)
    assert a.owned == set()
    assert not a.ownership.trusted()
    assert world.key_set() == ALL


def test_trust_counts_from_the_sending_not_from_the_answer(world: World, make: Make) -> None:
    a = make("a").step()
    world.advance(3)
    a.coordinator.before["renew"] = lambda: world.advance(2)
    a.step()
    assert a.ownership.status().lease_remaining == pytest.approx(7)


def test_the_first_window_counts_from_the_sending_too(world: World, make: Make) -> None:
    a = make("a")
    a.coordinator.before["grant"] = lambda: world.advance(2)
    a.step()
    assert a.ownership.status().lease_remaining == pytest.approx(7)


def test_an_answer_after_the_window_does_not_open_it_again(world: World, make: Make) -> None:
    a = make("a").step()
    first = a.ownership.status().identity
    world.advance(3)
    a.coordinator.before["renew"] = lambda: world.advance(6)
    a.ownership.renew_once()
    assert not a.ownership.trusted()
    assert a.ownership.status().identity == ""
    a.step()
    assert a.ownership.status().identity not in {"", first}
    world.check()


def test_renewals_keep_it_for_ever(world: World, make: Make) -> None:
    a = make("a").step()
    epochs = dict(a.ownership.owned())
    world.run(120, every=1)
    assert dict(a.ownership.owned()) == epochs


def test_a_lost_lease_drops_everything_and_enters_as_another(world: World, make: Make) -> None:
    a = make("a").step()
    first, epochs = a.ownership.status().identity, dict(a.ownership.owned())
    (lease,) = world.etcd.leases
    world.etcd.end_lease(lease)
    world.advance(3)
    a.ownership.renew_once()
    assert a.owned == set()
    a.step()
    assert a.ownership.status().identity != first
    assert a.owned == ALL
    assert all(a.ownership.owned()[p] > epochs[p] for p in epochs)


def test_etcd_back_after_the_window_the_old_lease_is_revoked_first(
    world: World, make: Make
) -> None:
    a = make("a").step()
    (old,) = world.etcd.leases
    world.etcd.down = True
    world.run(9.5)
    assert a.owned == set()
    world.etcd.leases[old].ends_at += 100  # a new leader starts every lease again
    world.etcd.down = False
    a.step()
    assert old not in world.etcd.leases
    assert a.owned == ALL


@pytest.mark.parametrize("thief", [True, False])
def test_an_owner_key_gone_or_stolen_ends_the_session(
    world: World, make: Make, thief: bool
) -> None:
    a = make("a").step()
    first = a.ownership.status().identity
    key = world.etcd.owners.pop(P0)
    if thief:
        other = world.etcd.new_lease(100)
        make("x").coordinator.claim(P0, "x-1", other)
    result = a.ownership.run_once()
    assert result.lost == ALL
    assert a.owned == set()
    a.step()
    assert a.ownership.status().identity != first
    assert a.owned == (ALL - {P0} if thief else ALL)
    assert not thief or world.etcd.owners[P0].create_revision > key.create_revision


def test_a_dead_loop_ends_the_renewals(world: World, make: Make) -> None:
    a = make("a").step()
    a.healthy = False
    world.run(8.5)
    assert a.owned == ALL
    world.run(1)
    assert a.owned == set()
    world.run(30)
    assert a.owned == set()
    assert world.key_set() == set()
    a.healthy = True
    assert a.step().owned == ALL


def test_slow_fences_do_not_starve_the_renewals(world: World, make: Make) -> None:
    a = make("a")
    world.store.before_raise = lambda: world.advance(2)
    a.step()
    assert a.owned == ALL
    assert a.coordinator.calls.count("renew") >= 3

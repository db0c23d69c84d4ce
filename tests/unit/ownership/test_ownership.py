"""Ownership, stepped by hand: join, leave, lose, hand over, fence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.ownership.conftest import ALL, PARTITIONS, Process, World

from tickrail.core.errors import SettingsError
from tickrail.core.ids import Epoch, Partition, epoch_of
from tickrail.core.ports_ownership import DropReason
from tickrail.core.sharding import assign
from tickrail.engine.ownership import OwnershipSettings

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


# -- claims ------------------------------------------------------------------------------------


def test_a_claim_of_unknown_outcome_is_settled_by_reading(world: World, make: Make) -> None:
    a = make("a")
    a.coordinator.lose_reply = ["claim"]
    a.step()
    assert a.owned == set()
    assert len(world.key_set()) == 1
    a.step()
    assert a.owned == ALL
    assert a.coordinator.calls.count("claim") == PARTITIONS


def test_a_failed_claim_is_not_ownership(make: Make) -> None:
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
    a.coordinator.before["claim"] = lambda: x.coordinator.claim(P0, "x-1", lease) and None
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


# -- PostgreSQL and the clock ------------------------------------------------------------------


def test_without_postgres_the_member_key_goes_and_others_take_over(
    world: World, make: Make
) -> None:
    a = make("a").step()
    b = make("b")
    world.run(4)
    a.ownership._database._store = down = type(world.store)(a.clock, PARTITIONS)
    down.down = True
    world.run(3.5)
    assert a.ownership.status().identity not in world.etcd.members
    world.run(6)
    assert a.owned == set()
    assert b.owned == ALL
    a.ownership._database._store = world.store
    world.run(8)
    assert a.owned
    assert a.owned | b.owned == ALL


def test_postgres_away_for_all_changes_no_owner(world: World, make: Make) -> None:
    a = make("a").step()
    b = make("b")
    world.run(4)
    before = (a.owned, b.owned)
    world.store.down = True
    world.run(60, every=1)
    assert world.etcd.members == {}
    assert (a.owned, b.owned) == before
    world.store.down = False
    world.run(6)
    assert (a.owned, b.owned) == before


def test_no_member_before_postgres_answers(world: World, make: Make) -> None:
    world.store.down = True
    a = make("a")
    world.run(5)
    assert world.etcd.leases == {}
    world.store.down = False
    world.run(2.5)
    assert a.owned == ALL


@pytest.mark.parametrize("ahead", [1.5, -1.5])
def test_a_wrong_clock_stops_all_work_until_it_is_right(
    world: World, make: Make, ahead: float
) -> None:
    a = make("a").step()
    a.clock.jump(ahead)
    world.run(3.5)
    assert a.owned == set()
    assert not a.ownership.trusted()
    assert world.etcd.members == {}
    assert a.ownership.status().clock_skew == pytest.approx(ahead)
    a.clock.jump(-ahead)
    world.run(3.5)
    assert a.owned == ALL


def test_a_clock_a_little_off_is_right(make: Make) -> None:
    a = make("a")
    a.clock.jump(0.9)
    assert a.step().owned == ALL


# -- hand-over and turns -----------------------------------------------------------------------


def test_a_key_goes_only_after_the_turn_that_uses_it(world: World, make: Make) -> None:
    a = make("a", at_once=8).step()
    b = make("b").step()
    world.run(1.5, a)
    with a.ownership.turn() as owned:
        assert set(owned) == ALL
        world.run(1, a)
        given = ALL - a.owned
        assert given, "given up at once"
        assert world.key_set() == ALL, "but the keys stay during the turn"
        wakes = a.wakes
    assert a.wakes == wakes + 1
    a.step()
    assert world.key_set() == ALL - given
    b.step()
    assert b.owned == given


def test_a_turn_that_hangs_holds_the_hand_over_up_for_three_seconds_only(
    world: World, make: Make
) -> None:
    a = make("a", at_once=8).step()
    make("b").step()
    world.run(1.5, a)
    with a.ownership.turn():
        world.run(3.5, a)
        assert world.key_set() == ALL
        world.run(0.5, a)
        assert world.key_set() < ALL


def test_a_turn_begun_after_the_giving_up_does_not_see_the_partition(
    world: World, make: Make
) -> None:
    a = make("a").step()
    with a.ownership.turn():
        a.ownership.dropped(P0, DropReason.FENCE_HIGHER)
        a.step()
        with a.ownership.turn() as owned:
            assert P0 not in owned
        assert P0 in world.key_set()
    a.step()
    assert P0 not in world.key_set()


def test_stop_waits_for_open_turns(world: World, make: Make) -> None:
    a = make("a").step()
    inside, go = threading.Event(), threading.Event()
    keys_at_end: list[set[int]] = []

    def loop() -> None:
        with a.ownership.turn():
            inside.set()
            go.wait(10)
            keys_at_end.append(world.key_set())

    thread = threading.Thread(target=loop)
    thread.start()
    inside.wait(10)
    stopper = threading.Thread(target=a.ownership.stop, kwargs={"grace": 10})
    stopper.start()
    while a.owned:
        go.wait(0.001)
    go.set()
    thread.join(10)
    stopper.join(10)
    assert keys_at_end == [ALL]
    assert world.key_set() == set()


def test_the_snapshot_of_owned_cannot_be_changed(make: Make) -> None:
    owned = make("a").step().ownership.owned()
    with pytest.raises(TypeError):
        owned[P0] = Epoch(1)  # type: ignore[index]


# -- timing and settings -----------------------------------------------------------------------


def test_the_result_says_when_to_call_again(world: World, make: Make) -> None:
    a = make("a")
    a.step()
    assert 0 < a.ownership.run_once().next_in <= 3
    world.etcd.down = True
    waits = []
    for _ in range(12):
        world.advance(a.ownership.run_once().next_in)
        waits.append(a.ownership.run_once().next_in)
    assert all(0.05 <= w <= 2 for w in waits)
    assert max(waits) > 0.5


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"partitions": 0}, "partitions is 0"),
        ({"partitions": 4, "ttl": 6}, "ttl is 6 s"),
        ({"partitions": 4, "renew_every": 0}, "renew_every"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        OwnershipSettings(name="a", **settings)

"""Ownership, stepped by hand: PostgreSQL and the clock, hand-overs and turns, settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.ownership_world import ALL, PARTITIONS, Process, World

from tickrail.core.errors import SettingsError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import DropReason
from tickrail.engine.ownership import OwnershipSettings

Make = Callable[..., Process]
P0, P1 = Partition(0), Partition(1)


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


def test_what_is_missing_is_named(world: World, make: Make) -> None:
    a = make("a")
    assert a.ownership.unreachable() == {"postgres": "does not answer"}
    a.step()
    assert a.ownership.unreachable() == {}
    world.etcd.down = True
    a.clock.jump(5)
    world.run(4)
    assert a.ownership.unreachable() == {
        "etcd": "does not answer",
        "clock": "this machine's clock is +5.000 s off the database's",
    }

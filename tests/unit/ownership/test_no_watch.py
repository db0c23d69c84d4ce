"""The watch gives speed, the list every 5 s gives truth: what no watch tells is seen too."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.ownership_world import ALL, Process, World

from tickrail.core.ids import Partition

Make = Callable[..., Process]
LIST_EVERY = 5.0
TTL = 10.0


def live(world: World, process: Process, seconds: float, until: Callable[[], bool]) -> float:
    """Call it only when it asked to be called; the seconds until the condition was true."""
    passed = 0.0
    while not until():
        assert passed < seconds, f"not so within {seconds} s"
        wait = process.ownership.run_once().next_in
        world.advance(wait)
        passed += wait
    return passed


def test_a_lost_delete_is_found_by_the_list(world: World, make: Make) -> None:
    """C-09: the owner of one partition died, and nobody is told that its key is gone."""
    one, other = make("a"), make("b")
    world.run(20, one, other)
    (dead, lost) = (other, Partition(min(other.owned)))
    missed = world.etcd.owners[lost]
    assert lost not in one.owned
    seconds = live(world, one, LIST_EVERY + TTL + 1, lambda: lost in one.owned)
    assert seconds <= LIST_EVERY + TTL
    assert world.etcd.owners[lost].create_revision > missed.create_revision
    assert dead.owned == set()
    live(world, one, LIST_EVERY, lambda: one.owned == ALL)


def test_a_key_that_only_vanished_is_found_by_the_list(world: World, make: Make) -> None:
    """Its owner lives: it too hears of nothing, and stops with its next look."""
    one, other = make("a"), make("b")
    world.run(20, one, other)
    lost = Partition(min(other.owned))
    world.etcd.owners.pop(lost)
    seconds = live(world, other, LIST_EVERY + 1, lambda: lost not in other.owned)
    assert seconds <= LIST_EVERY

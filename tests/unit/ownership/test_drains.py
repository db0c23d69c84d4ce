"""A drained member hands over what it has and takes nothing, stepped by hand."""

from __future__ import annotations

from collections.abc import Callable

from structlog.testing import capture_logs
from tests.support.ownership_world import ALL, PARTITIONS, Process, World

from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Drain
from tickrail.core.sharding import assign
from tickrail.engine.ownership_log import OwnershipLog

Make = Callable[..., Process]


def drain(world: World, name: str) -> None:
    world.etcd.drains[name] = Drain(name)
    world.etcd.changed()


def undrain(world: World, name: str) -> None:
    del world.etcd.drains[name]
    world.etcd.changed()


def three(world: World, make: Make) -> list[Process]:
    made = [make("x"), make("y"), make("z")]
    world.run(8)
    assert all(one.owned for one in made)
    return made


def test_a_drained_member_is_empty_after_one_step_and_the_others_after_another(
    world: World, make: Make
) -> None:
    x, y, z = three(world, make)
    before = {y: y.owned, z: z.owned}
    drain(world, "x")
    x.step()
    assert x.owned == set()
    assert x.ownership.status().drained
    world.check()
    y.step()
    z.step()
    assert y.owned | z.owned == ALL
    assert before[y] <= y.owned
    assert before[z] <= z.owned
    world.check()


def test_it_stays_a_member_that_takes_nothing_back(world: World, make: Make) -> None:
    x, y, z = three(world, make)
    drain(world, "x")
    world.run(2)
    epochs = dict(y.ownership.owned()) | dict(z.ownership.owned())
    world.run(60)
    assert x.owned == set()
    assert x.ownership.status().identity in world.etcd.members
    assert dict(y.ownership.owned()) | dict(z.ownership.owned()) == epochs


def test_a_drain_holds_for_the_next_life_of_the_member(world: World, make: Make) -> None:
    x, _y, _z = three(world, make)
    drain(world, "x")
    world.run(1)
    x.ownership.stop()
    world.processes.remove(x)
    again = make("x")
    world.run(30)
    assert again.ownership.status().drained
    assert again.owned == set()


def test_the_end_of_a_drain_gives_back_exactly_what_was_its(world: World, make: Make) -> None:
    x, y, z = three(world, make)
    before = [one.owned for one in (x, y, z)]
    drain(world, "x")
    world.run(2)
    undrain(world, "x")
    world.run(5)
    assert [one.owned for one in (x, y, z)] == before
    assert not x.ownership.status().drained


def test_when_every_member_is_drained_drains_are_ignored_and_said(world: World, make: Make) -> None:
    a, b = make("a"), make("b")
    world.run(5)
    before = a.owned, b.owned
    drain(world, "a")
    world.run(2)
    assert (a.owned, b.owned) == (set(), ALL)
    with capture_logs() as logs:
        drain(world, "b")
        world.run(5)
    assert (a.owned, b.owned) == before
    assert a.ownership.status().drains_ignored
    said = [x for x in logs if x["event"] == "drains are ignored: every member is drained"]
    assert [x["drained"] for x in said] == [["a", "b"], ["a", "b"]]


def test_the_last_one_left_keeps_what_a_drain_would_leave_unowned(world: World, make: Make) -> None:
    a, b = make("a"), make("b")
    world.run(5)
    drain(world, "a")
    world.run(2)
    b.ownership.stop()
    world.processes.remove(b)
    world.run(1)
    assert a.owned == ALL
    assert a.ownership.status().drains_ignored
    c = make("c")
    world.run(4)
    assert (a.owned, c.owned) == (set(), ALL)


def test_an_undrained_member_that_flaps_takes_nothing_from_drained_ones(
    world: World, make: Make
) -> None:
    a = make("a").step()
    drain(world, "a")
    epochs = dict(a.ownership.owned())
    for i in range(5):
        flapper = make(f"f{i}").step()
        world.run(1, a, every=0.5)
        flapper.ownership.stop()
        world.processes.remove(flapper)
        a.step()
    assert dict(a.ownership.owned()) == epochs


def test_a_turn_under_way_is_waited_for(world: World, make: Make) -> None:
    x, y, _z = three(world, make)
    mine = x.owned
    with x.ownership.turn():
        drain(world, "x")
        x.step()
        assert x.owned == set()
        y.step()
        assert not y.owned & mine
        wakes = x.wakes
    assert x.wakes > wakes
    world.run(1)
    assert x.owned == set()
    assert mine <= world.key_set()


def test_weights_decide_how_much_a_member_gets(world: World, make: Make) -> None:
    made = [make("a", weight=1.0), make("b", weight=7.0), make("c", weight=0.0)]
    world.run(8)
    assert made[2].owned == set()
    wanted = assign(dict(made[0].ownership.status().members), PARTITIONS)
    for one in made[:2]:
        identity = one.ownership.status().identity
        assert one.owned == {p for p, who in wanted.items() if who == identity}


def test_what_is_owned_is_said_at_most_once_a_second_and_in_the_end_in_full() -> None:
    log, lines = OwnershipLog(), 0
    said: set[int] = set()
    with capture_logs() as logs:
        for n in range(1, 65):
            owned = {Partition(p) for p in range(n)}
            wait = log.look(owned, n * 0.05)
            assert 0 < wait <= 1 or wait == float("inf")
        assert log.look(owned, 64 * 0.05 + wait if wait <= 1 else 99) == float("inf")
        assert log.look(owned, 1000) == float("inf")
        log.look(set(), 1000.1)
    for line in logs:
        assert line["event"] == "ownership changed"
        said = (said | set(line["gained"])) - set(line["lost"])
        assert len(said) == line["owned"]
        lines += 1
    assert lines == 6
    assert said == set()


def test_a_member_that_fills_step_by_step_says_so_in_few_lines(world: World, make: Make) -> None:
    make("a", at_once=1).step()
    b = make("b")
    with capture_logs() as logs:
        world.run(6, every=0.05)
    gained = [x for x in logs if x["event"] == "ownership changed" and x["gained"]]
    assert b.owned
    assert len(gained) <= 4
    assert set().union(*(x["gained"] for x in gained)) == b.owned

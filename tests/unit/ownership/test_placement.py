"""The rules of who takes and who gives: a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Drain, Member, OwnerKey, Snapshot
from tickrail.core.sharding import ranking
from tickrail.engine.placement import Placement, Rules, Seen, place, weights

RULES = Rules(partitions=16, ttl=10, quiet=2, at_once=4)
MEMBERS = {"a": 1.0, "b": 1.0, "c": 1.0}
ALL = [Partition(p) for p in range(16)]
FIRST = {p: ranking(MEMBERS, p) for p in ALL}


def decide(seen: Seen, now: float = 100, **over: object) -> Placement:
    arguments: dict[str, object] = {"held": [], "moving": 0, "keep": [], "now": now} | over
    return place(RULES, seen, "a", **arguments)  # type: ignore[arg-type]


def won(name: str) -> list[Partition]:
    return [p for p in ALL if FIRST[p][0] == name]


def test_all_free_partitions_that_are_mine_are_taken_at_once() -> None:
    seen = Seen(MEMBERS, members_since=100, free_since=dict.fromkeys(ALL, 100.0))
    todo = decide(seen)
    assert list(todo.claim) == won("a")
    assert not todo.stand_in
    assert todo.unowned == 16
    assert todo.next_in == 20


def test_the_next_in_order_takes_what_is_free_for_twice_the_ttl() -> None:
    free = dict.fromkeys(won("b"), 80.0)
    todo = decide(Seen(MEMBERS, 0, free))
    assert todo.claim == tuple(p for p in won("b") if FIRST[p][1] == "a")
    assert todo.claim
    assert todo.stand_in == set(todo.claim)
    assert decide(Seen(MEMBERS, 0, free), now=99.9).claim == ()
    assert decide(Seen(MEMBERS, 0, free), now=120).claim == tuple(won("b"))


def test_one_that_is_no_member_takes_nothing() -> None:
    todo = decide(Seen({"b": 1.0}, 0, dict.fromkeys(ALL, 0.0)))
    assert todo.claim == ()
    assert todo.next_in == float("inf")


@pytest.mark.parametrize(
    ("since", "moving", "count", "next_in"),
    [
        (98.1, 0, 0, 0.1),  # not yet quiet
        (98.0, 0, 4, float("inf")),  # a few at a time
        (50.0, 3, 1, float("inf")),
        (50.0, 4, 0, float("inf")),  # those before are not taken yet
        (50.0, 9, 0, float("inf")),
    ],
)
def test_live_partitions_move_after_the_quiet_time_a_few_at_a_time(
    since: float, moving: int, count: int, next_in: float
) -> None:
    todo = decide(Seen(MEMBERS, since), held=ALL, moving=moving)
    assert len(todo.hand_over) == count
    assert all(FIRST[p][0] != "a" for p in todo.hand_over)
    assert todo.next_in == pytest.approx(next_in)


def test_what_is_mine_or_kept_stays() -> None:
    assert decide(Seen(MEMBERS, 0), held=won("a")).hand_over == ()
    assert decide(Seen(MEMBERS, 0), held=ALL, keep=ALL).hand_over == ()


def test_without_any_member_everything_stays_where_it_is() -> None:
    assert decide(Seen({}, 0), held=ALL).hand_over == ()


def test_a_drained_member_gives_everything_at_once() -> None:
    seen = Seen({"a": 0.0, "b": 1.0}, 0)
    todo = decide(seen, held=ALL, moving=9)
    assert list(todo.hand_over) == ALL
    assert decide(replace(seen, members_since=98.5), held=ALL).hand_over == ()


def test_one_that_is_no_member_gives_everything_at_once_when_the_others_are_quiet() -> None:
    """Its PostgreSQL is away or its clock wrong: what it holds stands still."""
    others = {"b": 1.0, "c": 1.0}
    assert decide(Seen(others, 97.9), held=ALL).hand_over == tuple(ALL)
    assert decide(Seen(others, 98.1), held=ALL).hand_over == ()


def test_a_drained_member_takes_nothing_however_long_it_is_free() -> None:
    seen = Seen({"a": 0.0, "b": 1.0}, 0, dict.fromkeys(ALL, 0.0))
    todo = decide(seen, now=1e6)
    assert todo.claim == ()
    assert todo.next_in == float("inf")


def snapshot(*members: Member, drained: str = "") -> Snapshot:
    return Snapshot(1, {m.identity: m for m in members}, {}, {n: Drain(n) for n in drained.split()})


A, B, NONE = Member("a-1", "a", 2.0), Member("b-1", "b"), Member("n-1", "n", 0.0)


@pytest.mark.parametrize(
    ("members", "drained", "counting", "ignored"),
    [
        pytest.param([A, B], "", {"a-1": 2, "b-1": 1}, False, id="no drain"),
        pytest.param([A, B], "a", {"a-1": 0, "b-1": 1}, False, id="one is drained"),
        pytest.param([A, B], "a b", {"a-1": 2, "b-1": 1}, True, id="all: ignored"),
        pytest.param([A, NONE], "a", {"a-1": 2, "n-1": 0}, True, id="none is left that may take"),
        pytest.param([NONE], "n", {"n-1": 0}, False, id="nobody would take anything anyway"),
        pytest.param([B], "a", {"b-1": 1}, False, id="the drained one is away"),
        pytest.param([], "a", {}, False, id="zero members"),
        pytest.param(
            [A, replace(A, identity="a-2"), B], "a", {"a-1": 0, "a-2": 0, "b-1": 1}, False,
            id="every life of the name",
        ),
    ],
)  # fmt: skip
def test_the_weights_that_count(
    members: list[Member], drained: str, counting: dict[str, float], ignored: bool
) -> None:
    assert weights(snapshot(*members, drained=drained)) == (counting, ignored)
    seen = Seen().after(snapshot(*members, drained=drained), 4, 1)
    assert (seen.members, seen.drains_ignored) == (counting, ignored)
    assert seen.drains == set(drained.split())


def test_a_drain_is_no_unrest_among_the_members() -> None:
    seen = Seen().after(snapshot(A, B), 4, 10).after(snapshot(A, B, drained="a"), 4, 20)
    assert seen.members_since == 10
    assert seen.after(snapshot(A, replace(B, weight=3), drained="a"), 4, 30).members_since == 30


def test_memory_keeps_since_when_things_are_as_they_are() -> None:
    key = OwnerKey(Partition(1), "a", 1, 5)
    one = Snapshot(5, {"a": Member("a", "a")}, {Partition(1): key})
    seen = Seen().after(one, 3, 10)
    assert (seen.members_since, seen.free_since) == (10, {0: 10, 2: 10})
    again = seen.after(one, 3, 11)
    assert (again.members_since, again.free_since) == (10, {0: 10, 2: 10})
    later = again.after(Snapshot(6, {"a": Member("a", "a", weight=0)}, {}), 3, 12)
    assert (later.members_since, later.free_since) == (12, {0: 10, 1: 12, 2: 10})

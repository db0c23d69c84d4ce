"""Members that join, leave, change their weight or are drained move only what must move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.ports_ownership import Drain, Member, Snapshot
from tickrail.core.sharding import assign
from tickrail.engine.placement import weights

PARTITIONS = 64
NAMES = st.text("abcdefgh-0123456789", min_size=1, max_size=12)
WEIGHTS = st.one_of(st.just(0.0), st.floats(0.01, 100.0, allow_nan=False))
MEMBERS = st.dictionaries(NAMES, WEIGHTS, max_size=8)


@given(MEMBERS, NAMES, WEIGHTS)
def test_who_joins_takes_what_it_wins_and_nothing_else_moves(
    members: dict[str, float], joiner: str, weight: float
) -> None:
    members.pop(joiner, None)
    before = assign(members, PARTITIONS)
    after = assign({**members, joiner: weight}, PARTITIONS)
    moved = {p for p in after if after[p] != before.get(p)}
    assert moved == {p for p, owner in after.items() if owner == joiner}
    assert weight > 0 or not moved


@given(MEMBERS, NAMES, WEIGHTS)
def test_who_leaves_gives_what_it_had_and_nothing_else_moves(
    members: dict[str, float], leaver: str, weight: float
) -> None:
    members.pop(leaver, None)
    before = assign({**members, leaver: weight}, PARTITIONS)
    after = assign(members, PARTITIONS)
    moved = {p for p in before if before[p] != after.get(p)}
    assert moved == {p for p, owner in before.items() if owner == leaver}


@given(MEMBERS, NAMES, WEIGHTS, WEIGHTS)
def test_another_weight_moves_partitions_of_that_member_alone(
    members: dict[str, float], name: str, first: float, second: float
) -> None:
    before = assign({**members, name: first}, PARTITIONS)
    after = assign({**members, name: second}, PARTITIONS)
    moved = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
    mine = {p for p, owner in (before if second < first else after).items() if owner == name}
    assert moved <= mine
    assert len(moved) == abs(list(before.values()).count(name) - list(after.values()).count(name))


@given(st.dictionaries(NAMES, WEIGHTS, min_size=1, max_size=6), st.data())
def test_a_drain_is_as_if_the_member_had_left(
    members: dict[str, float], data: st.DataObject
) -> None:
    drained = data.draw(st.sampled_from(sorted(members)))
    snapshot = Snapshot(
        1, {n: Member(n, n, w) for n, w in members.items()}, {}, {drained: Drain(drained)}
    )
    counting, ignored = weights(snapshot)
    rest = {n: w for n, w in members.items() if n != drained}
    if any(rest.values()):
        assert not ignored
        assert assign(counting, PARTITIONS) == assign(rest, PARTITIONS)
    else:
        assert assign(counting, PARTITIONS) == assign(members, PARTITIONS)

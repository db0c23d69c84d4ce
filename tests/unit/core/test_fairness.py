"""Whose launch goes next: tenants by weight in deficit round robin, classes in smooth turns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.fairness import FairQueue, Turns, fair_order
from tickrail.core.limits import CLASS_WEIGHTS

Item = tuple[str, int]
tenants = st.lists(st.sampled_from("abcdef"), max_size=200)
weights = st.fixed_dictionaries({name: st.integers(1, 9) for name in "abcdef"})


def queue_of(owners: list[str], weight: dict[str, int]) -> FairQueue[Item]:
    queue: FairQueue[Item] = FairQueue(lambda x: x[0], lambda x: weight[x[0]])
    for n, owner in enumerate(owners):
        queue.push((owner, n))
    return queue


@given(tenants, weights)
def test_all_is_served_once_each_tenants_own_in_order(
    owners: list[str], weight: dict[str, int]
) -> None:
    queue = queue_of(owners, weight)
    served = []
    while queue:
        first = queue.first
        served.append(queue.pop())
        assert served[-1] == first
    assert sorted(served) == sorted((o, n) for n, o in enumerate(owners))
    for tenant in set(owners):
        own = [n for owner, n in served if owner == tenant]
        assert own == sorted(own)
    with pytest.raises(IndexError):
        queue.pop()


@given(tenants, weights)
def test_whoever_has_something_is_served_once_a_round(
    owners: list[str], weight: dict[str, int]
) -> None:
    """Between two servings of a tenant lie at most the weights of the others."""
    queue = queue_of(owners, weight)
    served = [queue.pop()[0] for _ in range(len(queue))]
    for tenant in set(served):
        places = [-1, *(n for n, owner in enumerate(served) if owner == tenant)]
        others = sum(w for name, w in weight.items() if name != tenant)
        assert all(b - a - 1 <= others for a, b in pairwise(places))


def test_weights_one_to_three_share_what_is_served_so() -> None:
    queue = queue_of(["a"] * 1000 + ["b"] * 1000, {"a": 1, "b": 3})
    served = Counter(queue.pop()[0] for _ in range(1000))
    assert served == {"a": 250, "b": 750}


def test_a_crowd_does_not_delay_a_single_item_by_more_than_a_round() -> None:
    queue = queue_of(["a"] * 100_000 + ["b"] * 5, {"a": 5, "b": 1, "c": 1})
    queue.pop()
    queue.push(("c", 0))
    served = [queue.pop()[0] for _ in range(6)]
    assert served[-1] == "c"


@given(tenants, weights, st.data())
def test_what_is_given_back_is_the_next_again(
    owners: list[str], weight: dict[str, int], data: st.DataObject
) -> None:
    queue, steady = queue_of(owners, weight), queue_of(owners, weight)
    expected = [steady.pop() for _ in range(len(steady))]
    found = []
    while queue:
        item = queue.pop()
        if data.draw(st.booleans()):
            queue.push_back(item)
            assert queue.first == item
            assert queue.pop() == item
        found.append(item)
    assert Counter(found) == Counter(expected)
    assert len(found) == len(owners)


def test_fair_order_takes_the_weights_it_is_given() -> None:
    items = [("a", n) for n in range(6)] + [("b", n) for n in range(6)]
    order = fair_order(items, lambda x: x[0], lambda x: {"a": 1, "b": 2}[x[0]])
    assert [x[0] for x in order[:6]] == ["a", "b", "b", "a", "b", "b"]


# --- classes --------------------------------------------------------------------------------------

WEIGHTS = dict(zip(("high", "normal", "low"), CLASS_WEIGHTS, strict=True))


def test_the_shares_of_the_classes_are_exact_over_a_thousand_turns() -> None:
    turns = Turns(WEIGHTS)
    chosen = [turns.next(WEIGHTS) for _ in range(1000)]
    assert Counter(chosen) == {"high": 600, "normal": 300, "low": 100}
    for n in range(0, 1000, 10):
        assert Counter(chosen[n : n + 10]) == {"high": 6, "normal": 3, "low": 1}


@pytest.mark.parametrize(
    ("there", "shares"),
    [
        (("normal", "low"), {"normal": 750, "low": 250}),
        (("high", "low"), {"high": 857, "low": 143}),
        (("low",), {"low": 1000}),
    ],
)
def test_an_unused_share_is_passed_on(there: tuple[str, ...], shares: dict[str, int]) -> None:
    turns = Turns(WEIGHTS)
    assert Counter(turns.next(there) for _ in range(1000)) == shares


@given(st.lists(st.sets(st.sampled_from(sorted(WEIGHTS)), min_size=1), min_size=1, max_size=300))
def test_who_is_there_ten_times_has_a_turn(rounds: list[set[str]]) -> None:
    """Whatever the others do meanwhile; and who was away has gathered nothing."""
    turns = Turns(WEIGHTS)
    waits: Counter[str] = Counter()
    for there in rounds:
        chosen = turns.next(sorted(there))
        for name in WEIGHTS:
            waits[name] = waits[name] + 1 if name in there and name != chosen else 0
        # A debt of ten at most is paid back by one a turn, then the share is waited for.
        assert waits["low"] <= 20
        assert waits["high"] <= 20

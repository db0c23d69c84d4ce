"""Waits at limits that are changed meanwhile: nobody waits for what is not there any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.crowds import ask, crowd, due_now, ids, succeed
from tests.support.store_bed import OWNED, TENANT, Bed, end_of, verdict

from tickrail.core.limits import INSTALLATION, QUEUE, Limit, Rate, Scope
from tickrail.core.states import State

EVERYBODY = Scope(INSTALLATION, QUEUE, "default")
MINE = Scope(TENANT, QUEUE, "default")
WHOLE = Scope(TENANT, "tenant", "")
HOURLY = Limit(rate=Rate(1, 3600.0))


@pytest.mark.parametrize("scope", [EVERYBODY, MINE])
def test_a_rate_that_is_removed_lets_those_that_wait_go(bed: Bed, scope: Scope) -> None:
    bed.set_limit(scope, HOURLY)
    store, launches = bed.worker(), crowd(bed, 6)
    since = {x: bed.row(x).due_at for x in launches}
    assert ids(ask(bed, store, launches)) == {launches[0]}
    assert bed.owner().rouse(OWNED).moved == {}
    bed.set_limit(scope, None)
    assert bed.owner().rouse(OWNED).moved == {"roused": 5}
    waited = launches[1:]
    assert due_now(bed, waited) == waited
    assert all(bed.row(x).due_at < since[x] for x in waited)
    assert ids(ask(bed, store, waited)) == set(waited)


def test_a_rate_that_is_raised_gives_each_the_token_of_its_turn(bed: Bed) -> None:
    bed.set_limit(MINE, HOURLY)
    store, launches = bed.worker(), crowd(bed, 6)
    ask(bed, store, launches)
    bed.set_limit(MINE, Limit(rate=Rate(30, 60.0)))  # the bucket is full: it holds 1.5
    assert bed.owner().rouse(OWNED).moved == {"roused": 5}
    assert due_now(bed, launches) == [launches[1]]
    waits = [(bed.row(x).due_at - bed.now()).total_seconds() for x in launches[2:]]
    assert waits == pytest.approx([1, 3, 5, 7], abs=0.5)
    assert bed.owner().rouse(OWNED).moved == {}
    assert ids(ask(bed, store, [launches[1]])) == {launches[1]}
    bed.advance(7.5)
    bed.owner().rouse(OWNED)
    assert due_now(bed, launches[2:]) == launches[2:]


def test_a_rate_that_is_lowered_or_stays_moves_nobody(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(rate=Rate(60, 60.0)))
    store, launches = bed.worker(), crowd(bed, 6)
    ask(bed, store, launches)
    since = [bed.row(x).due_at for x in launches]
    assert bed.owner().rouse(OWNED).moved == {}
    bed.set_limit(MINE, HOURLY)
    bed.owner().rouse(OWNED)
    assert [bed.row(x).due_at for x in launches[3:]] == since[3:]


def test_whoever_waits_behind_a_cancelled_launch_has_its_token(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(rate=Rate(6, 60.0)))
    store, launches = bed.worker(), crowd(bed, 4)
    ask(bed, store, launches)
    bed.cancel(launches[1])
    assert bed.owner().rouse(OWNED).moved == {"roused": 2}
    waits = [(bed.row(x).due_at - bed.now()).total_seconds() for x in launches[2:]]
    assert waits == pytest.approx([9, 19], abs=0.5)


def test_nobody_waits_for_a_token_longer_than_an_hour(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(rate=Rate(1, 1_000_000.0)))
    store, launches = bed.worker(), crowd(bed, 4)
    ask(bed, store, launches)
    assert bed.owner().rouse(OWNED).moved == {}
    assert all(bed.row(x).due_at <= bed.now() + timedelta(hours=1) for x in launches)
    bed.advance(3601)
    bed.owner().rouse(OWNED)
    waited = launches[1:]
    assert due_now(bed, waited) == waited
    assert ask(bed, store, waited).refused == dict.fromkeys(waited, "rate")


@pytest.mark.parametrize("waits_at", [EVERYBODY, MINE, WHOLE])
@pytest.mark.parametrize("other", [None, Limit(max_running=100)])
def test_a_retry_is_not_due_sooner_because_its_launch_once_waited(
    bed: Bed, waits_at: Scope, other: Limit | None
) -> None:
    bed.set_limit(waits_at, Limit(max_running=1))
    store, launches = bed.worker(), crowd(bed, 2)
    ask(bed, store, launches)
    bed.set_limit(waits_at, None)
    if other is not None:
        bed.set_limit(Scope(TENANT, QUEUE, "default") if waits_at != MINE else WHOLE, other)
    bed.owner().rouse(OWNED)
    (claimed,) = ask(bed, store, [launches[1]]).granted
    store.finish([end_of(claimed, verdict(claimed, State.DUE, delay=3600))])
    due = bed.row(launches[1]).due_at
    assert bed.owner().rouse(OWNED).moved == {}
    assert bed.row(launches[1]).due_at == due


def test_a_wait_is_of_its_attempt_alone(bed: Bed) -> None:
    """A launch that was cancelled while it waited, and is given another life."""
    bed.set_limit(MINE, Limit(max_running=1))
    store, launches = bed.worker(), crowd(bed, 2)
    ask(bed, store, launches)
    due = bed.now() + timedelta(hours=1)
    bed.change(launches[1], state=State.DUE, attempt=2, due_at=due)
    bed.set_limit(MINE, None)
    assert bed.owner().rouse(OWNED).moved == {}
    assert bed.row(launches[1]).due_at == due


@pytest.mark.parametrize("first", [Limit(max_running=1), HOURLY])
def test_a_launch_waits_in_one_place_and_keeps_its_turn(bed: Bed, first: Limit) -> None:
    bed.set_limit(MINE, first)
    store, launches = bed.worker(), crowd(bed, 2)
    since = bed.row(launches[1]).due_at
    ask(bed, store, launches)
    bed.set_limit(MINE, None)
    bed.set_limit(WHOLE, Limit(max_running=1))
    owner = bed.owner()
    assert owner.rouse(OWNED).moved == {"roused": 1}
    assert ask(bed, store, [launches[1]]).refused == {launches[1]: "max_running"}
    # Nobody is told of the place that it does not wait for any more.
    assert bed.owner().rouse(OWNED).moved == {}
    bed.set_limit(WHOLE, None)
    assert bed.owner().rouse(OWNED).moved == {"roused": 1}
    assert bed.row(launches[1]).due_at < since


def test_under_a_key_each_waits_by_the_limit_of_its_own_job(bed: Bed) -> None:
    keyed: dict[str, Any] = {"concurrency_key": "k"}
    store = bed.worker()
    first = crowd(bed, 3, **keyed, concurrency_limit=3)
    running = ask(bed, store, first).granted
    narrow = crowd(bed, 2, **keyed, concurrency_limit=1)
    wide = crowd(bed, 2, **keyed, concurrency_limit=3)
    assert not ask(bed, store, narrow + wide).granted
    bed.change(running[0].id, state=State.CANCELLED)
    assert bed.owner().rouse(OWNED).moved == {"roused": 1}
    assert due_now(bed, narrow + wide) == wide[:1]
    assert ids(ask(bed, store, wide[:1])) == {wide[0]}
    succeed(store, *running[1:])
    bed.change(wide[0], state=State.CANCELLED)
    bed.owner().rouse(OWNED)
    assert len(due_now(bed, narrow + wide)) > 0


def test_an_end_does_not_wake_those_that_wait_for_a_token(bed: Bed) -> None:
    """A place is free; their tokens come no sooner for it."""
    bed.set_limit(MINE, Limit(max_running=2, rate=Rate(2, 3600.0)))
    store, launches = bed.worker(), crowd(bed, 4)
    answer = ask(bed, store, launches)
    waited = launches[1:]
    assert answer.refused == dict.fromkeys(waited, "rate")
    since = [bed.row(x).due_at for x in waited]
    succeed(store, *answer.granted)
    assert [bed.row(x).due_at for x in waited] == since


def test_a_second_refusal_keeps_the_turn_of_the_first(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store, launches = bed.worker(), crowd(bed, 4)
    answer = ask(bed, store, launches)
    first = launches[1]
    bed.change(first, due_at=bed.now() - timedelta(seconds=1))
    assert ask(bed, store, [first]).refused == {first: "max_running"}
    succeed(store, *answer.granted)
    assert due_now(bed, launches[1:]) == [first]


@pytest.mark.parametrize("limit", [Limit(rate=Rate(60, 60.0)), Limit(max_running=2)])
def test_who_was_granted_waits_no_more(bed: Bed, limit: Limit) -> None:
    bed.set_limit(MINE, limit)
    store, launches = bed.worker(), crowd(bed, 3)
    answer = ask(bed, store, launches)
    assert len(answer.granted) == 2
    assert bed.owner().backlog(OWNED, 10).waits
    succeed(store, *answer.granted)
    bed.advance(1.5)
    bed.owner().rouse(OWNED)
    assert ids(ask(bed, store, launches[2:])) == {launches[2]}
    assert not bed.owner().backlog(OWNED, 10).waits

"""Limits at the claim: what may run at once and start in a time, who waits and who is told."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.crowds import ask, crowd, due_now, ids, succeed
from tests.support.store_bed import OWNED, TENANT, Bed, claim_one, end_of, request_of, verdict

from tickrail.core.ids import TenantId
from tickrail.core.limits import INSTALLATION, QUEUE, Limit, Rate, Scope
from tickrail.core.ports import LostClaim
from tickrail.core.states import State
from tickrail.core.verdict import Verdict

EVERYBODY = Scope(INSTALLATION, QUEUE, "default")
MINE = Scope(TENANT, QUEUE, "default")
WHOLE = Scope(TENANT, "tenant", "")
OTHER = TenantId(UUID(int=2))
EARLIER = timedelta(microseconds=1)
"""So much earlier is due what was refused: its next publication is another."""


def test_without_a_limit_nothing_is_held(bed: Bed) -> None:
    store = bed.worker()
    answer = ask(bed, store, crowd(bed, 3))
    assert [c.limited for c in answer.granted] == [False] * 3
    assert bed.owner().backlog(OWNED, 10).loads == {}


@pytest.mark.parametrize("scope", [EVERYBODY, MINE, WHOLE])
def test_no_more_run_than_may_and_the_first_to_ask_go_first(bed: Bed, scope: Scope) -> None:
    bed.set_limit(scope, Limit(max_running=2))
    store, launches = bed.worker(), crowd(bed, 5)
    since = {x: bed.row(x).due_at for x in launches}
    answer = ask(bed, store, launches[::-1])
    assert ids(answer) == {launches[4], launches[3]}
    assert all(c.limited for c in answer.granted)
    assert answer.refused == dict.fromkeys(launches[:3], "max_running")
    rows = [bed.row(x) for x in launches[:3]]
    assert {(x.state, x.attempt) for x in rows} == {(State.DUE, 1)}
    assert all(x.due_at > bed.now() + timedelta(seconds=30) for x in rows)
    # One place is given back: one of those that wait is due, since when it was.
    succeed(store, answer.granted[0])
    (told,) = due_now(bed, launches[:3])
    assert told == launches[2]  # the first that was refused
    assert bed.row(told).due_at == since[told] - EARLIER
    assert ids(ask(bed, store, [told])) == {told}
    assert ask(bed, store, crowd(bed, 1)).refused


def test_a_limit_is_of_its_tenant_and_queue_alone(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store = bed.worker()
    assert len(ask(bed, store, crowd(bed, 2)).granted) == 1
    assert len(ask(bed, store, crowd(bed, 2, queue="other")).granted) == 2
    assert len(ask(bed, store, crowd(bed, 2, OTHER)).granted) == 2
    bed.set_limit(EVERYBODY, Limit(max_running=4))
    # The two of the other tenant and the one of this tenant run already, and count.
    assert len(ask(bed, store, crowd(bed, 2, OTHER)).granted) == 1


def test_the_tightest_of_several_limits_holds(bed: Bed) -> None:
    bed.set_limit(EVERYBODY, Limit(max_running=3))
    bed.set_limit(WHOLE, Limit(max_running=2))
    store = bed.worker()
    assert len(ask(bed, store, crowd(bed, 4)).granted) == 2
    assert len(ask(bed, store, crowd(bed, 4, OTHER)).granted) == 1


def test_a_concurrency_key_is_shared_by_jobs_of_a_tenant(bed: Bed) -> None:
    keyed: dict[str, Any] = {"concurrency_key": "customer-7", "concurrency_limit": 1}
    store = bed.worker()
    first, second = crowd(bed, 1, **keyed), crowd(bed, 1, **keyed)
    answer = ask(bed, store, first + second)
    assert ids(answer) == set(first)
    assert answer.refused == {second[0]: "concurrency"}
    others = crowd(bed, 1, OTHER, **keyed) + crowd(bed, 1, concurrency_key="b", concurrency_limit=1)
    assert ids(ask(bed, store, others)) == set(others)
    succeed(store, *answer.granted)
    assert due_now(bed, second) == second
    assert ids(ask(bed, store, second)) == set(second)


def test_a_failed_attempt_gives_its_place_back_until_it_is_tried_again(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store = bed.worker()
    first, second = crowd(bed, 2)
    (claimed,) = ask(bed, store, [first, second]).granted
    store.finish([end_of(claimed, verdict(claimed, State.DUE))._replace(limited=True)])
    assert ids(ask(bed, store, [second])) == {second}
    assert ask(bed, store, [first]).refused == {first: "max_running"}


def test_the_place_of_a_lost_worker_is_free_with_the_end_of_its_claim(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store = bed.worker()
    first, second = crowd(bed, 2)
    ask(bed, store, [first, second])
    bed.advance(31)
    bed.owner().reap(OWNED, 10, _abandon)
    assert due_now(bed, [second]) == [second]
    assert ids(ask(bed, store, [second])) == {second}


def _abandon(lost: LostClaim) -> Verdict:
    return Verdict(State.ABANDONED, lost.attempt, 1, timedelta(0), dlq_owed=True)


def test_whoever_ends_a_launch_frees_its_place(bed: Bed) -> None:
    """An overlap policy ends a running launch from outside, and gives nothing back."""
    bed.set_limit(MINE, Limit(max_running=1))
    store = bed.worker()
    first, second, third = crowd(bed, 3)
    ask(bed, store, [first, second])
    bed.change(first, state=State.CANCELLED)
    assert ids(ask(bed, store, [third])) == {third}
    bed.change(third, state=State.CANCELLED)
    assert bed.owner().rouse(OWNED).moved == {"roused": 1}
    assert due_now(bed, [second]) == [second]
    assert bed.owner().rouse(OWNED).moved == {}  # it is on its way


def test_what_is_on_its_way_is_not_told_again(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=2))
    store, launches = bed.worker(), crowd(bed, 5)
    first, second = ask(bed, store, launches).granted
    bed.change(first.id, state=State.CANCELLED)
    assert bed.owner().rouse(OWNED).moved == {"roused": 1}
    (told,) = due_now(bed, launches)
    bed.change(told, state=State.QUEUED, queued_at=bed.now())
    assert bed.owner().rouse(OWNED).moved == {}
    succeed(store, second)
    assert len(due_now(bed, launches)) == 1


def test_a_raised_or_removed_limit_lets_those_that_wait_go(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store, launches = bed.worker(), crowd(bed, 6)
    ask(bed, store, launches)
    bed.set_limit(MINE, Limit(max_running=3))
    assert bed.owner().rouse(OWNED).moved == {"roused": 2}
    assert len(ask(bed, store, due_now(bed, launches)).granted) == 2
    bed.set_limit(MINE, None)
    assert bed.owner().rouse(OWNED).moved == {"roused": 3}
    assert len(ask(bed, store, due_now(bed, launches)).granted) == 3


def test_a_cancelled_launch_is_not_told(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    store, launches = bed.worker(), crowd(bed, 3)
    (claimed,) = ask(bed, store, launches).granted
    bed.cancel(launches[1])
    succeed(store, claimed)
    assert due_now(bed, launches) == [launches[2]]


def test_messages_that_decide_nothing_take_no_place_and_no_token(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=2, rate=Rate(1, 60.0)))
    store = bed.worker()
    (late,) = crowd(bed, 1, attempt=3)
    (early,) = crowd(bed, 1)
    bed.change(early, due_at=bed.now() + timedelta(seconds=60))
    answer = store.claim([request_of(bed, late, 2), request_of(bed, early)], "w-1")
    assert answer.refused == {late: "stale", early: "early"}
    assert ids(ask(bed, store, [late])) == {late}


def test_a_rate_says_when_each_may_be_tried(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(rate=Rate(60, 60.0)))  # the bucket holds two
    store, launches = bed.worker(), crowd(bed, 5)
    since = {x: bed.row(x).due_at for x in launches}
    answer = ask(bed, store, launches)
    assert ids(answer) == set(launches[:2])
    assert answer.refused == dict.fromkeys(launches[2:], "rate")
    waits = [(bed.row(x).due_at - bed.now()).total_seconds() for x in launches[2:]]
    assert waits == pytest.approx([1, 2, 3], abs=0.5)
    owner = bed.owner()
    assert owner.rouse(OWNED).moved == {}
    bed.advance(2.0)
    assert owner.rouse(OWNED).moved == {"roused": 2}
    assert [bed.row(x).due_at for x in launches[2:4]] == [
        since[x] - EARLIER - timedelta(seconds=2 if _shifts(bed) else 0) for x in launches[2:4]
    ]
    assert ids(ask(bed, store, launches[2:4])) == set(launches[2:4])
    # The end of a run is no token.
    succeed(store, *answer.granted)
    assert due_now(bed, launches[4:]) == []
    bed.advance(1.1)
    owner.rouse(OWNED)
    assert ids(ask(bed, store, launches[4:])) == {launches[4]}


def _shifts(bed: Bed) -> bool:
    """Whether time passes by moving what is stored back."""
    return not hasattr(bed, "clock")


def test_a_rate_is_exact_over_a_minute(bed: Bed) -> None:
    """100 a minute, asked for every half second by what is due: 95 to 105 in each minute."""
    bed.set_limit(EVERYBODY, Limit(rate=Rate(100, 60.0)))
    store, owner = bed.worker(), bed.owner()
    crowd(bed, 160)
    began, starts = bed.now(), []
    steps = passed = 0.0
    while passed < 75:
        owner.rouse(OWNED)
        backlog = owner.backlog(OWNED, 200, [(TENANT, "default")])
        room = 20 - backlog.loads[EVERYBODY].under_way
        first = sorted(backlog.due, key=lambda p: p.due_at)[:room]
        answer = ask(bed, store, [p.id for p in first])
        starts += [passed] * len(answer.granted)
        bed.advance(0.5)
        steps += 0.5 if _shifts(bed) else 0
        passed = steps + (bed.now() - began).total_seconds()
    for begin in range(0, 15, 5):
        assert 95 <= sum(begin <= at < begin + 60 for at in starts) <= 105


def test_a_paused_queue_gives_its_launches_back_as_they_were(bed: Bed) -> None:
    store, owner = bed.worker(), bed.owner()
    mine, others = crowd(bed, 2), crowd(bed, 2, OTHER)
    since = [bed.row(x).due_at for x in mine]
    bed.set_limit(MINE, Limit(paused=True))
    assert ask(bed, store, mine).refused == dict.fromkeys(mine, "paused")
    assert [bed.row(x).due_at for x in mine] == [at - EARLIER for at in since]
    assert {bed.row(x).state for x in mine} == {State.DUE}
    backlog = owner.backlog(OWNED, 10, [(TENANT, "default")])
    assert {p.id for p in backlog.due} == set(others)
    assert backlog.loads[MINE].limit.window(0) == 0
    bed.pause_queue("default")
    assert ask(bed, store, others).refused == dict.fromkeys(others, "paused")
    backlog = owner.backlog(OWNED, 10, [(OTHER, "default")])
    assert not backlog.due
    assert backlog.loads[EVERYBODY].limit.window(0) == 0
    bed.pause_queue("default", paused=False)
    bed.set_limit(MINE, None)
    assert {p.id for p in owner.backlog(OWNED, 10).due} == {*mine, *others}
    assert ids(ask(bed, store, mine)) == set(mine)


def test_what_is_published_of_a_suspended_tenant_is_given_back_at_the_claim(bed: Bed) -> None:
    store, owner = bed.worker(), bed.owner()
    mine, others = crowd(bed, 2), crowd(bed, 2, OTHER)
    bed.suspend(TENANT)
    bed.set_limit(WHOLE, Limit(paused=True))
    answer = ask(bed, store, [*mine, *others])
    assert answer.refused == dict.fromkeys(mine, "paused")
    assert ids(answer) == set(others)
    assert not owner.backlog(OWNED, 10).due
    bed.go_on(TENANT)
    bed.set_limit(WHOLE, Limit())
    assert {p.id for p in owner.backlog(OWNED, 10).due} == set(mine)
    assert ids(ask(bed, store, mine)) == set(mine)


def test_the_relay_sees_what_is_under_way_at_each_limit(bed: Bed) -> None:
    bed.set_limit(MINE, Limit(max_running=2))
    store, owner = bed.worker(), bed.owner()
    launches = crowd(bed, 9)
    ask(bed, store, launches[:5])
    bed.change(launches[5], state=State.QUEUED, queued_at=bed.now())
    backlog = owner.backlog(OWNED, 10)
    assert {p.id for p in backlog.due} == set(launches[6:])
    assert backlog.loads[MINE].limit.max_running == 2
    assert backlog.loads[MINE].under_way == 4  # three wait, one is queued
    assert backlog.loads[MINE].running == 2


def test_no_class_that_waits_is_starved(bed: Bed) -> None:
    keyed: dict[str, Any] = {"concurrency_key": "k", "concurrency_limit": 1}
    store, owner = bed.worker(), bed.owner()
    launches = [x for n in range(3) for x in crowd(bed, 60, priority=n, **keyed)]
    (running,) = ask(bed, store, launches).granted
    told: Counter[int] = Counter()
    for _ in range(60):
        succeed(store, running)
        (following,) = owner.backlog(OWNED, 10).due
        told[following.priority] += 1
        running = claim_one(bed, store, following.id)
    # 36, 18 and 6 on average; seven standard deviations off would be a wonder.
    assert told[0] > told[2]
    assert min(told[0] - 10, told[1] - 2, told[2]) > 0


@pytest.mark.parametrize("limit", [Limit(max_running=1), Limit(paused=True)])
def test_a_late_mark_of_a_refused_message_does_not_hide_the_launch(bed: Bed, limit: Limit) -> None:
    """Refused before its publication was marked, and told again before that, too."""
    store = bed.worker()
    first, second = crowd(bed, 2)
    (running,) = ask(bed, store, [first]).granted
    for _ in range(2):
        bed.set_limit(MINE, None)
        owner = bed.owner()  # a new one looks at once for those that wait
        owner.rouse(OWNED)
        (published,) = owner.backlog(OWNED, 10).due
        assert published.id == second
        bed.set_limit(MINE, limit)
        assert ask(bed, store, [second]).refused
        assert owner.mark_queued(OWNED, [published]).marked == 0
        bed.set_limit(MINE, None)
        bed.owner().rouse(OWNED)
        assert owner.mark_queued(OWNED, [published]).marked == 0
    (published,) = owner.backlog(OWNED, 10).due
    assert owner.mark_queued(OWNED, [published]).marked == 1
    assert bed.row(second).state is State.QUEUED
    succeed(store, running)

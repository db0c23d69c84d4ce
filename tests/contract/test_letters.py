"""Dead letters: the contract of `core.ports_letters`, and who puts a launch among them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from tests.support.memory_api import MemoryApi
from tests.support.store_bed import (
    OWNED,
    P1,
    P2,
    TENANT,
    Bed,
    MemoryBed,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    request_of,
    verdict,
)

from tickrail.core.clock import SystemClock
from tickrail.core.dead_letters import LetterFilter, Reason, reason_of
from tickrail.core.ids import LaunchId
from tickrail.core.ports_letters import LetterPlace, LetterRecords, Redriven
from tickrail.core.records import PageRequest, Position
from tickrail.core.states import State
from tickrail.store.engine import ApiDatabase
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller

FAR = datetime(9000, 1, 1, tzinfo=UTC)


@contextmanager
def letters_of(bed: Bed) -> Iterator[LetterRecords]:
    """A transaction's dead letters."""
    if isinstance(bed, MemoryBed):
        with MemoryApi(bed.db).transaction() as tx:
            yield tx.letters
        return
    assert isinstance(bed, PostgresBed)
    database = ApiDatabase(DatabaseSettings(bed.database.api_url), SystemClock())
    try:
        with database.tenant(TENANT, Caller("tests")) as found:
            yield found.letters
    finally:
        database.close()


def dead(bed: Bed, *, ago: float = 10.0, **columns: Any) -> LaunchId:
    """A launch that died so many seconds ago."""
    at = bed.now() - timedelta(seconds=ago)
    given = {"state": State.DEAD, "attempt": 3, "failures": 3, "result": {"outcome": "http_500"}}
    return make_launch(bed, **{**given, "finished_at": at, "dead_at": at, **columns})


def listed(bed: Bed, where: LetterFilter | None = None) -> list[LaunchId]:
    with letters_of(bed) as letters:
        found = letters.page(where or LetterFilter(), PageRequest("died_at", True, 100)).items
    return [x.launch.id for x in found]


def test_an_end_that_gives_up_makes_a_dead_letter_and_a_retry_none(bed: Bed) -> None:
    store = bed.worker()
    ends = {State.DEAD: 1, State.ABANDONED: 1, State.DUE: 0, State.CANCELLED: 0}
    for state, count in ends.items():
        launch = make_launch(bed)
        claimed = claim_one(bed, store, launch)
        if state is State.CANCELLED:
            bed.cancel(launch)
        end = State.DEAD if state is State.CANCELLED else state
        store.finish([end_of(claimed, verdict(claimed, end))])
        row = bed.row(launch)
        assert row.state is state
        assert (row.dead_at is not None) == bool(count)
        assert listed(bed, LetterFilter([launch])) == [launch] * count
    assert bed.owner().dead_letters(100) == 2
    assert bed.owner().dead_letters(1) == 1


def test_what_cannot_be_published_is_a_dead_letter(bed: Bed) -> None:
    launch, store = make_launch(bed), bed.owner()
    due = store.backlog(OWNED, 10).due
    store.mark_unpublishable(OWNED, due, "too_large")
    with letters_of(bed) as letters:
        found = letters.find(launch)
    assert found is not None
    assert (found.reason, found.published) == (Reason.TOO_LARGE, False)


def test_pages_in_order_of_death(bed: Bed) -> None:
    at = bed.now().replace(microsecond=0) - timedelta(seconds=5)
    launches = sorted(dead(bed, dead_at=at, finished_at=at) for _ in range(3))
    launches = [dead(bed, ago=60), *launches, dead(bed, ago=1)]
    make_launch(bed)
    for ascending in (True, False):
        wanted = launches if ascending else launches[::-1]
        for limit in (1, 2, 5):
            found: list[LaunchId] = []
            after: Position | None = None
            for _ in range(10):
                with letters_of(bed) as letters:
                    page = letters.page(
                        LetterFilter(), PageRequest("died_at", ascending, limit, after)
                    )
                found += [x.launch.id for x in page.items]
                after = page.after
                if after is None:
                    break
            assert found == wanted


def test_batches_go_on_after_a_place_and_end_at_an_instant(bed: Bed) -> None:
    launches = [dead(bed, ago=ago) for ago in (30, 20, 10)]
    until = bed.now() - timedelta(seconds=15)
    with letters_of(bed) as letters:
        assert letters.count(LetterFilter(), FAR, 100) == 3
        assert letters.count(LetterFilter(), FAR, 2) == 2
        assert letters.count(LetterFilter(), until, 100) == 2
        first = letters.batch(LetterFilter(), until, None, 1)
        place = LetterPlace(first[0].died_at, first[0].launch.id)
        second = letters.batch(LetterFilter(), until, place, 5)
    assert [x.launch.id for x in (*first, *second)] == launches[:2]


def test_a_redrive_begins_another_life(bed: Bed) -> None:
    launch = dead(bed, dlq_owed=True, cancel_requested=True, publications=3, queued_at=bed.now())
    with letters_of(bed) as letters:
        found = letters.find(launch)
        assert found is not None
        made = letters.redrive(found.launch, Redriven(State.DUE, P2, {"n": 1}, has_payload=True))
        assert made is not None
        assert (made.id, made.state, made.attempt) == (launch, State.DUE, 4)
        assert letters.redrive(found.launch, Redriven(State.DUE, P2)) is None, "seen before"
    row = bed.row(launch)
    assert (row.failures, row.redrive_count, row.publications) == (0, 1, 0)
    assert (row.partition, row.payload) == (P2, {"n": 1})
    assert not row.dlq_owed
    assert not row.cancel_requested
    assert (row.finished_at, row.dead_at, row.queued_at) == (None, None, None)
    assert listed(bed) == []
    answer = bed.worker().claim([request_of(bed, launch, 3), request_of(bed, launch, 4)], "w")
    assert [c.attempt for c in answer.granted] == [4]
    with letters_of(bed) as letters:
        assert letters.redrive(made, Redriven(State.DUE, P1)) is None, "it runs"


def test_a_held_redrive_keeps_its_payload_and_is_released(bed: Bed) -> None:
    launch = dead(bed, state=State.ABANDONED, payload={"n": 1})
    with letters_of(bed) as letters:
        found = letters.find(launch)
        assert found is not None
        letters.redrive(found.launch, Redriven(State.HELD, bed.row(launch).partition))
    assert (bed.row(launch).state, bed.row(launch).payload) == (State.HELD, {"n": 1})
    assert bed.owner().sweep(OWNED, timedelta(minutes=5), 100).moved == {"released": 1}
    assert bed.row(launch).state is State.DUE


def test_the_letter_of_a_life_that_is_over_is_not_owed_by_the_next(bed: Bed) -> None:
    launch, store = make_launch(bed), bed.worker()
    claimed = claim_one(bed, store, launch)
    store.finish([end_of(claimed, verdict(claimed, State.DEAD))])
    owed = store.owed([(launch, claimed.scheduled_at)])
    with letters_of(bed) as letters:
        found = letters.find(launch)
        assert found is not None
        letters.redrive(found.launch, Redriven(State.DUE, bed.row(launch).partition))
    assert store.owed([(launch, claimed.scheduled_at)]) == []
    assert store.settle([(x.id, x.scheduled_at, x.attempt) for x in owed]) == 0
    again = claim_one(bed, store, launch, attempt=2)
    store.finish([end_of(again, verdict(again, State.DEAD))])
    assert store.settle([(x.id, x.scheduled_at, x.attempt) for x in owed]) == 0
    assert [x.attempt for x in store.owed([(launch, claimed.scheduled_at)])] == [2]


def test_a_purge_takes_out_of_the_letters_and_leaves_the_state(bed: Bed) -> None:
    one, two = dead(bed), dead(bed)
    with letters_of(bed) as letters:
        letters.lock([one, two])
        assert letters.purge([one]) == 1
        assert letters.purge([one]) == 0
        assert letters.find(one) is None
    assert listed(bed) == [two]
    assert bed.row(one).state is State.DEAD
    assert bed.owner().dead_letters(100) == 1


RESULTS = [
    {"outcome": outcome, **more}
    for outcome, more in product(
        ("http_500", "too_large", "worker_lost", "refused_egress", "invalid_target", "refused", ""),
        ({}, {"retryable": True}, {"retryable": False}, {"retryable": None}),
    )
]


def test_a_filter_by_reason_finds_what_the_table_says(bed: Bed) -> None:
    job = make_job(bed, overlap="allow")
    of: dict[LaunchId, Reason] = {}
    for state in (State.DEAD, State.ABANDONED):
        for result in (*RESULTS, None):
            launch = dead(bed, job=job, state=state, result=result)
            of[launch] = reason_of(state, result)
    assert set(of.values()) == set(Reason)
    for reason in Reason:
        wanted = {launch for launch, r in of.items() if r is reason}
        assert set(listed(bed, LetterFilter(reasons=[reason]))) == wanted


def test_other_filters(bed: Bed) -> None:
    job = make_job(bed)
    one = dead(bed, job=job, ago=30)
    two = dead(bed, ago=20, queue="other")
    three = dead(bed, ago=10, state=State.ABANDONED)
    edge = bed.row(two).dead_at
    for where, wanted in (
        (LetterFilter([one, three]), [one, three]),
        (LetterFilter(job=job), [one]),
        (LetterFilter(queue="other"), [two]),
        (LetterFilter(states=[State.ABANDONED]), [three]),
        (LetterFilter(since=edge), [two, three]),
        (LetterFilter(until=edge), [one]),
        (replace(LetterFilter(since=edge), states=[State.DEAD]), [two]),
    ):
        assert listed(bed, where) == wanted


def test_only_the_dead_and_abandoned_are_redriven(bed: Bed) -> None:
    for state in (s for s in State if s not in (State.DEAD, State.ABANDONED)):
        launch = make_launch(bed, state=state)
        seen = replace(_record(bed, launch), state=State.DEAD)
        with letters_of(bed) as letters:
            assert letters.redrive(seen, Redriven(State.DUE, P1)) is None
        assert bed.row(launch).attempt == 1


def _record(bed: Bed, launch: LaunchId) -> Any:
    other = dead(bed)
    with letters_of(bed) as letters:
        found = letters.find(other)
    assert found is not None
    row = bed.row(launch)
    return replace(found.launch, id=launch, scheduled_at=row.scheduled_at)

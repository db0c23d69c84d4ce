"""The contract of the launch stores: claims, ends, extensions, lost claims."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from tests.support.store_bed import (
    OWNED,
    Bed,
    claim_one,
    end_of,
    make_launch,
    request_of,
    verdict,
)

from tickrail.core.errors import TickrailError
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.ports import LostClaim
from tickrail.core.ports_worker import Claimed, ClaimRequest, Extension, TargetName
from tickrail.core.states import State
from tickrail.core.verdict import Verdict
from tickrail.engine.reaper import decide

CEILING = timedelta(hours=12)


def extension(c: Claimed, visibility: float = 30.0) -> Extension:
    return Extension(c.id, c.scheduled_at, c.claim, visibility)


# --- the claim ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.DUE, State.QUEUED])
def test_a_claim_takes_due_and_queued(bed: Bed, state: State) -> None:
    launch = make_launch(bed, state=state, payload={"a": 1}, redrive_count=2, failures=1)
    c = claim_one(bed, bed.worker(), launch)
    row = bed.row(launch)
    assert (row.state, row.claim, row.worker) == (State.RUNNING, c.claim, "w-1")
    assert row.claim_expires_at is not None
    assert row.started_at is not None
    assert row.claim_expires_at - row.started_at >= timedelta(seconds=29)
    assert (c.attempt, c.failures, c.redrive_count, c.visibility) == (1, 1, 2, 30.0)
    assert '"target"' in c.definition
    assert c.payload is not None
    assert c.payload.replace(" ", "") == '{"a":1}'


def test_a_claim_is_refused_with_the_reason(bed: Bed) -> None:
    ended = {
        make_launch(bed, state=State.CANCELLED): "cancelled",
        make_launch(bed, state=State.EXPIRED): "expired",
        make_launch(bed, state=State.SUCCEEDED): "ended",
        make_launch(bed, state=State.HELD): "ended",
        make_launch(bed, due_in=30): "early",
        make_launch(bed, attempt=3): "stale",
        make_launch(bed, start_before=bed.now() - timedelta(seconds=1)): "expired",
    }
    requests = [request_of(bed, launch) for launch in ended]
    unknown = ClaimRequest(LaunchId(uuid4()), bed.now().replace(microsecond=0), 1)
    answer = bed.worker().claim([*requests, unknown], "w-1")
    assert list(answer.granted) == []
    assert answer.refused == {**ended, unknown.id: "unknown"}


def test_an_attempt_that_is_not_yet_there_is_not_claimed(bed: Bed) -> None:
    launch = make_launch(bed, attempt=1)
    answer = bed.worker().claim([request_of(bed, launch, 2)], "w-1")
    assert (list(answer.granted), list(answer.refused)) == ([], [launch])
    assert bed.row(launch).state is State.DUE


def test_a_claim_that_cannot_be_asked_for_claims_nothing_and_is_no_outage(bed: Bed) -> None:
    launch = make_launch(bed)
    worker = bed.worker()
    with pytest.raises(TickrailError) as refused:
        worker.claim([request_of(bed, launch), request_of(bed, launch, 2**31)], "w-1")
    assert type(refused.value) is TickrailError
    assert bed.row(launch).state is State.DUE
    claim_one(bed, worker, launch)


def test_an_end_that_cannot_be_written_changes_nothing_and_is_no_outage(bed: Bed) -> None:
    one, other = make_launch(bed), make_launch(bed)
    worker = bed.worker()
    claims = [claim_one(bed, worker, x) for x in (one, other)]
    good, bad = (end_of(c, verdict(c, State.SUCCEEDED)) for c in claims)
    with pytest.raises(TickrailError) as refused:
        worker.finish([good, bad._replace(result='{"value": NaN}')])
    assert type(refused.value) is TickrailError
    assert {bed.row(x).state for x in (one, other)} == {State.RUNNING}
    worker.finish([good, bad])
    assert {bed.row(x).state for x in (one, other)} == {State.SUCCEEDED}


def test_the_targets_of_jobs_are_those_of_their_present_definitions(bed: Bed) -> None:
    job = bed.row(make_launch(bed)).job_id
    targets = bed.worker().targets
    assert targets([job, JobId(uuid4())], ["task", "noop"]) == {job: TargetName("noop")}
    assert targets([job], ["task", "command"]) == targets([], ["noop"]) == {}


def test_a_doubled_message_starts_one_run(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    claim_one(bed, store, launch)
    again = bed.worker().claim([request_of(bed, launch)], "w-2")
    assert (list(again.granted), again.refused) == ([], {launch: "duplicate"})
    assert bed.row(launch).worker == "w-1"


def test_a_later_claim_of_a_launch_is_the_higher_one(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    numbers = []
    for attempt in range(1, 5):
        c = claim_one(bed, store if attempt % 2 else bed.worker(), launch, attempt)
        numbers.append(c.claim)
        store.finish([end_of(c, verdict(c, State.DUE))])
    assert numbers == sorted(set(numbers))
    assert all(0 < n < 1 << 53 for n in numbers)


def test_a_second_attempt_has_no_start_deadline(bed: Bed) -> None:
    launch = make_launch(bed, attempt=2, start_before=bed.now() - timedelta(hours=1))
    assert claim_one(bed, bed.worker(), launch, 2).attempt == 2


# --- the end ------------------------------------------------------------------------------------


def test_a_success_ends_the_launch_and_owes_nothing(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    c = claim_one(bed, store, launch)
    answer = store.finish([end_of(c, verdict(c, State.SUCCEEDED), outcome="ok")])
    assert (answer.states, list(answer.stale)) == ({launch: State.SUCCEEDED}, [])
    row = bed.row(launch)
    assert (row.state, row.dlq_owed, row.failures) == (State.SUCCEEDED, False, 0)
    assert row.finished_at is not None
    assert row.result == {"outcome": "ok"}


def test_a_retry_is_due_again_under_the_next_number(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    c = claim_one(bed, store, launch)
    assert store.finish([end_of(c, verdict(c, State.DUE, delay=20))]).states == {launch: State.DUE}
    row = bed.row(launch)
    assert (row.state, row.attempt, row.failures) == (State.DUE, 2, 1)
    assert timedelta(seconds=15) < row.due_at - bed.now() <= timedelta(seconds=20)
    assert row.finished_at is None
    early = store.claim([request_of(bed, launch, 2)], "w-1")
    assert early.refused == {launch: "early"}
    assert list(bed.owner().backlog(OWNED, 10).due) == []
    bed.advance(21)
    assert [p.attempt for p in bed.owner().backlog(OWNED, 10).due] == [2]
    assert store.claim([request_of(bed, launch, 1)], "w-1").refused == {launch: "stale"}
    assert claim_one(bed, store, launch, 2).failures == 1


@pytest.mark.parametrize("end", [State.SUCCEEDED, State.DUE, State.DEAD, State.ABANDONED])
def test_an_end_under_another_claim_is_stale(bed: Bed, end: State) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    old = claim_one(bed, store, launch)
    store.finish([end_of(old, verdict(old, State.DUE))])
    new = claim_one(bed, store, launch, 2)
    answer = store.finish([end_of(old, verdict(old, end))])
    assert (answer.states, list(answer.stale)) == ({}, [launch])
    row = bed.row(launch)
    assert (row.state, row.claim, row.attempt) == (State.RUNNING, new.claim, 2)
    store.finish([end_of(new, verdict(new, State.SUCCEEDED))])
    assert list(store.finish([end_of(new, verdict(new, end))]).stale) == [launch]
    assert bed.row(launch).state is State.SUCCEEDED


def test_good_bad_and_stale_ends_come_in_one_call(bed: Bed) -> None:
    store = bed.worker()
    good, bad, gone = (claim_one(bed, store, make_launch(bed)) for _ in range(3))
    bed.change(gone.id, claim=gone.claim + 1)
    answer = store.finish(
        [
            end_of(good, verdict(good, State.SUCCEEDED)),
            end_of(bad, verdict(bad, State.DEAD)),
            end_of(gone, verdict(gone, State.DEAD)),
        ]
    )
    assert answer.states == {good.id: State.SUCCEEDED, bad.id: State.DEAD}
    assert list(answer.stale) == [gone.id]


@pytest.mark.parametrize("end", [State.DUE, State.DEAD, State.ABANDONED])
def test_a_cancel_that_was_asked_for_wins_over_every_failure(bed: Bed, end: State) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    c = claim_one(bed, store, launch)
    bed.cancel(launch)
    assert store.asked_to_stop([(launch, c.scheduled_at)]) == {launch}
    answer = store.finish([end_of(c, verdict(c, end))])
    assert answer.states == {launch: State.CANCELLED}
    row = bed.row(launch)
    assert (row.state, row.dlq_owed, row.failures) == (State.CANCELLED, False, 0)
    assert list(store.owed([(launch, c.scheduled_at)])) == []


def test_a_cancel_does_not_win_over_success(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.worker()
    c = claim_one(bed, store, launch)
    bed.cancel(launch)
    store.finish([end_of(c, verdict(c, State.SUCCEEDED))])
    assert bed.row(launch).state is State.SUCCEEDED


def test_a_cancel_wins_over_a_lost_claim_and_a_give_back(bed: Bed) -> None:
    store = bed.worker()
    lost, given = claim_one(bed, store, make_launch(bed)), claim_one(bed, store, make_launch(bed))
    for c in (lost, given):
        bed.cancel(c.id)
    back = Verdict(State.DUE, 2, 0, timedelta(0), dlq_owed=False)
    store.finish([end_of(given, back, outcome="interrupted")])
    assert bed.row(given.id).state is State.CANCELLED
    bed.advance(31)
    assert bed.owner().reap(OWNED, 10, decide).moved == {"cancelled": 1}
    assert (bed.row(lost.id).state, bed.row(lost.id).dlq_owed) == (State.CANCELLED, False)


def test_a_claim_of_a_redriven_launch_forgets_an_old_cancel(bed: Bed) -> None:
    launch = make_launch(bed, attempt=2, cancel_requested=True)
    c = claim_one(bed, bed.worker(), launch, 2)
    assert bed.worker().asked_to_stop([(launch, c.scheduled_at)]) == frozenset()


# --- extensions ---------------------------------------------------------------------------------


def test_an_extension_keeps_the_claim_also_an_expired_one_that_nobody_took(bed: Bed) -> None:
    store = bed.worker()
    c = claim_one(bed, store, make_launch(bed))
    bed.advance(40)
    answer = store.extend([extension(c)], CEILING)
    assert (answer.held, answer.cancel) == ({c.id}, frozenset())
    expires = bed.row(c.id).claim_expires_at
    assert expires is not None
    assert expires > bed.now() + timedelta(seconds=25)
    assert bed.owner().reap(OWNED, 10, decide).moved == {}


def test_an_extension_tells_of_a_cancel_and_refuses_what_is_gone(bed: Bed) -> None:
    store = bed.worker()
    kept, ended, taken = (claim_one(bed, store, make_launch(bed)) for _ in range(3))
    bed.cancel(kept.id)
    store.finish([end_of(ended, verdict(ended, State.SUCCEEDED))])
    bed.change(taken.id, claim=taken.claim + 1)
    answer = store.extend([extension(c) for c in (kept, ended, taken)], CEILING)
    assert (answer.held, answer.cancel) == ({kept.id}, {kept.id})


def test_extensions_end_after_twelve_hours(bed: Bed) -> None:
    store = bed.worker()
    c = claim_one(bed, store, make_launch(bed))
    bed.advance(12 * 3600 - 60)
    assert store.extend([extension(c)], CEILING).held == {c.id}
    bed.advance(61)
    assert store.extend([extension(c)], CEILING).held == frozenset()


# --- the reaper ---------------------------------------------------------------------------------


def test_a_lost_claim_is_due_again_after_the_backoff(bed: Bed) -> None:
    c = claim_one(bed, bed.worker(), make_launch(bed))
    store = bed.owner()
    bed.advance(29)
    assert store.reap(OWNED, 10, decide).total == 0
    bed.advance(2)
    seen: list[LostClaim] = []

    def record(lost: LostClaim) -> Verdict:
        seen.append(lost)
        return decide(lost)

    assert store.reap(OWNED, 10, record).moved == {"due": 1}
    row = bed.row(c.id)
    assert (row.state, row.attempt, row.failures) == (State.DUE, 2, 1)
    assert row.due_at > bed.now()
    assert (seen[0].claim, seen[0].worker, seen[0].retry["max_attempts"]) == (c.claim, "w-1", 5)
    assert store.reap(OWNED, 10, record).total == 0


def test_a_launch_that_kills_its_workers_ends_dead(bed: Bed) -> None:
    c = claim_one(bed, bed.worker(), make_launch(bed, failures=4))
    bed.advance(31)
    assert bed.owner().reap(OWNED, 10, decide).moved == {"dead": 1}
    assert (bed.row(c.id).state, bed.row(c.id).dlq_owed) == (State.DEAD, True)


def test_a_skip_launch_is_abandoned_when_its_worker_is_lost(bed: Bed) -> None:
    c = claim_one(bed, bed.worker(), make_launch(bed, rerun=False))
    bed.advance(31)
    assert bed.owner().reap(OWNED, 10, decide).moved == {"abandoned": 1}
    row = bed.row(c.id)
    assert (row.state, row.dlq_owed, row.attempt) == (State.ABANDONED, True, 1)
    assert row.result["outcome"] == "worker_lost"


def test_e01_a_finish_after_the_reaper_is_stale(bed: Bed) -> None:
    worker = bed.worker()
    c = claim_one(bed, worker, make_launch(bed))
    bed.advance(31)
    bed.owner().reap(OWNED, 10, decide)
    bed.advance(60)
    again = claim_one(bed, bed.worker(), c.id, 2)
    answer = worker.finish([end_of(c, verdict(c, State.SUCCEEDED))])
    assert list(answer.stale) == [c.id]
    row = bed.row(c.id)
    assert (row.state, row.claim) == (State.RUNNING, again.claim)
    assert worker.extend([extension(c)], CEILING).held == frozenset()


@pytest.mark.parametrize("meanwhile", ["finished", "extended", "claimed again"])
def test_e01_the_reaper_ends_only_the_claim_that_it_saw(bed: Bed, meanwhile: str) -> None:
    worker = bed.worker()
    c = claim_one(bed, worker, make_launch(bed))
    bed.advance(31)

    def between(lost: LostClaim) -> Verdict:
        # Between the reaper's read and its update.
        if meanwhile == "extended":
            worker.extend([extension(c)], CEILING)
        else:
            back = State.SUCCEEDED if meanwhile == "finished" else State.DUE
            worker.finish([end_of(c, verdict(c, back))])
        if meanwhile == "claimed again":
            claim_one(bed, worker, c.id, 2)
        return decide(lost)

    assert bed.owner().reap(OWNED, 10, between).total == 0
    row = bed.row(c.id)
    assert row.state is (State.SUCCEEDED if meanwhile == "finished" else State.RUNNING)
    assert row.attempt == (2 if meanwhile == "claimed again" else 1)


def test_e03_runs_of_a_lost_worker_are_found_by_their_claims_alone(bed: Bed) -> None:
    store = bed.worker()
    runs = [claim_one(bed, store, make_launch(bed)) for _ in range(3)]
    bed.advance(31)
    assert bed.owner().reap(OWNED, 2, decide).total == 2
    assert bed.owner().reap(OWNED, 2, decide).total == 1
    assert {bed.row(c.id).state for c in runs} == {State.DUE}

"""The contract of the launch stores: the tick, the relay's marks, what time makes due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.store_bed import (
    EPOCH,
    OWNED,
    P0,
    P1,
    P2,
    TENANT,
    Bed,
    MemoryBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    verdict,
)
from tests.support.stub_planner import StubPlanner

from tickrail.core.ids import LaunchId, TenantId, launch_id
from tickrail.core.plan import Skipped, SkipReason
from tickrail.core.ports import Publication
from tickrail.core.ports_worker import Claimed, Extension
from tickrail.core.states import State
from tickrail.engine.reaper import decide

LOST_AFTER = timedelta(minutes=5)
CEILING = timedelta(hours=12)
OTHER = TenantId(UUID(int=2))


def publication_of(bed: Bed, launch: LaunchId, **changes: Any) -> Publication:
    row = bed.row(launch)
    found = Publication(
        row.id, row.scheduled_at, row.job_id, row.tenant_id, row.partition, row.queue,
        row.priority, row.attempt, row.due_at,
    )  # fmt: skip
    return found._replace(**changes)


def extension(c: Claimed, visibility: float = 30.0) -> Extension:
    return Extension(c.id, c.scheduled_at, c.claim, visibility)


# --- the tick -----------------------------------------------------------------------------------


def test_a_tick_inserts_the_launch_once_and_moves_the_job(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    due_at = bed.job_row(job).next_run_at
    planner = StubPlanner(wake_in=60)
    ticked = bed.owner().tick(OWNED, 100, planner)
    assert (ticked.jobs, ticked.existed, ticked.errors, ticked.full) == (1, 0, 0, False)
    (launch,) = bed.launches(job)
    assert ticked.inserted == [publication_of(bed, launch.id)]
    assert (launch.state, launch.attempt, launch.epoch) == (State.DUE, 1, EPOCH)
    assert (launch.job_version, launch.partition, launch.tenant_id) == (1, P0, TENANT)
    after = bed.job_row(job)
    assert after.next_run_at == ticked.now + timedelta(seconds=60) == ticked.next_due
    assert (after.state, after.launched, after.last_slot_at) == ("active", 1, launch.scheduled_at)
    assert planner.jobs[0].due_at == due_at
    again = bed.owner().tick(OWNED, 100, planner)
    assert (again.jobs, list(again.inserted)) == (0, [])
    assert len(bed.launches(job)) == 1


def test_a_launch_that_exists_already_is_ordinary(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    slot = StubPlanner().slot(_due(bed, job))
    there = launch_id(job, slot, "schedule")
    make_launch(bed, job, id=there, scheduled_at=slot, state=State.SUCCEEDED)
    ticked = bed.owner().tick(OWNED, 100, StubPlanner(wake_in=60))
    assert (ticked.jobs, ticked.existed, list(ticked.inserted)) == (1, 1, [])
    assert bed.row(there).state is State.SUCCEEDED
    assert bed.job_row(job).next_run_at == ticked.now + timedelta(seconds=60)


def _due(bed: Bed, job: Any) -> Any:
    row = bed.job_row(job)

    class Due:
        due_at: datetime | None = row.next_run_at

    return Due()


def test_a_job_without_a_further_slot_is_finished(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    bed.owner().tick(OWNED, 100, StubPlanner())
    assert (bed.job_row(job).state, bed.job_row(job).next_run_at) == ("finished", None)


def test_a_tick_takes_no_job_that_is_not_due_not_active_or_not_of_its_partitions(bed: Bed) -> None:
    later = make_job(bed, due_in=30)
    make_job(bed, due_in=-1, state="paused")
    make_job(bed, due_in=-1, partition=P2)
    make_job(bed, due_in=-1, tenant=OTHER)
    bed.suspend(OTHER)
    ticked = bed.owner().tick({P0: EPOCH, P1: EPOCH}, 100, StubPlanner())
    assert (ticked.jobs, list(ticked.inserted)) == (0, [])
    assert ticked.next_due == bed.job_row(later).next_run_at


def test_a_tick_says_when_there_is_more(bed: Bed) -> None:
    jobs = [make_job(bed, due_in=-1) for _ in range(3)]
    store = bed.owner()
    first = store.tick(OWNED, 2, StubPlanner())
    assert (first.jobs, first.full) == (2, True)
    second = store.tick(OWNED, 2, StubPlanner())
    assert (second.jobs, second.full) == (1, False)
    assert sorted(len(bed.launches(j)) for j in jobs) == [1, 1, 1]


def test_higher_and_lower_epochs_refuse_and_are_reported(bed: Bed) -> None:
    taken, lost, mine = (make_job(bed, due_in=-1, partition=p) for p in (P0, P1, P2))
    bed.set_epoch(P0, EPOCH + 1)
    bed.set_epoch(P1, EPOCH - 1)
    ticked = bed.owner().tick(OWNED, 100, StubPlanner())
    assert (list(ticked.fence.higher), list(ticked.fence.lower)) == ([P0], [P1])
    assert ticked.jobs == 1
    assert [len(bed.launches(j)) for j in (taken, lost, mine)] == [0, 0, 1]
    assert bed.job_row(taken).state == bed.job_row(lost).state == "active"


def test_every_write_of_an_owner_is_fenced(bed: Bed) -> None:
    store = bed.owner()
    due, held = make_launch(bed), make_launch(bed, state=State.HELD)
    lost = make_launch(bed, state=State.QUEUED, queued_at=bed.now() - timedelta(hours=2))
    run = make_launch(bed)
    claim_one(bed, bed.worker(), run)
    paused = make_job(bed, due_in=10, state="paused", resume_in=-1)
    bed.advance(60)
    bed.set_epoch(P0, EPOCH + 1)
    before = [bed.row(x) for x in (due, held, lost, run)]
    reports = [
        store.mark_queued(OWNED, [publication_of(bed, due)]).fence,
        store.mark_unpublishable(OWNED, [publication_of(bed, due)], "too_large").fence,
        store.sweep(OWNED, LOST_AFTER, 100).fence,
        store.reap(OWNED, 100, decide).fence,
        store.resume(OWNED, 100, StubPlanner(wake_in=60)).fence,
    ]
    assert [list(r.higher) for r in reports] == [[P0]] * 5
    assert [bed.row(x) for x in (due, held, lost, run)] == before
    assert bed.job_row(paused).state == "paused"


def test_skips_are_recorded_with_the_move(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    planner = StubPlanner(wake_in=60)
    first = bed.now().replace(microsecond=0) - timedelta(hours=1)
    planner.skips = (Skipped(SkipReason.MISFIRE, first, first + timedelta(minutes=5), 6),)
    ticked = bed.owner().tick(OWNED, 100, planner)
    assert ticked.skipped == {"misfire": 6}
    (skip,) = bed.skips(job)
    assert (skip.reason, skip.first, skip.count) == ("misfire", first, 6)
    assert skip.last == first + timedelta(minutes=5)


def test_a_job_that_cannot_be_planned_keeps_its_error_and_harms_no_other(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    planner = StubPlanner(wake_in=60)
    planner.error = "bad plan"
    ticked = bed.owner().tick(OWNED, 100, planner)
    assert (ticked.errors, bed.job_row(job).error, bed.launches(job)) == (1, "bad plan", [])


def test_a_planner_that_raises_leaves_everything_as_it_was(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    before = bed.job_row(job)
    planner = StubPlanner()

    def fail() -> None:
        raise RuntimeError("bug")

    planner.inside = fail
    store = bed.owner()
    with pytest.raises(RuntimeError, match="bug"):
        store.tick(OWNED, 100, planner)
    assert bed.job_row(job) == before
    assert store.tick(OWNED, 100, StubPlanner()).jobs == 1


@pytest.mark.parametrize("terminate", [False, True])
def test_open_launches_are_asked_to_stop_or_ended_for_a_later_slot(
    bed: Bed, terminate: bool
) -> None:
    job = make_job(bed, due_in=-1)
    waits, runs = make_launch(bed, job), make_launch(bed, job)
    c = claim_one(bed, bed.worker(), runs)
    planner = StubPlanner(state=State.DUE if terminate else State.HELD, wake_in=60)
    planner.cancel_open, planner.terminate_open = not terminate, terminate
    ticked = bed.owner().tick(OWNED, 100, planner)
    assert len(ticked.inserted) == terminate  # a held launch is not for the relay
    assert bed.row(waits).state is State.CANCELLED
    after = bed.row(runs)
    assert after.cancel_requested
    assert after.state is (State.CANCELLED if terminate else State.RUNNING)
    held = bed.worker().extend([extension(c)], CEILING)
    assert (c.id in held.held, c.id in held.cancel) == (not terminate, not terminate)


def test_a_paused_job_goes_on_when_its_time_has_come(bed: Bed) -> None:
    job = make_job(bed, due_in=-100, state="paused", resume_in=-1)
    other = make_job(bed, due_in=-100, state="paused", resume_in=60)
    planner = StubPlanner(wake_in=60)
    first = bed.now().replace(microsecond=0) - timedelta(seconds=100)
    planner.skips = (Skipped(SkipReason.PAUSED, first, first, 1),)
    resumed = bed.owner().resume(OWNED, 100, planner)
    assert resumed.jobs == 1
    after = bed.job_row(job)
    assert (after.state, after.resume_at) == ("active", None)
    assert after.next_run_at == resumed.now + timedelta(seconds=60)
    assert [x.reason for x in bed.skips(job)] == ["paused"]
    assert bed.job_row(other).state == "paused"
    assert bed.owner().resume(OWNED, 100, planner).jobs == 0


# --- the relay ----------------------------------------------------------------------------------


def test_the_trace_of_a_launch_stays_with_it(bed: Bed) -> None:
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traced, plain = make_launch(bed, trace=context, attempt=2), make_launch(bed)
    found = {p.id: p.trace for p in bed.owner().backlog(OWNED, 10).due}
    assert found == {traced: context, plain: None}


def test_the_backlog_is_what_is_due_now_of_active_tenants_and_queues(bed: Bed) -> None:
    due = make_launch(bed)
    make_launch(bed, due_in=30)
    make_launch(bed, state=State.HELD)
    queued = make_launch(bed, state=State.QUEUED)
    make_launch(bed, make_job(bed, partition=P2))
    make_launch(bed, make_job(bed, tenant=OTHER))
    bed.suspend(OTHER)
    backlog = bed.owner().backlog({P0: EPOCH, P1: EPOCH}, 10)
    assert list(backlog.due) == [publication_of(bed, due)]
    assert backlog.queued == {(("default", 1), P0): 1}
    assert bed.owner().queued({P0: EPOCH}) == {(("default", 1), P0): 1}
    assert bed.owner().queued({P1: EPOCH}) == {}
    bed.pause_queue("default")
    assert list(bed.owner().backlog(OWNED, 10).due) == []
    assert bed.row(queued).state is State.QUEUED


def test_the_backlog_gives_each_tenant_its_oldest_up_to_the_limit(bed: Bed) -> None:
    crowd = make_job(bed)
    ids = [make_launch(bed, crowd, due_in=-n) for n in range(1, 6)]
    alone = make_launch(bed, make_job(bed, tenant=OTHER))
    found = {p.id for p in bed.owner().backlog(OWNED, 2).due}
    assert found == {ids[4], ids[3], alone}


def test_one_class_of_a_tenant_hides_no_other(bed: Bed) -> None:
    job = make_job(bed)
    low = [make_launch(bed, job, due_in=-n, priority=2) for n in range(1, 6)]
    normal, high = make_launch(bed, job), make_launch(bed, job, priority=0)
    queued = make_launch(bed, job, state=State.QUEUED, priority=2)
    backlog = bed.owner().backlog(OWNED, 2)
    assert {p.id for p in backlog.due} == {low[4], low[3], normal, high}
    assert backlog.queued == {(("default", 2), P0): 1}
    assert {p.lane for p in backlog.due} == {("default", n) for n in range(3)}
    assert bed.row(queued).state is State.QUEUED


def test_a_mark_names_state_and_attempt(bed: Bed) -> None:
    store = bed.owner()
    due, ended = make_launch(bed), make_launch(bed, state=State.CANCELLED)
    later, taken = make_launch(bed, attempt=2), make_launch(bed)
    what = [
        publication_of(bed, due),
        publication_of(bed, ended),
        publication_of(bed, later, attempt=1),
        publication_of(bed, taken),
    ]
    claim_one(bed, bed.worker(), taken)  # the message was quicker than its mark
    marked = store.mark_queued(OWNED, what)
    assert (marked.marked, bool(marked.fence)) == (1, False)
    row = bed.row(due)
    assert (row.state, row.publications, row.attempt) == (State.QUEUED, 1, 1)
    assert row.queued_at is not None
    states = [bed.row(x).state for x in (ended, later, taken)]
    assert states == [State.CANCELLED, State.DUE, State.RUNNING]
    assert store.mark_queued(OWNED, what).marked == 0


def test_what_can_never_be_published_is_dead_and_owes_its_letter(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.owner()
    what = publication_of(bed, launch)
    assert store.mark_unpublishable(OWNED, [what], "too_large").marked == 1
    row = bed.row(launch)
    assert (row.state, row.dlq_owed, row.failures) == (State.DEAD, True, 1)
    assert row.result["outcome"] == "too_large"
    assert store.mark_unpublishable(OWNED, [what], "too_large").marked == 0


# --- what time alone makes due ------------------------------------------------------------------


def test_a_lost_message_is_due_again_under_the_same_number(bed: Bed) -> None:
    launch = make_launch(bed)
    store = bed.owner()
    assert store.mark_queued(OWNED, [publication_of(bed, launch)]).marked == 1
    bed.advance(299)
    assert store.sweep(OWNED, LOST_AFTER, 10).total == 0
    bed.advance(2)
    assert store.sweep(OWNED, LOST_AFTER, 10).moved == {"lost_message": 1}
    row = bed.row(launch)
    assert (row.state, row.attempt, row.publications) == (State.DUE, 1, 1)
    store.mark_queued(OWNED, [publication_of(bed, launch)])
    bed.advance(301)
    assert bed.owner().sweep(OWNED, LOST_AFTER, 10).total == 0  # doubled
    bed.advance(300)
    assert bed.owner().sweep(OWNED, LOST_AFTER, 10).total == 1
    # The first message comes at last: it is as good as any.
    assert claim_one(bed, bed.worker(), launch).attempt == 1


def test_the_wait_for_a_message_grows_to_an_hour(bed: Bed) -> None:
    launch = make_launch(bed, state=State.QUEUED, publications=30, queued_at=bed.now())
    bed.advance(3599)
    assert bed.owner().sweep(OWNED, LOST_AFTER, 10).total == 0
    bed.advance(2)
    assert bed.owner().sweep(OWNED, LOST_AFTER, 10).total == 1
    assert bed.row(launch).state is State.DUE


def test_first_attempts_past_their_start_deadline_expire(bed: Bed) -> None:
    soon = bed.now() + timedelta(seconds=10)
    due = make_launch(bed, start_before=soon)
    queued = make_launch(bed, start_before=soon, state=State.QUEUED, queued_at=bed.now())
    running = make_launch(bed, start_before=soon)
    claim_one(bed, bed.worker(), running)
    retried = make_launch(bed, start_before=soon, attempt=2)
    store = bed.owner()
    assert store.sweep(OWNED, LOST_AFTER, 10).total == 0
    bed.advance(11)
    assert store.sweep(OWNED, LOST_AFTER, 10).moved == {"expired": 2}
    states = [bed.row(x).state for x in (due, queued, running, retried)]
    assert states == [State.EXPIRED, State.EXPIRED, State.RUNNING, State.DUE]
    assert bed.row(due).result["outcome"] == "deadline"


def _end(bed: Bed, launch: LaunchId, how: str) -> None:
    """End an open launch in one of the ways there are."""
    worker, owner = bed.worker(), bed.owner()
    if how == "cancelled":
        bed.cancel(launch)
    elif how == "expired":
        bed.change(launch, start_before=bed.now() - timedelta(seconds=1))
        assert owner.sweep(OWNED, LOST_AFTER, 10).moved == {"expired": 1}
    elif how == "unpublishable":
        owner.mark_unpublishable(OWNED, [publication_of(bed, launch)], "too_large")
    elif how == "worker lost":
        bed.change(launch, failures=4)
        claim_one(bed, worker, launch)
        bed.advance(31)
        assert owner.reap(OWNED, 10, decide).moved == {"dead": 1}
    else:
        c = claim_one(bed, worker, launch)
        worker.finish([end_of(c, verdict(c, State(how)), wakes=True)])


@pytest.mark.parametrize(
    "how",
    ["succeeded", "dead", "abandoned", "cancelled", "expired", "unpublishable", "worker lost"],
)
def test_the_oldest_held_launch_is_released_however_the_open_one_ended(bed: Bed, how: str) -> None:
    job = make_job(bed)
    first = make_launch(bed, job, ago=40)
    second = make_launch(bed, job, ago=20, state=State.HELD)
    third = make_launch(bed, job, ago=10, state=State.HELD)
    store = bed.owner()
    assert store.sweep(OWNED, LOST_AFTER, 10).total == 0
    _end(bed, first, how)
    assert store.sweep(OWNED, LOST_AFTER, 10).moved == {"released": 1}
    assert [bed.row(x).state for x in (second, third)] == [State.DUE, State.HELD]
    assert store.sweep(OWNED, LOST_AFTER, 10).total == 0
    _end(bed, second, "succeeded")
    assert store.sweep(OWNED, LOST_AFTER, 10).moved == {"released": 1}
    assert bed.row(third).state is State.DUE


def test_what_has_not_begun_of_a_deleted_tenant_is_cancelled(bed: Bed) -> None:
    job, theirs = make_job(bed), make_job(bed, tenant=OTHER)
    worker = bed.worker()
    runs = make_launch(bed, job, ago=50)
    claimed = claim_one(bed, worker, runs)
    waits = [
        make_launch(bed, job, ago=40, due_in=3600, failures=1, attempt=2),
        make_launch(bed, job, ago=30, state=State.QUEUED, queued_at=bed.now()),
        make_launch(bed, job, ago=20, state=State.HELD),
    ]
    ended = make_launch(bed, job, ago=10, state=State.SUCCEEDED)
    kept = [make_launch(bed, theirs, ago=40), make_launch(bed, theirs, ago=20, state=State.HELD)]
    store = bed.owner()
    bed.suspend(TENANT)
    assert store.sweep(OWNED, LOST_AFTER, 10).total == 0, "a tenant that is suspended goes on"
    bed.suspend(TENANT, delete=True)
    assert store.sweep({P1: OWNED[P1]}, LOST_AFTER, 10).total == 0, "it owns none of them"
    assert store.sweep(OWNED, LOST_AFTER, 2).moved == {"cancelled": 2}
    assert store.sweep(OWNED, LOST_AFTER, 2).moved == {"cancelled": 1}
    for launch in waits:
        row = bed.row(launch)
        assert (row.state, row.cancel_requested) == (State.CANCELLED, True)
        assert row.finished_at is not None
    assert [bed.row(x).state for x in kept] == [State.DUE, State.HELD]
    assert [bed.row(x).state for x in (runs, ended)] == [State.RUNNING, State.SUCCEEDED]
    # What runs ends as it does; what would be tried again is cancelled then.
    worker.finish([end_of(claimed, verdict(claimed, State.DUE))])
    assert bed.row(runs).state is State.DUE
    assert store.sweep(OWNED, LOST_AFTER, 10).moved == {"cancelled": 1}


def test_a_retry_keeps_held_launches_where_they_are(bed: Bed) -> None:
    job = make_job(bed)
    first, held = make_launch(bed, job, ago=40), make_launch(bed, job, state=State.HELD)
    worker = bed.worker()
    c = claim_one(bed, worker, first)
    worker.finish([end_of(c, verdict(c, State.DUE, delay=60))])
    assert bed.owner().sweep(OWNED, LOST_AFTER, 10).total == 0
    assert bed.row(held).state is State.HELD


# --- dead letters -------------------------------------------------------------------------------


def test_a_dead_letter_is_owed_until_it_is_settled(bed: Bed) -> None:
    worker, owner = bed.worker(), bed.owner()
    launch = make_launch(bed)
    c = claim_one(bed, worker, launch)
    worker.finish([end_of(c, verdict(c, State.DUE), outcome="http_503")])
    c = claim_one(bed, worker, launch, 2)
    worker.finish([end_of(c, verdict(c, State.DEAD))])
    (letter,) = worker.owed([(launch, c.scheduled_at)])
    assert (letter.id, letter.attempt, letter.failures, letter.state) == (launch, 2, 2, State.DEAD)
    assert letter.job_name == bed.job_row(letter.job).name
    history: Sequence[Any] = letter.history
    assert [(a["attempt"], a["outcome"]) for a in history] == [(1, "http_503"), (2, "http_500")]
    assert letter.result["outcome"] == "http_500"
    assert list(owner.owed(OWNED, timedelta(seconds=30), 10)) == []
    bed.advance(31)
    found = owner.owed(OWNED, timedelta(seconds=30), 10)
    assert [(x.id, x.attempt, x.state) for x in found] == [(launch, 2, State.DEAD)]
    assert list(owner.owed({P1: EPOCH}, timedelta(seconds=30), 10)) == []
    assert owner.settle([(launch, c.scheduled_at, 1)]) == 0  # another attempt's letter
    assert owner.settle([(launch, c.scheduled_at, 2)]) == 1
    assert worker.settle([(launch, c.scheduled_at, 2)]) == 0
    assert list(worker.owed([(launch, c.scheduled_at)])) == []
    assert not bed.row(launch).dlq_owed


# --- days ---------------------------------------------------------------------------------------


def test_days_are_made_once(bed: Bed) -> None:
    store = bed.owner()
    assert store.make_days(3) == 5
    assert store.make_days(3) == 0
    assert store.make_days(4) == 1


def test_days_behind_the_horizon_go_unless_they_hold_something_open(bed: Bed) -> None:
    store = bed.owner()
    store.make_days(1)
    assert store.drop_days() == 0
    day = 24 * 3600
    ended = make_launch(bed, ago=40 * day, state=State.SUCCEEDED)
    opened = make_launch(bed, ago=41 * day)
    owing = make_launch(bed, ago=42 * day, state=State.DEAD, dlq_owed=True)
    _days_of(bed, ended, opened, owing)
    assert store.drop_days() == 1
    assert [bed.row(x).state for x in (opened, owing)] == [State.DUE, State.DEAD]
    with pytest.raises((KeyError, ValueError)):
        bed.row(ended)


def _days_of(bed: Bed, *launches: LaunchId) -> None:
    if isinstance(bed, MemoryBed):
        bed.db.days |= {bed.row(x).scheduled_at.date() for x in launches}

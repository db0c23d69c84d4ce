"""The contract of the owner's store: what planners are told, and what decisions do."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest
from tests.support.store_bed import (
    OWNED,
    TENANT,
    Bed,
    make_job,
    make_launch,
)
from tests.support.stub_planner import StubPlanner

from tickrail.core.ids import TenantId
from tickrail.core.ports import OpenCount
from tickrail.core.states import State

OTHER = TenantId(UUID(int=2))


def test_the_tick_hands_the_planner_the_calendars_that_it_names(bed: Bed) -> None:
    make_job(bed, due_in=-1)
    bed.set_calendar("holidays", 3, '{"dates": ["2026-12-25"]}')
    bed.set_calendar("other", 1, "{}")
    planner = StubPlanner(wake_in=-1)
    planner.named = ("holidays", "absent")
    owner = bed.owner()
    owner.tick(OWNED, 10, planner)
    assert set(planner.known) == {(TENANT, "holidays")}
    assert planner.known[TENANT, "holidays"].version == 3
    assert json.loads(planner.known[TENANT, "holidays"].document) == {"dates": ["2026-12-25"]}

    bed.set_calendar("holidays", 4, '{"dates": []}')
    owner.tick(OWNED, 10, planner)
    assert planner.known[TENANT, "holidays"].version == 4
    assert json.loads(planner.known[TENANT, "holidays"].document) == {"dates": []}


def test_a_tick_uses_up_what_was_to_be_left_out_and_the_bounds_of_a_resume(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    bed.change_job(job, skip_next=5, catch_up={"until": "2026-01-01T00:00:00+00:00"})
    planner = StubPlanner(wake_in=60)
    planner.by_hand = 2
    bed.owner().tick(OWNED, 10, planner)
    (seen,) = planner.jobs
    assert seen.skip_next == 5
    assert json.loads(seen.catch_up or "null") == {"until": "2026-01-01T00:00:00+00:00"}
    row = bed.job_row(job)
    assert (row.skip_next, row.catch_up) == (3, None)


def test_the_bounds_of_a_resume_stay_while_a_job_cannot_be_planned(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    bed.change_job(job, catch_up={"until": "2026-01-01T00:00:00+00:00"})
    planner = StubPlanner(wake_in=60)
    planner.error = "its plan cannot be read"
    bed.owner().tick(OWNED, 10, planner)
    assert bed.job_row(job).catch_up == {"until": "2026-01-01T00:00:00+00:00"}


def test_a_job_that_awaits_an_end_stays_active_and_is_measured_from_it(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    planner = StubPlanner(wake_in=None)
    planner.awaits = True
    bed.owner().tick(OWNED, 10, planner)
    row = bed.job_row(job)
    assert (row.state, row.next_run_at, row.awaits) == ("active", None, True)

    planner.wake_in = 60
    assert bed.owner().complete(OWNED, 10, planner).jobs == 0  # its launch is open
    (launch,) = bed.launches(job)
    backfill = make_launch(bed, job, origin="backfill:1")
    ended = bed.now() - timedelta(seconds=7)
    bed.change(launch.id, state=State.SUCCEEDED, finished_at=ended)
    make_launch(bed, job, ago=1, origin="backfill:2", state=State.DEAD, finished_at=bed.now())
    assert bed.owner().complete({}, 10, planner).jobs == 0
    assert bed.owner().complete(OWNED, 10, planner).jobs == 1
    (seen,) = planner.ended
    assert seen.job.id == job
    assert seen.ended_at == ended
    row = bed.job_row(job)
    assert (row.state, row.awaits) == ("active", False)
    assert row.next_run_at is not None
    assert bed.row(backfill).state is State.DUE
    assert bed.owner().complete(OWNED, 10, planner).jobs == 0


def test_without_any_launch_an_end_is_the_last_slot(bed: Bed) -> None:
    slot = bed.now() - timedelta(minutes=5)
    job = make_job(bed)
    bed.change_job(job, awaits=True, last_slot_at=slot)
    planner = StubPlanner(wake_in=60)
    assert bed.owner().complete(OWNED, 10, planner).jobs == 1
    assert [e.ended_at for e in planner.ended] == [slot]


@pytest.mark.parametrize("state", ["paused", "finished"])
def test_only_an_active_job_is_measured_from_an_end(bed: Bed, state: str) -> None:
    job = make_job(bed, state=state)
    bed.change_job(job, awaits=True)
    assert bed.owner().complete(OWNED, 10, StubPlanner(wake_in=60)).jobs == 0


def test_the_planner_is_told_how_many_open_launches_are_of_backfills(bed: Bed) -> None:
    job = make_job(bed, due_in=-1)
    make_launch(bed, job)
    make_launch(bed, job, origin="backfill:1")
    make_launch(bed, job, origin="backfill:1", state=State.HELD)
    planner = StubPlanner(wake_in=60)
    bed.owner().tick(OWNED, 10, planner)
    assert planner.opened == {job: OpenCount(3, 1, 2)}


def test_the_planner_hears_of_open_launches_where_it_asks(bed: Bed) -> None:
    job, free = make_job(bed, due_in=-1), make_job(bed, due_in=-1)
    for state in (State.HELD, State.DUE, State.QUEUED, State.SUCCEEDED):
        make_launch(bed, job, state=state)
    planner = StubPlanner()
    bed.owner().tick(OWNED, 100, planner)
    assert planner.opened[job] == (3, 1, 0)
    assert planner.opened.get(free, OpenCount(0, 0)) == OpenCount(0, 0)
    silent = StubPlanner()
    silent.asks_open = False
    make_job(bed, due_in=-1)
    bed.owner().tick(OWNED, 100, silent)
    assert silent.opened == {}


def test_the_planner_is_told_which_jobs_became_due_during_a_suspension(bed: Bed) -> None:
    job = make_job(bed, due_in=-60, tenant=OTHER)
    make_job(bed, due_in=-60)
    bed.suspend(OTHER)
    bed.owner().tick(OWNED, 10, StubPlanner(wake_in=3600))
    bed.go_on(OTHER)
    planner = StubPlanner(wake_in=-1)
    owner = bed.owner()
    owner.tick(OWNED, 10, planner)
    (seen,) = planner.jobs
    assert (seen.id, seen.resume_at is not None) == (job, True)
    assert seen.resume_at is not None
    assert seen.due_at < seen.resume_at <= bed.now()
    bed.change_job(job, next_run_at=bed.now())
    owner.tick(OWNED, 10, planner)
    assert planner.jobs[-1].resume_at is None

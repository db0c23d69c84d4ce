"""The owner's store where more is due than a batch holds: after an outage, at a full minute."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.store_bed import OWNED, P0, P1, P2, Bed, make_job
from tests.support.stub_planner import StubPlanner

from tickrail.core.clock import SystemClock
from tickrail.core.ids import TenantId
from tickrail.engine.tick import JobPlanner

OTHER = TenantId(UUID(int=2))


def test_in_a_crowd_tenants_go_in_turns_and_of_each_the_newest_and_the_oldest(bed: Bed) -> None:
    late = [make_job(bed, due_in=n - 600) for n in range(10)]
    on_time = [make_job(bed, due_in=n - 3, partition=P1) for n in range(2)]
    other = make_job(bed, due_in=-100, partition=P2, tenant=OTHER)
    store, planner = bed.owner(), StubPlanner()
    ticked = store.tick(OWNED, 8, planner)
    assert (ticked.jobs, ticked.full) == (8, True)
    assert [j.id for j in planner.jobs[:2]] == [other, on_time[1]]
    # The last batch of a crowd, and what comes after it.
    sizes = [store.tick(OWNED, 4, planner).jobs for _ in range(3)]
    assert sizes == [4, 1, 0]
    assert {j.id for j in planner.jobs} == {*late, *on_time, other}
    assert len(planner.jobs) == 13


def test_who_is_due_at_the_instant_of_a_crowd_does_not_wait_for_it(bed: Bed) -> None:
    """Nor do the crowd's size and the order in which the jobs were made decide."""
    crowd = [make_job(bed, due_in=-9) for _ in range(100)]
    instant = bed.job_row(crowd[0]).next_run_at
    others = [make_job(bed, due_in=-9, tenant=OTHER, partition=p) for p in (P0, P0, P1)]
    for job in (*crowd, *others):
        bed.change_job(job, next_run_at=instant)
    for _ in range(100):
        make_job(bed, due_in=-1)
    store, planner = bed.owner(), StubPlanner(wake_in=60)
    store.tick(OWNED, 40, planner)
    assert {j.id for j in planner.jobs} >= set(others)


def test_late_jobs_have_a_share_while_more_are_on_time_than_a_batch_holds(bed: Bed) -> None:
    late = [make_job(bed, due_in=n - 600) for n in range(4)]
    for _ in range(40):
        make_job(bed, due_in=-1, partition=P1)
    store, planner = bed.owner(), StubPlanner()
    for _ in range(2):
        store.tick(OWNED, 20, planner)
    assert {j.id for j in planner.jobs if j.id in late} == set(late)


def test_a_job_locked_elsewhere_and_a_suspended_tenant_take_no_place_in_a_crowd(bed: Bed) -> None:
    for _ in range(5):
        make_job(bed, due_in=-600, tenant=OTHER)
    bed.suspend(OTHER)
    jobs = {make_job(bed, due_in=-100) for _ in range(5)}
    store, planner = bed.owner(), StubPlanner()
    assert [store.tick(OWNED, 3, planner).full for _ in range(2)] == [True, False]
    assert {j.id for j in planner.jobs} == jobs


def test_jobs_that_the_planner_leaves_out_stay_due(bed: Bed) -> None:
    jobs = [make_job(bed, due_in=n - 9) for n in range(3)]
    left = StubPlanner(wake_in=60)
    left.at_most = 1
    store = bed.owner()
    ticked = store.tick(OWNED, 100, left)
    assert (ticked.jobs, ticked.full, len(ticked.inserted)) == (1, True, 1)
    assert sum(bed.job_row(j).next_run_at <= ticked.now for j in jobs) == 2  # type: ignore[operator]
    after = store.tick(OWNED, 100, StubPlanner(wake_in=60))
    assert (after.jobs, after.full) == (2, False)
    assert [len(bed.launches(j)) for j in jobs] == [1, 1, 1]


@pytest.mark.parametrize(
    ("misfire", "launched", "records"),
    [
        pytest.param({"policy": "skip"}, 0, 2, id="skip"),
        pytest.param({"policy": "fire_once"}, 0, 2, id="fire_once"),
        pytest.param({"policy": "fire_all", "max_count": 25}, 25, 3, id="fire_all"),
    ],
)
def test_a_job_of_every_second_costs_after_a_year_no_more_than_its_bounds(
    bed: Bed, misfire: dict[str, Any], launched: int, records: int
) -> None:
    year = 365 * 86_400
    job = make_job(
        bed,
        due_in=-year,
        schedule={"cron": "* * * * * *"},
        overlap="allow",
        misfire={"grace": "1s", **misfire},
    )
    first = bed.job_row(job).next_run_at
    assert first is not None
    bed.change_job(job, next_run_at=first.replace(microsecond=0))
    began = SystemClock().monotonic()
    ticked = bed.owner().tick(OWNED, 100, JobPlanner())
    assert SystemClock().monotonic() - began < 1.0
    late = [x for x in bed.launches(job) if ticked.now - x.scheduled_at > timedelta(seconds=1)]
    assert len(late) == launched
    skips = bed.skips(job)
    assert len(skips) == records
    assert [x.reason for x in skips].count("too_old") == 1
    slots = (ticked.now - first.replace(microsecond=0)) // timedelta(seconds=1) + 1
    assert sum(x.count for x in skips) + len(bed.launches(job)) == slots
    assert ticked.jobs == 1
    assert not ticked.full
    wake = bed.job_row(job).next_run_at
    assert wake is not None
    assert wake > ticked.now

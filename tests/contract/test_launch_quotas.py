"""The contract of quotas of launches: exact in each window, and nobody's but the tenant's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from tests.support.backfill_bed import backfill_row, make_backfill
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, P0, P1, TENANT, Bed, make_job
from tests.support.stub_planner import StubPlanner
from tests.support.until import until

from tickrail.core.ids import JobId, TenantId
from tickrail.core.limits import INSTALLATION
from tickrail.core.quotas import Quota
from tickrail.engine.backfills import Backfills

DAY, MINUTE = Quota.LAUNCHES_PER_DAY, Quota.LAUNCHES_PER_MINUTE
OTHER = TenantId(UUID(int=2))


@pytest.fixture(autouse=True)
def _no_midnight(bed: Bed) -> None:
    """A day that ends in the middle of a test would give it twice as much."""

    def far() -> bool:
        return (bed.now() + timedelta(seconds=30)).date() == bed.now().date()

    until(far, 60)


def made(bed: Bed, jobs: Sequence[JobId]) -> int:
    return sum(len(bed.launches(j)) for j in jobs)


def skipped(bed: Bed, jobs: Sequence[JobId]) -> list[str]:
    return [s.reason for j in jobs for s in bed.skips(j)]


def test_a_tick_makes_as_many_launches_as_the_quota_has_room_for(bed: Bed) -> None:
    jobs = [make_job(bed, due_in=-1) for _ in range(5)]
    others = [make_job(bed, due_in=-1, tenant=OTHER) for _ in range(5)]
    bed.set_quota(TENANT, DAY, 3)
    planner = StubPlanner()
    done = bed.owner().tick(OWNED, 100, planner)
    assert (made(bed, jobs), made(bed, others)) == (3, 5)
    assert skipped(bed, jobs) == ["quota", "quota"]
    assert skipped(bed, others) == []
    assert bed.used(TENANT) == {DAY: 3}
    assert bed.used(OTHER) == {}
    assert done.skipped == {"quota": 2}
    assert {j.next_run_at for j in map(bed.job_row, jobs)} == {None}, "none is due any more"


def test_what_was_made_before_counts_and_the_narrowest_quota_decides(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 4)
    bed.set_quota(TENANT, MINUTE, 1_000)
    first = [make_job(bed, due_in=-1) for _ in range(3)]
    owner = bed.owner()
    owner.tick(OWNED, 100, StubPlanner())
    second = [make_job(bed, due_in=-1) for _ in range(3)]
    owner.tick(OWNED, 100, StubPlanner())
    assert (made(bed, first), made(bed, second)) == (3, 1)
    assert bed.used(TENANT)[DAY] == 4


def test_two_owners_together_stay_within_the_quota(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 5)
    jobs = [make_job(bed, due_in=-1, partition=p) for p in (P0, P1) for _ in range(4)]
    for partition in (P0, P1):
        bed.owner().tick({partition: OWNED[partition]}, 100, StubPlanner())
    assert made(bed, jobs) == 5
    assert len(skipped(bed, jobs)) == 3


def test_a_quota_for_everybody_holds_for_those_without_one_of_their_own(bed: Bed) -> None:
    bed.set_quota(INSTALLATION, DAY, 1)
    bed.set_quota(OTHER, DAY, None)
    jobs = [make_job(bed, due_in=-1) for _ in range(3)]
    others = [make_job(bed, due_in=-1, tenant=OTHER) for _ in range(3)]
    bed.owner().tick(OWNED, 100, StubPlanner())
    assert (made(bed, jobs), made(bed, others)) == (1, 3)


@pytest.mark.parametrize("quota", [MINUTE, DAY])
@pytest.mark.parametrize(("own", "shared"), [(3, 1), (1, 3), (None, 1)])
def test_a_quota_of_its_own_goes_before_the_one_for_everybody(
    bed: Bed, quota: Quota, own: int | None, shared: int
) -> None:
    bed.set_quota(INSTALLATION, quota, shared)
    bed.set_quota(TENANT, quota, own)
    jobs = [make_job(bed, due_in=-1) for _ in range(4)]
    bed.owner().tick(OWNED, 100, StubPlanner())
    assert made(bed, jobs) == (4 if own is None else own)


def test_a_quota_of_none_lets_nothing_through(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 0)
    job = make_job(bed, due_in=-1)
    done = bed.owner().tick(OWNED, 100, StubPlanner())
    assert (made(bed, [job]), skipped(bed, [job])) == (0, ["quota"])
    assert done.reached == []


def test_jobs_of_a_tenant_whose_quotas_are_held_stay_due_and_harm_no_other(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 10)
    job, other = make_job(bed, due_in=-1), make_job(bed, due_in=-1, tenant=OTHER)
    planner, owner = StubPlanner(), bed.owner()
    with bed.busy_quotas(TENANT):
        done = owner.tick(OWNED, 100, planner)
        assert [j.id for j in planner.jobs] == [other]
        assert made(bed, [job]) == 0
        assert bed.job_row(job).next_run_at is not None
        assert not done.full
    owner.tick(OWNED, 100, planner)
    assert (made(bed, [job]), made(bed, [other])) == (1, 1)


def test_a_launch_that_is_there_already_is_not_counted(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 10)
    job = make_job(bed, due_in=-1)
    due = bed.job_row(job).next_run_at
    owner = bed.owner()
    owner.tick(OWNED, 100, StubPlanner())
    bed.change_job(job, next_run_at=due, state="active")
    again = owner.tick(OWNED, 100, StubPlanner())
    assert again.existed == 1
    assert bed.used(TENANT) == {DAY: 1}


def test_levels_are_told_of_once(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 10)
    owner = bed.owner()
    told = []
    for count in (7, 1, 1, 1, 2):
        for _ in range(count):
            make_job(bed, due_in=-1)
        told.append([(t, r.percent) for t, r in owner.tick(OWNED, 100, StubPlanner()).reached])
    assert told == [[], [(TENANT, 80)], [], [(TENANT, 100)], []]


def test_a_backfill_waits_for_its_quota_and_skips_nothing(bed: Bed) -> None:
    bed.set_quota(TENANT, DAY, 3)
    job = make_job(bed, schedule={"every": "1h", "anchor": "2026-01-01T00:00:00Z"}, overlap="allow")
    begin = (bed.now() - timedelta(days=2)).replace(hour=0, minute=0, second=0, microsecond=0)
    backfill = make_backfill(bed, job, begin, begin + timedelta(hours=5), max_open=10)
    Backfills(bed.owner(), Counted()).run_once(OWNED)
    assert (made(bed, [job]), skipped(bed, [job])) == (3, [])
    row = backfill_row(bed, backfill)
    assert row.state == "running"
    assert row.backfill.launched == 3
    rest = row.backfill.next_at - bed.now()
    assert timedelta(0) < rest <= timedelta(minutes=1), "it looks again at the full minute"

    bed.set_quota(TENANT, DAY, 100)
    bed.advance(61)
    Backfills(bed.owner(), Counted()).run_once(OWNED)
    assert made(bed, [job]) == 5
    assert bed.used(TENANT) == {DAY: 5}

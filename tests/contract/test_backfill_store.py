"""The contract of the owner's pass over backfills."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.backfill_bed import backfill_row, make_backfill, set_state
from tests.support.stepped import Counted
from tests.support.store_bed import (
    EPOCH,
    OWNED,
    P0,
    P1,
    TENANT,
    Bed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    verdict,
)

from tickrail.core.backfill import Existing
from tickrail.core.ids import Epoch, JobId, launch_id
from tickrail.core.policies import CatchUpOrder
from tickrail.core.ports_backfill import Backfilled
from tickrail.core.states import State
from tickrail.engine.backfills import Backfills

HOUR = timedelta(hours=1)


def day(bed: Bed, ago: int = 3) -> datetime:
    """The beginning of a day in the past."""
    return bed.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
        days=ago
    )


def hourly(bed: Bed, **more: Any) -> JobId:
    definition = {"schedule": {"cron": "0 * * * *"}, "overlap": "allow", **more}
    return make_job(bed, due_in=3600, **definition)


def fill(bed: Bed, batch: int = 50) -> Backfilled:
    return Backfills(bed.owner(), Counted(), batch=batch).run_once(OWNED)


def hours(bed: Bed, job: JobId) -> list[int]:
    return [x.scheduled_at.astimezone(UTC).hour for x in bed.launches(job)]


def test_slots_become_launches_of_low_priority_with_the_origin_of_the_backfill(bed: Bed) -> None:
    job, start = hourly(bed, priority="high", max_launches=1), day(bed)
    backfill = make_backfill(bed, job, start, start + 3 * HOUR, total=3)
    done = fill(bed)
    assert len(done.inserted) == 3
    assert not done.more
    rows = bed.launches(job)
    for n, row in enumerate(rows):
        slot = start + n * HOUR
        assert row.id == launch_id(job, slot, f"backfill:{backfill}")
        assert (row.scheduled_at, row.state, row.attempt) == (slot, State.DUE, 1)
        assert (row.priority, row.origin, row.epoch) == (2, f"backfill:{backfill}", EPOCH)
        assert (row.job_version, row.partition, row.tenant_id) == (1, P0, TENANT)
        assert row.due_at <= done.now
        assert row.payload is None
    assert {(p.id, p.scheduled_at, p.priority, p.attempt) for p in done.inserted} == {
        (row.id, row.scheduled_at, 2, 1) for row in rows
    }
    after = backfill_row(bed, backfill)
    assert (after.state, after.backfill.launched, after.backfill.cursor_at) == (
        "running", 3, start + 2 * HOUR,
    )  # fmt: skip
    owner = bed.job_row(job)
    assert (owner.launched, owner.last_slot_at, owner.state) == (0, None, "active")


def test_it_ends_when_its_last_launch_has_ended(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    backfill = make_backfill(bed, job, start, start + HOUR, total=1)
    fill(bed)
    assert backfill_row(bed, backfill).state == "running"
    (launch,) = bed.launches(job)
    worker = bed.worker()
    claimed = claim_one(bed, worker, launch.id)
    assert claimed.origin == f"backfill:{backfill}"
    assert fill(bed).ended == 0
    worker.finish([end_of(claimed, verdict(claimed, State.SUCCEEDED))])
    assert fill(bed).ended == 1
    assert backfill_row(bed, backfill).state == "finished"
    assert fill(bed).ended == 0


def test_slots_that_have_a_launch_are_left_alone_unless_asked(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    for hour, origin in ((0, "schedule"), (1, "backfill:other"), (2, "manual:x")):
        slot = start + hour * HOUR
        make_launch(
            bed, job, id=launch_id(job, slot, origin), scheduled_at=slot, origin=origin,
            state=State.SUCCEEDED,
        )  # fmt: skip
    backfill = make_backfill(bed, job, start, start + 4 * HOUR, total=4)
    assert fill(bed).left_alone == 2
    assert hours(bed, job) == [0, 1, 2, 2, 3]
    assert backfill_row(bed, backfill).backfill.left_alone == 2
    make_backfill(bed, job, start, start + 4 * HOUR, existing=Existing.LAUNCH)
    assert fill(bed).left_alone == 0
    assert hours(bed, job) == [0, 0, 1, 1, 2, 2, 2, 3, 3]


def test_backfills_of_one_job_do_not_launch_a_slot_twice_in_one_pass(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    for _ in range(2):
        make_backfill(bed, job, start, start + 3 * HOUR)
    done = fill(bed)
    assert (len(done.inserted), done.left_alone) == (3, 3)


def test_under_another_policy_one_launch_of_the_job_is_open_at_a_time(bed: Bed) -> None:
    job, start = hourly(bed, overlap="skip"), day(bed)
    for _ in range(2):
        make_backfill(bed, job, start, start + 3 * HOUR)
    held = make_launch(bed, job, state=State.HELD, origin="schedule")
    assert len(fill(bed).inserted) == 0
    bed.change(held, state=State.SUCCEEDED)
    assert len(fill(bed).inserted) == 1
    assert len(fill(bed).inserted) == 0
    (launch,) = [x for x in bed.launches(job) if x.state is State.DUE]
    bed.change(launch.id, state=State.DEAD)
    assert len(fill(bed).inserted) == 1


def test_open_launches_of_others_do_not_count_where_launches_may_overlap(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    for n in range(3):
        make_launch(bed, job, ago=n, origin="schedule")
    make_backfill(bed, job, start, start + 9 * HOUR, max_open=2)
    assert len(fill(bed).inserted) == 2
    assert len(fill(bed).inserted) == 0
    bed.change(bed.launches(job)[0].id, state=State.SUCCEEDED)
    assert len(fill(bed).inserted) == 1


def test_a_rate_waits(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    backfill = make_backfill(
        bed, job, start, start + 9 * HOUR, per_minute=2, order=CatchUpOrder.NEWEST
    )
    assert len(fill(bed).inserted) == 1
    for _ in range(2):
        assert len(fill(bed).inserted) == 0
        bed.advance(30)
        assert len(fill(bed).inserted) == 1
    assert hours(bed, job) == [6, 7, 8]
    assert backfill_row(bed, backfill).backfill.cursor_at == start + 6 * HOUR


@pytest.mark.parametrize(("payload", "has"), [({"day": 1}, True), (None, False), ([], True)])
def test_its_payload_is_that_of_its_launches(bed: Bed, payload: Any, has: bool) -> None:
    job, start = hourly(bed), day(bed)
    make_backfill(bed, job, start, start + HOUR, payload=payload, has_payload=has)
    fill(bed)
    (launch,) = bed.launches(job)
    claimed = claim_one(bed, bed.worker(), launch.id)
    assert (None if claimed.payload is None else json.loads(claimed.payload)) == payload


def test_slots_that_the_schedule_is_still_to_decide_are_waited_for(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    backfill = make_backfill(bed, job, start, start + 4 * HOUR)
    bed.change_job(job, next_run_at=start + 2 * HOUR)
    fill(bed)
    assert hours(bed, job) == [0, 1]
    assert backfill_row(bed, backfill).state == "running"
    bed.change_job(job, state="paused")
    fill(bed)
    assert hours(bed, job) == [0, 1, 2, 3]


def test_a_job_that_was_deleted_or_has_no_schedule_ends_its_backfill(bed: Bed) -> None:
    start = day(bed)
    deleted, by_hand = hourly(bed), hourly(bed)
    found = [make_backfill(bed, j, start, start + HOUR) for j in (deleted, by_hand)]
    bed.change_job(deleted, state="deleted")
    bed.change_job(by_hand, plan=bed.job_row(make_job(bed)).plan)
    assert fill(bed).ended == 2
    assert [backfill_row(bed, b).state for b in found] == ["cancelled", "cancelled"]
    assert bed.launches(deleted) == bed.launches(by_hand) == []


def test_a_job_that_cannot_be_read_waits_and_harms_no_other(bed: Bed) -> None:
    start = day(bed)
    bad, good = hourly(bed), hourly(bed)
    first = make_backfill(bed, bad, start, start + HOUR)
    make_backfill(bed, good, start, start + HOUR)
    bed.change_job(bad, plan='{"schedule": {"moon": "full"}}')
    fill(bed)
    assert (hours(bed, bad), hours(bed, good)) == ([], [0])
    row = backfill_row(bed, first)
    assert row.state == "running"
    assert row.backfill.next_at > bed.now() + timedelta(seconds=50)


def test_the_fence_refuses_an_owner_that_is_none(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    backfill = make_backfill(bed, job, start, start + HOUR)
    bed.set_epoch(P0, EPOCH + 1)
    done = fill(bed)
    assert (list(done.fence.higher), list(done.inserted)) == ([P0], [])
    bed.set_epoch(P0, EPOCH - 1)
    assert list(fill(bed).fence.lower) == [P0]
    assert backfill_row(bed, backfill).backfill.launched == 0
    owned = {P1: Epoch(EPOCH)}
    assert list(Backfills(bed.owner(), Counted()).run_once(owned).inserted) == []


def test_one_that_was_cancelled_or_belongs_to_a_suspended_tenant_rests(bed: Bed) -> None:
    job, start = hourly(bed), day(bed)
    set_state(bed, make_backfill(bed, job, start, start + HOUR), "cancelled")
    assert list(fill(bed).inserted) == []
    make_backfill(bed, job, start, start + HOUR)
    bed.suspend(TENANT)
    assert list(fill(bed).inserted) == []


def test_many_take_turns(bed: Bed) -> None:
    start = day(bed)
    jobs = [hourly(bed) for _ in range(4)]
    for job in jobs:
        make_backfill(bed, job, start, start + 3 * HOUR, max_open=1)
    for _ in range(4):
        fill(bed, batch=1)
    assert [len(bed.launches(job)) for job in jobs] == [1, 1, 1, 1]


def test_a_slot_that_fell_out_of_the_history_is_left_alone(bed: Bed) -> None:
    job, start = hourly(bed), day(bed, 31)
    backfill = make_backfill(bed, job, start, start + 72 * HOUR, existing=Existing.LAUNCH)
    done = fill(bed)
    assert done.left_alone >= 24
    row: UUID = backfill
    assert backfill_row(bed, row).backfill.launched == len(done.inserted) == 10
    assert all(
        x.scheduled_at > bed.now() - timedelta(days=30, seconds=60) for x in bed.launches(job)
    )

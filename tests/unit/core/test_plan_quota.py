"""A decision cut to the room that a tenant's quotas leave."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import Decision, Situation, plan_job, within_quota
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import At, Cron, Every, MeasuredFrom

JOB = JobId(UUID("019b76da-a800-7000-8000-000000000001"))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL = Plan(
    schedule=Cron("* * * * *"),
    overlap=Overlap.ALLOW,
    misfire=Misfire(policy=MisfirePolicy.FIRE_ALL, max_count=100, max_age=timedelta(days=1)),
)


def minutes(*after_eleven: int) -> list[datetime]:
    return [NOON - timedelta(hours=1) + timedelta(minutes=m) for m in after_eleven]


def decided(plan: Plan, room: int, since: datetime = NOON, **more: int) -> Decision:
    s = Situation(JOB, since, **more)
    return within_quota(plan, s, plan_job(plan, s, NOON), room)


def runs(decision: Decision) -> list[tuple[str, datetime, datetime, int]]:
    return [(s.reason.value, s.first, s.last, s.count) for s in decision.skipped]


def slots(decision: Decision) -> list[datetime]:
    return [x.scheduled_at for x in decision.launches]


def test_enough_room_changes_nothing() -> None:
    s = Situation(JOB, NOON)
    whole = plan_job(ALL, s, NOON)
    assert within_quota(ALL, s, whole, 1) is whole


def test_the_first_launches_are_made_and_the_rest_is_one_run_of_skips() -> None:
    found = decided(ALL, 2, minutes(55)[0])
    assert slots(found) == minutes(55, 56)
    assert runs(found) == [("quota", *minutes(57, 60), 4)]
    assert found.wake_at == minutes(61)[0], "the job goes on after them"
    assert found.last_slot == NOON


def test_what_is_launched_in_between_parts_the_run() -> None:
    newest = replace(ALL, misfire=replace(ALL.misfire, order=CatchUpOrder.NEWEST))
    found = decided(newest, 2, minutes(55)[0])
    made, over = set(slots(found)), set(minutes(55, 56, 57, 58, 59, 60))
    assert len(made) == 2
    assert sum(s.count for s in found.skipped) == len(over - made)


def test_no_room_at_all() -> None:
    found = decided(ALL, 0)
    assert slots(found) == []
    assert runs(found) == [("quota", NOON, NOON, 1)]


def test_a_launch_that_is_not_made_stops_no_other_one() -> None:
    for policy in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER):
        plan = replace(ALL, overlap=policy)
        asked = decided(plan, 1, open_launches=1)
        assert asked.cancel_open or asked.terminate_open
        left = decided(plan, 0, open_launches=1)
        assert not left.cancel_open
        assert not left.terminate_open


def test_the_last_launch_allowed_is_still_to_come_when_it_was_not_made() -> None:
    plan = replace(ALL, max_launches=3)
    assert decided(plan, 1, launched=2).wake_at is None
    assert decided(plan, 0, launched=2).wake_at == minutes(61)[0]


def test_a_one_off_that_was_not_made_is_over() -> None:
    found = decided(Plan(schedule=At(NOON)), 0)
    assert (found.wake_at, runs(found)) == (None, [("quota", NOON, NOON, 1)])


def test_an_interval_from_completion_goes_on() -> None:
    every = Every(timedelta(minutes=5), NOON, MeasuredFrom.COMPLETION)
    plan = Plan(schedule=every, max_launches=1)
    made = decided(plan, 1)
    assert (made.wake_at, made.awaits) == (None, False), "finished"
    left = decided(plan, 0)
    assert (left.wake_at, left.awaits) == (None, True), "measured anew by the sweep"

"""The edges of a tick's decision: the slot, the microsecond or the launch at which it changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import (
    Decision,
    Situation,
    first_due,
    plan_completion,
    plan_job,
    plan_resume,
    spread,
)
from tickrail.core.policies import Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import Cron

JOB = JobId(UUID("019b76da-a800-7000-8000-000000000001"))
MINUTELY = Plan(schedule=Cron("* * * * *"), overlap=Overlap.ALLOW)
SECOND = timedelta(seconds=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


TEN = at("2026-01-01T10:00:00")


def waiting(plan: Plan, since: datetime, **more: object) -> Situation:
    first = first_due(plan, JOB, since)
    assert first is not None
    return Situation(JOB, first, **more)  # type: ignore[arg-type]


def minutes(decision: Decision) -> list[int]:
    return [(x.scheduled_at - TEN) // timedelta(minutes=1) for x in decision.launches]


def runs(decision: Decision) -> list[tuple[str, int, int, int]]:
    minute = timedelta(minutes=1)
    return [
        (s.reason.value, (s.first - TEN) // minute, (s.last - TEN) // minute, s.count)
        for s in decision.skipped
    ]


def test_the_place_in_the_jitter_is_fixed_by_vectors() -> None:
    """Part of the format: another version must not move the slots of a job."""
    plan = replace(MINUTELY, schedule=Cron("0 * * * *"), jitter=timedelta(minutes=30))
    found = [spread(plan, JOB, TEN + n * timedelta(hours=1)).total_seconds() for n in range(4)]
    assert found == [1685.0, 1230.0, 1123.0, 33.0]
    assert spread(plan, JOB, at("1960-01-01T00:00:00")).total_seconds() == 826.0


@pytest.mark.parametrize(("late", "launched"), [(0, 1), (59.999999, 1), (60, 0), (61, 0)])
def test_a_slot_is_on_time_until_just_before_its_grace_ends(late: float, launched: int) -> None:
    plan = replace(MINUTELY, schedule=Cron("0 10 * * *"), misfire=Misfire(MisfirePolicy.SKIP))
    decision = plan_job(plan, waiting(plan, TEN - SECOND), TEN + timedelta(seconds=late))
    assert len(decision.launches) == launched
    assert len(decision.skipped) == 1 - launched


@pytest.mark.parametrize(("late", "launched"), [(89, 1), (91, 0)])
def test_jitter_is_no_lateness(late: float, launched: int) -> None:
    plan = replace(
        MINUTELY,
        schedule=Cron("0 10 * * *"),
        misfire=Misfire(MisfirePolicy.SKIP),
        jitter=timedelta(seconds=30),
    )
    decision = plan_job(plan, waiting(plan, TEN - SECOND), TEN + timedelta(seconds=late))
    assert len(decision.launches) == launched


def test_missed_and_on_time_slots_share_the_launches_that_are_left() -> None:
    rules = Misfire(MisfirePolicy.FIRE_ALL, timedelta(minutes=3), max_count=2)
    now = TEN + timedelta(minutes=10)
    for most, expected in ((9, [1, 2, 8, 9, 10]), (4, [1, 2, 8, 9]), (2, [1, 2]), (1, [1])):
        plan = replace(MINUTELY, misfire=rules, max_launches=most)
        decision = plan_job(plan, waiting(plan, TEN), now)
        assert minutes(decision) == expected
        skipped = [("misfire", 1 + min(2, most), 7, 7 - min(2, most))]
        assert runs(decision) == skipped
        assert (decision.wake_at is None) == (most < 9)


def test_no_launch_that_is_left_decides_nothing() -> None:
    plan = replace(MINUTELY, max_launches=3)
    last = TEN - timedelta(hours=1)
    s = waiting(plan, TEN, launched=3, last_slot=last)
    decision = plan_job(plan, s, TEN + timedelta(hours=1))
    assert decision == Decision(last_slot=last)


@pytest.mark.parametrize(("wanted", "left"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3]), (9, [])])
def test_slots_left_out_by_hand(wanted: int, left: list[int]) -> None:
    plan = replace(MINUTELY, misfire=Misfire(grace=timedelta(hours=1)))
    s = waiting(plan, TEN, skip_next=wanted)
    decision = plan_job(plan, s, TEN + timedelta(minutes=3))
    assert minutes(decision) == left
    assert decision.by_hand == min(wanted, 3)
    assert runs(decision) == (
        [("skipped_by_hand", 1, min(wanted, 3), min(wanted, 3))] * (wanted > 0)
    )
    assert decision.wake_at == TEN + timedelta(minutes=4)


def test_a_slot_at_the_edge_of_the_history_still_has_room() -> None:
    plan = replace(MINUTELY, misfire=Misfire(grace=timedelta(hours=1)))
    s = waiting(plan, TEN, oldest=TEN + timedelta(minutes=2))
    decision = plan_job(plan, s, TEN + timedelta(minutes=3))
    assert runs(decision) == [("too_old", 1, 1, 1)]
    assert minutes(decision) == [2, 3]


def test_the_age_of_what_is_caught_up_is_counted_to_the_slot() -> None:
    rules = Misfire(MisfirePolicy.FIRE_ALL, SECOND, 10, timedelta(minutes=3))
    plan = replace(MINUTELY, misfire=rules)
    decision = plan_job(plan, waiting(plan, TEN), TEN + timedelta(minutes=5))
    assert minutes(decision) == [2, 3, 4, 5]
    assert runs(decision) == [("misfire", 1, 1, 1)]


def test_what_buffers_when_nothing_is_open_begins_with_the_oldest() -> None:
    plan = replace(
        MINUTELY, overlap=Overlap.BUFFER_ONE, misfire=Misfire(grace=timedelta(minutes=5))
    )
    decision = plan_job(plan, waiting(plan, TEN), TEN + timedelta(minutes=3))
    assert [
        (x.state.value, n) for x, n in zip(decision.launches, minutes(decision), strict=True)
    ] == [
        ("due", 1),
        ("held", 2),
    ]
    assert runs(decision) == [("overlap", 3, 3, 1)]


def test_a_resume_ends_with_the_job_and_keeps_its_last_slot() -> None:
    plan = replace(MINUTELY, ends_at=TEN + timedelta(minutes=2))
    last = TEN - timedelta(hours=1)
    ended = plan_resume(plan, waiting(plan, TEN, last_slot=last), TEN + timedelta(minutes=9))
    assert runs(ended) == [("paused", 1, 2, 2)]
    assert (ended.wake_at, ended.last_slot) == (None, TEN + timedelta(minutes=2))
    nothing = plan_resume(MINUTELY, waiting(MINUTELY, TEN, last_slot=last), TEN + SECOND)
    assert (runs(nothing), nothing.last_slot) == ([], last)


def test_the_end_of_an_awaited_launch_keeps_the_last_slot() -> None:
    last = TEN - timedelta(hours=1)
    jittered = replace(MINUTELY, jitter=timedelta(seconds=50))
    decision = plan_completion(jittered, Situation(JOB, TEN, last_slot=last), TEN)
    assert decision.last_slot == last
    assert decision.wake_at == first_due(jittered, JOB, TEN)


def test_a_launch_is_due_at_its_slot_and_its_place_in_the_jitter() -> None:
    plan = replace(MINUTELY, schedule=Cron("0 * * * *"), jitter=timedelta(minutes=30))
    due = TEN + spread(plan, JOB, TEN)
    s = waiting(plan, TEN - SECOND)
    assert s.due_at == due > TEN
    early = plan_job(plan, s, due - SECOND)
    assert (minutes(early), early.wake_at) == ([], due)
    decision = plan_job(plan, s, due)
    assert [(x.scheduled_at, x.due_at) for x in decision.launches] == [(TEN, due)]
    assert decision.last_slot == TEN


def test_what_is_caught_up_is_buffered_within_the_bound() -> None:
    rules = Misfire(MisfirePolicy.FIRE_ALL, SECOND, max_count=10_000, max_age=timedelta(days=9))
    plan = replace(MINUTELY, overlap=Overlap.BUFFER_ALL, misfire=rules)
    s = waiting(plan, TEN, open_launches=901, held=900)
    decision = plan_job(plan, s, TEN + timedelta(minutes=300))
    assert len(decision.launches) == 100
    assert sum(run.count for run in decision.skipped if run.reason.value == "overlap") == 200

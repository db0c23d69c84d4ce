"""What a tick decides where the owner says more: calendars, skips by hand, bounds, completion."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.core.test_plan import JOB, MINUTELY, at, due, skipped, slots

from tickrail.core.calendars import parse_calendar
from tickrail.core.catch_up import CatchUp
from tickrail.core.definition import Plan
from tickrail.core.plan import (
    Situation,
    first_due,
    plan_completion,
    plan_job,
    plan_resume,
    spread,
)
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import Cron, Every, MeasuredFrom
from tickrail.core.states import State
from tickrail.core.timetable import Allowance, OnExcluded

WEEKEND = parse_calendar({"weekdays": ["sat", "sun"]}, name="weekend")
NOON = parse_calendar({"windows": [{"from": "11:30", "to": "12:30"}]}, name="noon")
HOURLY = replace(MINUTELY, schedule=Cron("0 * * * *"))


def closed(plan: Plan, *calendars: object, mode: OnExcluded = OnExcluded.SKIP) -> Plan:
    return replace(plan, allowance=Allowance(tuple(calendars), on_excluded=mode))  # type: ignore[arg-type]


def test_what_calendars_leave_out_is_recorded_with_the_slot_after_it() -> None:
    plan = closed(HOURLY, NOON)
    decision = plan_job(
        plan,
        due(plan, "2026-01-01T11:30:00", last_slot=at("2026-01-01T11:00:00")),
        at("2026-01-01T13:00:02"),
    )
    assert slots(decision) == ["01 13:00:00"]
    assert skipped(decision) == [("excluded", "01 12:00", "01 12:00", 1)]
    assert decision.last_slot == at("2026-01-01T13:00:00")


def test_each_slot_of_an_outage_with_calendars_is_a_misfire_or_excluded() -> None:
    plan = closed(replace(HOURLY, misfire=Misfire(MisfirePolicy.SKIP)), NOON, WEEKEND)
    # Thursday to Monday.
    decision = plan_job(
        plan,
        due(plan, "2026-01-01T06:30:00", last_slot=at("2026-01-01T06:00:00")),
        at("2026-01-05T09:30:00"),
    )
    assert not decision.launches
    # 17 + 23 + 10 slots on working days without noon; noon twice and two days.
    assert skipped(decision) == [
        ("misfire", "01 07:00", "05 09:00", 16 + 23 + 10),
        ("excluded", "01 12:00", "04 23:00", 2 + 48),
    ]
    assert decision.wake_at == at("2026-01-05T10:00:00")
    again = plan_job(plan, due(plan, "2026-01-05T09:30:00", last_slot=decision.last_slot),
                     at("2026-01-05T10:00:01"))  # fmt: skip
    assert skipped(again) == []


def test_excluded_slots_may_move_to_the_first_allowed_instant() -> None:
    plan = closed(HOURLY, NOON, mode=OnExcluded.NEXT_ALLOWED)
    first = due(plan, "2026-01-01T11:00:00")
    assert first.due_at == at("2026-01-01T12:30:00")
    decision = plan_job(plan, first, at("2026-01-01T12:30:01"))
    assert slots(decision) == ["01 12:30:00"]
    assert not decision.skipped
    assert decision.wake_at == at("2026-01-01T13:00:00")


def test_a_job_whose_calendar_leaves_no_slot_is_finished() -> None:
    everyday = parse_calendar(
        {"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}, name="always"
    )
    plan = closed(HOURLY, everyday)
    assert first_due(plan, JOB, at("2026-01-01T00:00:00")) is None
    decision = plan_job(plan, Situation(JOB, at("2026-01-01T01:00:00")), at("2026-01-01T01:00:01"))
    assert decision.wake_at is None
    assert skipped(decision) == [("excluded", "01 01:00", "01 01:00", 1)]


def test_slots_to_be_left_out_by_hand_come_before_any_misfire() -> None:
    plan = replace(MINUTELY, schedule=Cron("*/10 * * * *"))
    decision = plan_job(
        plan, due(plan, "2026-01-01T10:00:00", skip_next=3), at("2026-01-01T11:00:05")
    )
    assert slots(decision) == ["01 11:00:00"]
    assert skipped(decision) == [
        ("skipped_by_hand", "01 10:10", "01 10:30", 3),
        ("misfire", "01 10:40", "01 10:50", 2),
    ]
    assert decision.by_hand == 3
    some = plan_job(plan, due(plan, "2026-01-01T10:00:00", skip_next=3), at("2026-01-01T10:20:05"))
    assert (slots(some), some.by_hand) == ([], 2)
    assert some.wake_at == at("2026-01-01T10:30:00")


@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_the_bounds_of_a_resume_stand_in_place_of_the_policy(policy: MisfirePolicy) -> None:
    plan = replace(
        MINUTELY, schedule=Cron("*/10 * * * *"), misfire=Misfire(policy, grace=timedelta(hours=1))
    )
    bounds = CatchUp(
        at("2026-01-01T11:05:00"),
        Misfire(MisfirePolicy.FIRE_ALL, max_count=2, order=CatchUpOrder.NEWEST),
    )
    decision = plan_job(
        plan, due(plan, "2026-01-01T10:00:00", catch_up=bounds), at("2026-01-01T11:10:01")
    )
    # 11:00 is within the grace and still counts; 11:10 came after the resume.
    assert slots(decision) == ["01 11:00:00", "01 10:50:00", "01 11:10:00"]
    assert skipped(decision) == [("misfire", "01 10:10", "01 10:40", 4)]


@pytest.mark.parametrize(
    ("policy", "situation", "launched", "left_out"),
    [
        pytest.param(Overlap.SKIP, (2, 0, 2), [("01 10:00:00", State.HELD)], 1, id="skip"),
        pytest.param(Overlap.SKIP, (2, 1, 1), [], 2, id="skip, and one waits already"),
        pytest.param(Overlap.SKIP, (2, 0, 1), [], 2, id="skip, and a live one is open"),
        pytest.param(
            Overlap.CANCEL_OTHER, (1, 0, 1), [("01 10:01:00", State.HELD)], 1, id="cancel_other"
        ),
        pytest.param(
            Overlap.TERMINATE_OTHER, (1, 0, 1), [("01 10:01:00", State.HELD)], 1,
            id="terminate_other",
        ),
        pytest.param(
            Overlap.BUFFER_ONE, (1, 0, 1), [("01 10:00:00", State.HELD)], 1, id="buffer_one"
        ),
        pytest.param(
            Overlap.BUFFER_ALL, (1, 0, 1),
            [("01 10:00:00", State.HELD), ("01 10:01:00", State.HELD)], 0, id="buffer_all",
        ),
        pytest.param(
            Overlap.ALLOW, (9, 0, 9), [("01 10:00:00", State.DUE), ("01 10:01:00", State.DUE)], 0,
            id="allow",
        ),
    ],
)  # fmt: skip
def test_no_live_slot_is_lost_to_a_backfill(
    policy: Overlap,
    situation: tuple[int, int, int],
    launched: list[tuple[str, State]],
    left_out: int,
) -> None:
    plan = replace(MINUTELY, overlap=policy, misfire=Misfire(grace=timedelta(minutes=5)))
    opened, held, backfilled = situation
    found = plan_job(
        plan,
        due(plan, "2026-01-01T09:59:30", open_launches=opened, held=held, backfilled=backfilled),
        at("2026-01-01T10:01:01"),
    )
    assert [(x.scheduled_at.strftime("%d %H:%M:%S"), x.state) for x in found.launches] == launched
    assert sum(s.count for s in found.skipped) == left_out
    if State.HELD in {state for _, state in launched}:
        assert not found.cancel_open
        assert not found.terminate_open


AFTER_END = replace(
    MINUTELY,
    schedule=Every(timedelta(minutes=20), at("2026-01-01T10:00:00"), MeasuredFrom.COMPLETION),
)


def test_an_interval_from_the_end_awaits_it() -> None:
    first = due(AFTER_END, "2026-01-01T09:00:00")
    assert first.due_at == at("2026-01-01T10:00:00")
    for due_at in (first.due_at, at("2026-01-01T10:37:11")):
        decision = plan_job(AFTER_END, replace(first, due_at=due_at), due_at + timedelta(seconds=2))
        assert [x.scheduled_at for x in decision.launches] == [due_at]
        assert (decision.awaits, decision.wake_at) == (True, None)
    ended = at("2026-01-01T11:00:00") + timedelta(milliseconds=1)
    measured = plan_completion(AFTER_END, first, ended)
    assert (measured.awaits, measured.wake_at) == (False, at("2026-01-01T11:20:01"))


def test_an_interval_from_the_end_that_launches_nothing_goes_on_from_now() -> None:
    plan = replace(AFTER_END, misfire=Misfire(MisfirePolicy.SKIP))
    now = at("2026-01-01T10:30:00")
    decision = plan_job(plan, due(plan, "2026-01-01T09:00:00"), now)
    assert skipped(decision) == [("misfire", "01 10:00", "01 10:00", 1)]
    assert (decision.awaits, decision.wake_at) == (False, at("2026-01-01T10:50:00"))
    # An open launch by hand is what it is measured from.
    plan = replace(plan, overlap=Overlap.SKIP)
    waits = plan_job(plan, due(plan, "2026-01-01T09:00:00", open_launches=1), now)
    assert (waits.launches, waits.awaits, waits.wake_at) == ((), True, None)


def test_an_interval_from_an_end_before_its_slot_as_a_clock_that_went_back_says() -> None:
    slot = at("2026-01-01T10:00:00")
    awaited = replace(due(AFTER_END, "2026-01-01T09:00:00"), last_slot=slot)
    measured = plan_completion(AFTER_END, awaited, at("2026-01-01T09:20:00"))
    assert measured.wake_at == slot + timedelta(minutes=20), "no slot twice, none before it"


def test_an_interval_from_the_end_ends_with_its_bounds() -> None:
    plan = replace(AFTER_END, max_launches=1)
    decision = plan_job(plan, due(plan, "2026-01-01T09:00:00"), at("2026-01-01T10:00:00"))
    assert (decision.awaits, decision.wake_at) == (False, None)
    plan = replace(AFTER_END, ends_at=at("2026-01-01T11:00:00"))
    over = plan_completion(plan, due(plan, "2026-01-01T09:00:00"), at("2026-01-01T10:50:00"))
    assert (over.awaits, over.wake_at) == (False, None)


def test_a_paused_interval_from_the_end_records_its_slot_and_goes_on_from_now() -> None:
    now = at("2026-01-01T12:00:00")
    decision = plan_resume(AFTER_END, due(AFTER_END, "2026-01-01T09:00:00"), now)
    assert skipped(decision) == [("paused", "01 10:00", "01 10:00", 1)]
    assert decision.wake_at == at("2026-01-01T12:20:00")
    early = plan_resume(AFTER_END, Situation(JOB, at("2026-01-01T12:07:00")), now)
    assert (early.skipped, early.wake_at) == ((), at("2026-01-01T12:07:00"))


def test_jitter_stays_inside_the_allowed_time() -> None:
    plan = replace(closed(HOURLY, NOON), jitter=timedelta(minutes=59))
    for day in range(1, 28):
        slot = at(f"2026-01-{day:02d}T11:00:00")
        assert slot + spread(plan, JOB, slot) < at(f"2026-01-{day:02d}T11:30:00")


CATCH_UP = Misfire(MisfirePolicy.FIRE_ALL, max_count=3, per_minute=100_000)


@pytest.mark.parametrize("order", list(CatchUpOrder))
@pytest.mark.parametrize(
    ("policy", "opened", "due_now", "held"),
    [
        pytest.param(Overlap.SKIP, 0, 1, 2, id="skip"),
        pytest.param(Overlap.SKIP, 1, 0, 3, id="skip, and one is open"),
        pytest.param(Overlap.BUFFER_ONE, 0, 1, 2, id="buffer_one"),
        pytest.param(Overlap.BUFFER_ALL, 1, 0, 3, id="buffer_all"),
        pytest.param(Overlap.ALLOW, 1, 3, 0, id="allow"),
        pytest.param(Overlap.CANCEL_OTHER, 0, 1, 0, id="cancel_other has but the last"),
    ],
)
def test_what_is_caught_up_waits_for_one_another(
    policy: Overlap, opened: int, due_now: int, held: int, order: CatchUpOrder
) -> None:
    plan = replace(
        MINUTELY,
        overlap=policy,
        misfire=replace(CATCH_UP, order=order, grace=timedelta(seconds=1)),
    )
    found = plan_job(
        plan, due(plan, "2026-01-01T09:50:00", open_launches=opened), at("2026-01-01T10:00:05")
    )
    states = [x.state for x in found.launches]
    assert (states.count(State.DUE), states.count(State.HELD)) == (due_now, held)
    assert len(found.launches) + sum(s.count for s in found.skipped) == 10


def test_an_on_time_slot_behind_a_catch_up_follows_the_overlap_policy() -> None:
    for policy, extra in ((Overlap.SKIP, 0), (Overlap.BUFFER_ONE, 1), (Overlap.BUFFER_ALL, 1)):
        plan = replace(
            MINUTELY, overlap=policy, misfire=replace(CATCH_UP, grace=timedelta(minutes=1))
        )
        found = plan_job(plan, due(plan, "2026-01-01T09:50:00"), at("2026-01-01T10:00:05"))
        assert len(found.launches) == 3 + extra
        assert sum(s.count for s in found.skipped if s.reason.value == "overlap") == 1 - extra


def test_no_more_is_held_than_a_job_may_hold() -> None:
    plan = replace(
        MINUTELY,
        schedule=Cron("* * * * * *"),
        overlap=Overlap.SKIP,
        misfire=replace(CATCH_UP, max_count=5_000, grace=timedelta(seconds=1)),
    )
    found = plan_job(plan, due(plan, "2026-01-01T08:00:00"), at("2026-01-01T10:00:05"))
    assert [x.state for x in found.launches].count(State.HELD) == 1000
    assert len(found.launches) + sum(s.count for s in found.skipped) == 2 * 3600 + 5

"""What a tick decides: tables with named rows, long outages and backward clocks among them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import (
    Situation,
    SkipReason,
    first_due,
    plan_job,
    plan_resume,
    spread,
)
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import At, Cron, Every
from tickrail.core.states import State

JOB = JobId(UUID("019b76da-a800-7000-8000-000000000001"))
MINUTELY = Plan(schedule=Cron("* * * * *"), overlap=Overlap.ALLOW)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(plan: Plan, since: str, **more: object) -> Situation:
    first = first_due(plan, JOB, at(since))
    assert first is not None
    return Situation(JOB, first, **more)  # type: ignore[arg-type]


def slots(decision: object) -> list[str]:
    return [x.scheduled_at.strftime("%d %H:%M:%S") for x in decision.launches]  # type: ignore[attr-defined]


def skipped(decision: object) -> list[tuple[str, str, str, int]]:
    return [
        (s.reason.value, s.first.strftime("%d %H:%M"), s.last.strftime("%d %H:%M"), s.count)
        for s in decision.skipped  # type: ignore[attr-defined]
    ]


def test_b01_after_112_missed_slots_fire_once_launches_one_and_records_the_rest() -> None:
    decision = plan_job(MINUTELY, due(MINUTELY, "2026-01-01T08:29:00"), at("2026-01-01T10:21:00"))
    # 10:20 is late by exactly the grace time: a misfire.
    assert slots(decision) == ["01 10:21:00"]
    assert skipped(decision) == [("misfire", "01 08:30", "01 10:20", 111)]
    assert decision.wake_at == at("2026-01-01T10:22:00")


def test_b01_with_a_grace_below_the_interval_exactly_one_launch() -> None:
    plan = replace(MINUTELY, misfire=Misfire(grace=timedelta(seconds=30)))
    for start, count in (("2026-01-01T08:29:00", 111), ("2025-12-22T10:21:00", 14399)):
        decision = plan_job(plan, due(plan, start), at("2026-01-01T10:21:00"))
        assert slots(decision) == ["01 10:21:00"]
        assert sum(s.count for s in decision.skipped) == count
        assert decision.wake_at == at("2026-01-01T10:22:00")


def test_b03_fire_once_keeps_the_scheduled_instant_of_the_latest_slot() -> None:
    plan = replace(MINUTELY, schedule=Cron("0 0 * * *"))
    now = at("2026-01-02T09:00:00")
    decision = plan_job(plan, due(plan, "2026-01-01T23:50:00"), now)
    assert [(x.scheduled_at, x.due_at) for x in decision.launches] == [
        (at("2026-01-02T00:00:00"), now)
    ]
    decision = plan_job(plan, due(plan, "2025-12-30T23:50:00"), now)
    assert slots(decision) == ["02 00:00:00"]
    assert skipped(decision) == [("misfire", "31 00:00", "01 00:00", 2)]


@pytest.mark.parametrize("late", [1.6, 45.0])
@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_b05_ordinary_lateness_is_no_misfire(late: float, policy: MisfirePolicy) -> None:
    plan = replace(MINUTELY, schedule=Cron("0 2 * * *"), misfire=Misfire(policy))
    now = at("2026-01-01T02:00:00") + timedelta(seconds=late)
    decision = plan_job(plan, due(plan, "2026-01-01T00:00:00"), now)
    assert slots(decision) == ["01 02:00:00"]
    assert not decision.skipped


def test_b15_a_week_down_gives_one_run_and_the_next_is_to_come() -> None:
    plan = replace(MINUTELY, schedule=Cron("*/15 * * * *"))
    now = at("2026-01-08T00:07:00")
    decision = plan_job(plan, due(plan, "2026-01-01T00:07:00"), now)
    assert slots(decision) == ["08 00:00:00"]
    assert sum(s.count for s in decision.skipped) == 671
    assert decision.wake_at == at("2026-01-08T00:15:00")


FIRE_ALL = Misfire(MisfirePolicy.FIRE_ALL, max_count=3, max_age=timedelta(hours=2), per_minute=60)


@pytest.mark.parametrize(
    ("order", "launched", "recorded"),
    [
        pytest.param(
            CatchUpOrder.OLDEST,
            ["01 10:00:00", "01 10:10:00", "01 10:20:00", "01 12:00:00"],
            [("misfire", "01 06:00", "01 09:50", 24), ("misfire", "01 10:30", "01 11:50", 9)],
            id="oldest first within the age",
        ),
        pytest.param(
            CatchUpOrder.NEWEST,
            ["01 11:50:00", "01 11:40:00", "01 11:30:00", "01 12:00:00"],
            [("misfire", "01 06:00", "01 09:50", 24), ("misfire", "01 10:00", "01 11:20", 9)],
            id="newest first",
        ),
    ],
)
def test_fire_all_is_bounded_by_count_age_and_order(
    order: CatchUpOrder, launched: list[str], recorded: list[tuple[str, str, str, int]]
) -> None:
    plan = replace(MINUTELY, schedule=Cron("*/10 * * * *"), misfire=replace(FIRE_ALL, order=order))
    now = at("2026-01-01T12:00:30")
    decision = plan_job(plan, due(plan, "2026-01-01T05:55:00"), now)
    # 10:00 is older than two hours by half a minute.
    if order is CatchUpOrder.OLDEST:
        launched = ["01 10:10:00", "01 10:20:00", "01 10:30:00", "01 12:00:00"]
        recorded = [("misfire", "01 06:00", "01 10:00", 25), ("misfire", "01 10:40", "01 11:50", 8)]
    else:
        recorded = [("misfire", "01 06:00", "01 10:00", 25), ("misfire", "01 10:10", "01 11:20", 8)]
    assert slots(decision) == launched
    assert skipped(decision) == recorded
    assert [x.due_at - now for x in decision.launches[:3]] == [
        timedelta(seconds=n) for n in range(3)
    ]


@pytest.mark.parametrize("order", list(CatchUpOrder))
@pytest.mark.parametrize("end", [None, "2026-01-01T10:00:00"])
def test_fire_all_with_an_age_below_the_grace_or_behind_the_end_records_each_slot_once(
    order: CatchUpOrder, end: str | None
) -> None:
    rules = replace(FIRE_ALL, order=order, max_age=timedelta(minutes=1), grace=timedelta(minutes=5))
    plan = replace(MINUTELY, misfire=rules, ends_at=None if end is None else at(end))
    decision = plan_job(plan, due(plan, "2026-01-01T09:00:00"), at("2026-01-01T10:30:00"))
    launched = [x.scheduled_at for x in decision.launches]
    for run in decision.skipped:
        assert not [slot for slot in launched if run.first <= slot <= run.last]
        assert end is None or run.last <= at(end)
    assert len(launched) + sum(run.count for run in decision.skipped) == (90 if end is None else 60)


def test_a_year_of_seconds_costs_no_more_than_its_bounds() -> None:
    plan = replace(MINUTELY, schedule=Cron("* * * * * *"), misfire=FIRE_ALL)
    now = at("2026-01-01T00:00:00")
    decision = plan_job(plan, due(plan, "2025-01-01T00:00:00"), now, batch=100)
    assert len(decision.launches) <= 3 + 100
    total = sum(s.count for s in decision.skipped) + len(decision.launches)
    assert decision.wake_at is not None
    assert total == (decision.wake_at - at("2025-01-01T00:00:01")).total_seconds()


def test_slots_older_than_the_history_are_recorded_as_too_old() -> None:
    plan = replace(MINUTELY, schedule=Cron("0 0 * * *"))
    now = at("2026-03-01T06:00:00")
    situation = due(plan, "2026-01-01T00:00:00", oldest=at("2026-01-30T06:00:00"))
    decision = plan_job(plan, situation, now)
    assert slots(decision) == ["01 00:00:00"]
    assert skipped(decision) == [
        ("too_old", "02 00:00", "30 00:00", 29),
        ("misfire", "31 00:00", "28 00:00", 29),
    ]


def test_a_clock_that_went_back_plans_nothing_twice() -> None:
    now = at("2026-01-01T10:00:30")
    first = plan_job(MINUTELY, due(MINUTELY, "2026-01-01T09:59:30"), now)
    assert slots(first) == ["01 10:00:00"]
    assert first.wake_at is not None
    again = plan_job(
        MINUTELY, Situation(JOB, first.wake_at, last_slot=first.last_slot), now - timedelta(hours=1)
    )
    assert not again.launches
    assert again.wake_at == first.wake_at
    assert again.last_slot == first.last_slot


@pytest.mark.parametrize(
    ("policy", "opened", "held", "states", "overlapped", "ask"),
    [
        pytest.param(Overlap.ALLOW, 3, 0, ["due", "due"], 0, "", id="allow"),
        pytest.param(Overlap.SKIP, 1, 0, [], 2, "", id="skip while one is open"),
        pytest.param(Overlap.SKIP, 0, 0, ["due"], 1, "", id="skip: the second overlaps the first"),
        pytest.param(Overlap.BUFFER_ONE, 1, 0, ["held"], 1, "", id="buffer one"),
        pytest.param(Overlap.BUFFER_ONE, 2, 1, [], 2, "", id="buffer one is taken"),
        pytest.param(Overlap.BUFFER_ALL, 1, 0, ["held", "held"], 0, "", id="buffer all"),
        pytest.param(Overlap.BUFFER_ALL, 1001, 1000, [], 2, "", id="buffer all is bounded"),
        pytest.param(Overlap.CANCEL_OTHER, 1, 0, ["held"], 1, "cancel", id="cancel other"),
        pytest.param(Overlap.CANCEL_OTHER, 0, 0, ["due"], 1, "", id="nothing to cancel"),
        pytest.param(Overlap.TERMINATE_OTHER, 1, 0, ["due"], 1, "terminate", id="terminate other"),
    ],
)
def test_overlap(
    policy: Overlap, opened: int, held: int, states: list[str], overlapped: int, ask: str
) -> None:
    plan = replace(MINUTELY, overlap=policy, misfire=Misfire(grace=timedelta(minutes=2)))
    situation = due(plan, "2026-01-01T09:58:30", open_launches=opened, held=held)
    decision = plan_job(plan, situation, at("2026-01-01T10:00:00"))
    assert [x.state.value for x in decision.launches] == states
    found = sum(s.count for s in decision.skipped if s.reason is SkipReason.OVERLAP)
    assert found == overlapped
    assert (decision.cancel_open, decision.terminate_open) == (ask == "cancel", ask == "terminate")


def test_a_one_off_keeps_its_fraction_as_due_instant_and_ends_the_job() -> None:
    plan = replace(MINUTELY, schedule=At(at("2026-01-01T10:00:00.250000")))
    decision = plan_job(plan, due(plan, "2026-01-01T09:00:00"), at("2026-01-01T10:00:00.300000"))
    assert [(x.scheduled_at, x.due_at) for x in decision.launches] == [
        (at("2026-01-01T10:00:00"), at("2026-01-01T10:00:00.250000"))
    ]
    assert decision.wake_at is None


def test_max_launches_ends_the_job() -> None:
    plan = replace(MINUTELY, max_launches=5, misfire=Misfire(grace=timedelta(minutes=2)))
    decision = plan_job(
        plan, due(plan, "2026-01-01T09:58:30", launched=4), at("2026-01-01T10:00:00")
    )
    assert slots(decision) == ["01 09:59:00"]
    assert decision.wake_at is None


def test_ends_at_is_the_last_slot_that_may_be() -> None:
    plan = replace(MINUTELY, ends_at=at("2026-01-01T10:00:00"))
    decision = plan_job(plan, due(plan, "2026-01-01T09:59:30"), at("2026-01-01T10:00:30"))
    assert slots(decision) == ["01 10:00:00"]
    assert decision.wake_at is None


def test_resume_records_what_passed_and_launches_nothing() -> None:
    decision = plan_resume(
        MINUTELY, due(MINUTELY, "2026-01-01T09:00:00"), at("2026-01-01T10:00:30")
    )
    assert not decision.launches
    assert skipped(decision) == [("paused", "01 09:01", "01 10:00", 60)]
    assert decision.wake_at == at("2026-01-01T10:01:00")


def test_jitter_is_stable_and_never_reaches_the_next_slot() -> None:
    plan = replace(
        MINUTELY,
        schedule=Every(timedelta(seconds=10), at("2026-01-01T00:00:00")),
        jitter=timedelta(minutes=5),
    )
    slot = at("2026-01-01T00:00:00")
    seen = set()
    for _ in range(500):
        late = spread(plan, JOB, slot)
        assert late == spread(plan, JOB, slot)
        assert timedelta(0) <= late < timedelta(seconds=10)
        seen.add(late)
        slot += timedelta(seconds=10)
    assert len(seen) > 5


def test_with_jitter_each_slot_is_launched_once() -> None:
    plan = replace(MINUTELY, jitter=timedelta(seconds=40))
    now, launched = at("2026-01-01T00:00:00"), []
    wake = first_due(plan, JOB, now)
    last = None
    while now < at("2026-01-01T01:00:00"):
        now += timedelta(seconds=1)
        while wake is not None and wake <= now:
            decision = plan_job(plan, Situation(JOB, wake, last_slot=last), now)
            launched += [x.scheduled_at for x in decision.launches]
            assert not decision.skipped
            wake, last = decision.wake_at, decision.last_slot
    expected = [at("2026-01-01T00:01:00") + timedelta(minutes=n) for n in range(len(launched))]
    assert launched == expected
    assert len(launched) in {59, 60}


def test_launch_states_are_ordinary_states() -> None:
    decision = plan_job(MINUTELY, due(MINUTELY, "2026-01-01T09:59:30"), at("2026-01-01T10:00:00"))
    assert decision.launches[0].state is State.DUE


def test_what_overlaps_does_not_use_up_the_launches_that_are_left() -> None:
    """With one launch left and one open, the first slot is skipped; the others still come."""
    plan = replace(
        MINUTELY,
        max_launches=5,
        overlap=Overlap.SKIP,
        misfire=Misfire(grace=timedelta(minutes=5)),
    )
    situation = due(plan, "2026-01-01T09:57:30", launched=4, open_launches=1)
    decision = plan_job(plan, situation, at("2026-01-01T10:00:00"))
    assert not decision.launches
    assert skipped(decision) == [("overlap", "01 09:58", "01 09:58", 1)]
    assert decision.wake_at == at("2026-01-01T09:59:00")


@pytest.mark.parametrize(
    ("order", "launched", "recorded"),
    [
        pytest.param(CatchUpOrder.OLDEST, "01 09:01:00", ("01 09:02", "01 10:00", 59), id="oldest"),
        pytest.param(CatchUpOrder.NEWEST, "01 10:00:00", ("01 09:01", "01 09:59", 59), id="newest"),
    ],
)
def test_the_last_launch_that_is_left_among_missed_ones(
    order: CatchUpOrder, launched: str, recorded: tuple[str, str, int]
) -> None:
    rules = Misfire(MisfirePolicy.FIRE_ALL, timedelta(seconds=1), 10, order=order)
    plan = replace(MINUTELY, max_launches=5, misfire=rules)
    situation = due(plan, "2026-01-01T09:00:30", launched=4)
    decision = plan_job(plan, situation, at("2026-01-01T10:00:30"))
    assert slots(decision) == [launched]
    assert skipped(decision) == [("misfire", *recorded)]
    assert decision.wake_at is None


def test_overlapped_slots_with_others_between_are_runs_of_their_own() -> None:
    rules = Misfire(MisfirePolicy.FIRE_ALL, timedelta(minutes=2), 3, order=CatchUpOrder.NEWEST)
    plan = replace(MINUTELY, misfire=rules, overlap=Overlap.CANCEL_OTHER)
    situation = due(plan, "2026-01-01T09:50:30", open_launches=2, held=1)
    newest = plan_job(plan, situation, at("2026-01-01T10:00:00"))
    assert slots(newest) == ["01 10:00:00"]
    assert skipped(newest) == [
        ("misfire", "01 09:51", "01 09:55", 5),
        ("overlap", "01 09:56", "01 09:59", 4),
    ]
    plan = replace(plan, misfire=replace(rules, order=CatchUpOrder.OLDEST))
    oldest = plan_job(plan, situation, at("2026-01-01T10:00:00"))
    assert slots(oldest) == ["01 10:00:00"]
    assert skipped(oldest) == [
        ("misfire", "01 09:54", "01 09:58", 5),
        ("overlap", "01 09:51", "01 09:53", 3),
        ("overlap", "01 09:59", "01 09:59", 1),
    ]

"""What the tick writes: classes, and how much in a transaction."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.support.clock import FakeClock
from tests.support.stepped import TENANT, Stepped

from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId, Partition, uuid7
from tickrail.core.policies import Priority
from tickrail.core.ports import CalendarText, DueJob
from tickrail.engine.tick import ENOUGH, PlanCache

FIRE_ALL = {"policy": "fire_all", "grace": "1s", "max_count": 900}


@pytest.mark.parametrize(
    ("priority", "caught_up"), [("high", "normal"), ("normal", "low"), ("low", "low")]
)
def test_what_is_caught_up_with_goes_a_class_lower(priority: str, caught_up: str) -> None:
    world = Stepped()
    job = world.job(
        schedule={"every": "10s"}, overlap="allow", priority=priority,
        misfire={"policy": "fire_all", "grace": "5s"},
    )  # fmt: skip
    world.advance(30)
    world.tick()
    found = [Priority(list(Priority)[x.priority]).value for x in world.launches(job)]
    assert found == [caught_up, caught_up, priority]


def test_a_jittered_slot_on_time_keeps_its_class() -> None:
    world = Stepped()
    jobs = [world.job(schedule={"every": "60s"}, jitter="50s", overlap="allow") for _ in range(5)]
    world.advance(115)
    world.tick()
    found = [x for job in jobs for x in world.launches(job)]
    assert {x.priority for x in found} == {Priority.NORMAL.rank}
    assert max(x.due_at - x.scheduled_at for x in found) > timedelta(seconds=1)


def test_a_transaction_makes_no_more_launches_than_enough_or_those_of_one_job() -> None:
    """Jobs with a thousand launches each, after an outage, would else be one transaction."""
    world = Stepped()
    jobs = [
        world.job(schedule={"every": "1s"}, overlap="allow", misfire=FIRE_ALL) for _ in range(7)
    ]
    world.advance(3600)
    sizes = []
    while True:
        ticked = world.tick()
        if not ticked.jobs:
            break
        sizes.append((ticked.jobs, ticked.full))
    assert sizes == [(2, True)] * 3 + [(1, False)]
    assert 900 < ENOUGH <= 2 * 900
    launched = [len(world.launches(job)) for job in jobs]
    skipped = [sum(x.count for x in world.db.skips.values() if x.job_id == job) for job in jobs]
    assert [a + b for a, b in zip(launched, skipped, strict=True)] == [3600] * 7
    assert min(launched) >= 900


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "calendar",
    [
        {"events": [{"start": "2020-01-01", "rrule": "FREQ=DAILY"}]},
        {"windows": [{"from": "22:00", "to": "10:00"}]},
        {"events": [{"start": "2020-01-01", "rrule": "FREQ=DAILY"}] * 40},
    ],
    ids=["all time", "each of their slots", "costly rules"],
)
def test_jobs_whose_calendars_leave_no_run_do_not_hold_up_the_others(calendar: object) -> None:
    world = Stepped()
    world.db.calendars[TENANT, "c"] = CalendarText(1, json.dumps(calendar))
    use = {"exclude": ["c"]}
    for i in range(100):
        world.job(schedule={"cron": f"{i % 60} 9 * * *"}, calendars=use)
    other = world.job(schedule={"cron": "0 9 * * *"})
    world.advance(86_400)
    assert sum(planned_in_a_row(world)) == 101
    assert len(world.launches(other)) == 1
    for _ in range(6):  # what had an error goes on a minute later
        world.advance(60)
        planned_in_a_row(world)
    assert world.tick().jobs == 0


def planned_in_a_row(world: Stepped) -> list[int]:
    """How many jobs each tick planned until one had nothing more to do."""
    sizes = []
    while True:
        ticked = world.tick()
        sizes.append(ticked.jobs)
        if not ticked.full:
            return sizes


@pytest.mark.timeout(60)
def test_a_transaction_works_out_no_more_rules_than_are_worth_it() -> None:
    """Many due jobs, each with a calendar of its own that is costly to read."""
    world = Stepped()
    for i in range(8):
        rules = [{"start": "2020-01-01", "rrule": "FREQ=DAILY"}] * 40
        document = {"events": rules, "description": str(i)}
        world.db.calendars[TENANT, f"c{i}"] = CalendarText(1, json.dumps(document))
        world.job(schedule={"cron": "0 9 * * *"}, calendars={"exclude": [f"c{i}"]})
    world.advance(86_400)
    sizes = planned_in_a_row(world)
    assert sum(sizes) == 8
    assert max(sizes) <= 3, sizes


@pytest.mark.parametrize("plan", ["[]", "null", '"x"', "7"])
def test_a_stored_plan_that_is_no_object_is_told_in_words(plan: str) -> None:
    clock = FakeClock()
    job = DueJob(JobId(uuid7(clock)), TENANT, Partition(0), 1, clock.now(), None, 0, plan)
    with pytest.raises(InvalidInputError, match="stored plan is not a JSON object"):
        PlanCache().get(job, clock.now())


def test_slots_of_a_suspension_are_paused_in_the_ledger_and_the_next_one_runs() -> None:
    world = Stepped()
    job = world.job(schedule={"every": "1m"}, overlap="allow", misfire=FIRE_ALL)
    world.advance(60)
    world.tick()
    world.db.suspended.add(TENANT)
    world.advance(300)
    assert world.tick().jobs == 0
    world.db.suspended.discard(TENANT)
    world.db.went_on[TENANT] = world.clock.now()
    world.advance(59)
    assert len(world.tick().inserted) == 0
    (record,) = world.db.skips.values()
    assert (record.job_id, record.reason, record.count) == (job, "paused", 4)
    world.advance(1)
    world.tick()
    # The instant of its end is not part of a suspension.
    assert [x.scheduled_at.minute for x in world.launches(job)] == [1, 6, 7]

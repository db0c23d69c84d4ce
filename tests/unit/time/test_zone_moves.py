"""What newer zone data does to the slot that a job waits for; one zone plays the old rules."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import Situation, SkipReason, first_due, plan_job
from tickrail.core.policies import Misfire, MisfirePolicy
from tickrail.core.schedule import parse_schedule
from tickrail.core.timetable import Allowance, Timetable
from tickrail.core.zone_moves import moved_due, moved_next, zones_of

JOB = JobId(UUID(int=7))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAILY, HALF_HOURLY = {"cron": "0 2 * * *"}, {"cron": "*/30 * * * *"}
PLUS0, PLUS1, PLUS2 = "Etc/GMT", "Etc/GMT-1", "Etc/GMT-2"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def timetable(document: dict[str, Any], zone: str) -> Timetable:
    found = parse_schedule({**document, "time_zone": zone}, job=JOB, now=NOW, stored=True)
    assert found is not None
    return Timetable(found)


def plan(document: dict[str, Any], zone: str, **rest: Any) -> Plan:
    return Plan(schedule=timetable(document, zone).schedule, **rest)


@pytest.mark.parametrize(
    ("document", "before", "after", "last", "waited", "becomes"),
    [
        pytest.param(
            DAILY, PLUS1, PLUS2, "2026-03-01T01:00", "2026-03-02T01:00", "2026-03-02T00:00",
            id="an hour more: the daily slot comes an hour earlier",
        ),
        pytest.param(
            DAILY, PLUS2, PLUS1, "2026-03-02T00:00", "2026-03-03T00:00", "2026-03-03T01:00",
            id="an hour less, after today's run: tomorrow's, not today's 02:00 once more",
        ),
        pytest.param(
            DAILY, PLUS2, PLUS1, "2026-03-01T00:00", "2026-03-02T00:00", "2026-03-02T01:00",
            id="an hour less, before today's run: today's 02:00, later",
        ),
        pytest.param(
            {"cron": "0 0,2,4 * * *"}, PLUS1, PLUS0, "2026-03-01T23:00", "2026-03-02T01:00",
            "2026-03-02T02:00",
            id="of two equally near, the one with the same local time",
        ),
        pytest.param(
            {"cron": "0 0,2,4 * * *"}, PLUS0, PLUS1, "2026-03-02T00:00", "2026-03-02T02:00",
            "2026-03-02T01:00",
            id="the same the other way: 02:00 comes an hour earlier",
        ),
        pytest.param(
            {"cron": "* 9-17 * * *"}, PLUS1, PLUS2, "2026-03-01T16:59", "2026-03-02T08:00",
            "2026-03-02T07:00",
            id="the first minute of the working day, though the old instant is a slot too",
        ),
        pytest.param(
            {"cron": "0 * * * *"}, PLUS1, PLUS2, "2026-03-02T00:00", "2026-03-02T01:00",
            "2026-03-02T01:00",
            id="every hour: nothing moves",
        ),
        pytest.param(
            {"cron": "0 * * * *"}, "Asia/Kolkata", "Asia/Kathmandu", "2026-03-02T00:30",
            "2026-03-02T01:30", "2026-03-02T01:15",
            id="every hour, a quarter of an hour more",
        ),
        pytest.param(
            HALF_HOURLY, PLUS1, PLUS2, "2026-03-02T00:00", "2026-03-02T00:30", "2026-03-02T00:30",
            id="every half hour: nothing moves",
        ),
        pytest.param(
            DAILY, "Asia/Kolkata", "Asia/Karachi", "2026-03-01T20:30", "2026-03-02T20:30",
            "2026-03-02T21:00",
            id="half an hour less",
        ),
        pytest.param(
            {"cron": "30 2 * * *"}, "Europe/Berlin", "Africa/Tunis", "2026-03-28T01:30",
            "2026-03-29T01:00", "2026-03-29T01:30",
            id="a zone drops its summer time: the stand-in for the gap is the time itself",
        ),
        pytest.param(
            {"cron": "0 12 * * *"}, "Europe/Berlin", "Africa/Tunis", "2026-03-28T11:00",
            "2026-03-29T10:00", "2026-03-29T11:00",
            id="a zone drops its summer time: the first noon that it moves",
        ),
        pytest.param(
            {"cron": "0 12 * * *"}, "Africa/Tunis", "Europe/Berlin", "2026-03-28T11:00",
            "2026-03-29T11:00", "2026-03-29T10:00",
            id="a zone gets a summer time",
        ),
        pytest.param(
            {"cron": "17 2 * * *"}, "Europe/Berlin", "Africa/Tunis", "2026-03-28T01:17",
            "2026-03-29T01:00", "2026-03-29T01:17",
            id="a stand-in moves by minutes: the nearest slot",
        ),
        pytest.param(
            DAILY, "Pacific/Pago_Pago", "Pacific/Apia", "2026-03-01T13:00", "2026-03-02T13:00",
            "2026-03-02T13:00",
            id="over the date line: the same instant, another date",
        ),
        pytest.param(
            {"calendar": {"every": 1, "unit": "month", "on": "last", "at": "23:30"}},
            PLUS1, PLUS2, "2026-02-28T22:30", "2026-03-31T22:30", "2026-03-31T21:30",
            id="a calendar interval",
        ),
    ],
)  # fmt: skip
def test_the_slot_waited_for_keeps_its_local_time_and_none_comes_twice(
    document: dict[str, Any], before: str, after: str, last: str, waited: str, becomes: str
) -> None:
    old = timetable(document, before)
    done, wait = instant(last), instant(waited)
    assert (old.next_after(done - timedelta(seconds=1)), old.next_after(done)) == (done, wait)
    new = timetable(document, after)
    found = moved_next(new, done, wait)
    assert found == instant(becomes)
    assert moved_next(new, done, instant(becomes)) == found, "asked again, it stays"


def test_a_slot_by_the_new_rules_that_has_passed_is_late_and_the_misfire_policy_decides() -> None:
    job = plan(DAILY, PLUS2, misfire=Misfire(policy=MisfirePolicy.FIRE_ONCE))
    due = moved_due(job, JOB, instant("2026-03-01T01:00"), instant("2026-03-02T01:00"), None)
    assert due == instant("2026-03-02T00:00")
    situation = Situation(JOB, due, last_slot=instant("2026-03-01T01:00"))
    late = instant("2026-03-02T00:40")
    decision = plan_job(job, situation, late)
    assert [x.scheduled_at for x in decision.launches] == [due]
    skipping = replace(job, misfire=Misfire(policy=MisfirePolicy.SKIP))
    decision = plan_job(skipping, situation, late)
    assert [(s.reason, s.first) for s in decision.skipped] == [(SkipReason.MISFIRE, due)]


def test_a_slot_from_before_the_schedule_was_written_is_not_waited_for() -> None:
    new, waited = timetable(DAILY, PLUS2), instant("2026-03-02T01:00")
    assert moved_next(new, None, waited) == instant("2026-03-02T00:00")
    written = instant("2026-03-02T00:30")
    assert moved_next(new, None, waited, written) == instant("2026-03-03T00:00")
    hourly = timetable({"cron": "0 * * * *"}, PLUS2)
    edited = moved_next(
        hourly,
        instant("2026-03-02T02:00"),
        instant("2026-03-02T04:00"),
        instant("2026-03-02T03:30"),
    )
    assert edited == instant("2026-03-02T04:00"), "slots from before the edit are no business of it"


def test_a_one_off_of_a_local_time_moves_also_to_before_it_was_written() -> None:
    once = {"at": "2026-03-02T02:00:00"}
    assert timetable(once, PLUS1).next_after(NOW) == instant("2026-03-02T01:00")
    waited, written = instant("2026-03-02T01:00"), instant("2026-03-02T00:30")
    assert moved_next(timetable(once, PLUS2), None, waited, written) == instant("2026-03-02T00:00")
    assert moved_next(timetable(once, PLUS0), None, waited, written) == instant("2026-03-02T02:00")


def test_a_one_off_that_ran_is_not_waited_for_again() -> None:
    once = timetable({"at": "2026-03-02T02:00:00"}, PLUS2)
    assert moved_next(once, instant("2026-03-02T01:00"), instant("2026-03-02T01:00")) is None


@pytest.mark.parametrize("jitter", [10, 600, 7200])
@pytest.mark.parametrize(("before", "after", "hours"), [(PLUS1, PLUS2, -1), (PLUS2, PLUS1, 1)])
def test_slots_are_compared_and_not_what_jitter_makes_of_them(
    jitter: int, before: str, after: str, hours: int
) -> None:
    spread = timedelta(seconds=jitter)
    old, new = plan(DAILY, before, jitter=spread), plan(DAILY, after, jitter=spread)
    for day in range(60):
        last = first_due(replace(old, jitter=timedelta(0)), JOB, NOW + timedelta(days=day))
        assert last is not None
        due = first_due(old, JOB, last)
        assert due is not None
        slot = last + timedelta(days=1, hours=hours)
        assert moved_due(new, JOB, last, due, None) == first_due(new, JOB, slot - timedelta(1e-9))
        assert moved_due(old, JOB, last, due, None) == due, "the same rules: nothing moves"


def test_start_and_end_bound_the_new_slot() -> None:
    last, waited = instant("2026-03-01T01:00"), instant("2026-03-02T01:00")
    starts = plan(DAILY, PLUS2, starts_at=instant("2026-03-02T00:30"))
    assert moved_due(starts, JOB, None, waited, None) == instant("2026-03-03T00:00")
    ends = plan(DAILY, PLUS0, ends_at=instant("2026-03-02T01:30"))
    assert moved_due(ends, JOB, last, waited, None) is None


def test_intervals_and_instants_have_no_zone() -> None:
    for document in ({"every": "15m"}, {"at": "2026-03-02T02:00:00Z"}):
        found = parse_schedule(document, job=JOB, now=NOW)
        assert zones_of(found) == ()
        waited = instant("2026-03-02T07:11")
        assert moved_due(Plan(schedule=found), JOB, None, waited, None) == waited
    parts = [{**DAILY, "time_zone": z} for z in (PLUS1, PLUS2, PLUS1)] + [{"every": "1h"}]
    assert zones_of(parse_schedule({"any_of": parts}, job=JOB, now=NOW)) == (PLUS1, PLUS2)


class Night:
    """A calendar of every local night, in hours of UTC."""

    name = "night"
    steps = 0

    def __init__(self, begins: int, ends: int) -> None:
        self.begins, self.ends = begins, ends

    def stretch(self, at: int, /) -> Stretch:
        day, hour = at // 86400 * 86400, at % 86400 // 3600
        edges = [day, day + self.begins * 3600, day + self.ends * 3600, day + 86400]
        inside = self.begins <= hour < self.ends
        start = max(e for e in edges if e <= at)
        return Stretch(inside, start, min(e for e in edges if e > at))


class Stretch(NamedTuple):
    inside: bool
    start: int
    end: int


@pytest.mark.parametrize("schedule", [{"every": "1h", "anchor": "2026-01-01T00:00:00Z"},
                                      {"cron": "0 * * * *"}])  # fmt: skip
def test_a_calendar_that_moves_alone_passes_no_slot_over(schedule: dict[str, str]) -> None:
    found = parse_schedule(schedule, job=JOB, now=NOW)
    job = Plan(schedule=found, allowance=Allowance(exclude=(Night(0, 4),)))
    last = instant("2026-03-01T23:00")
    due = moved_due(job, JOB, last, instant("2026-03-02T05:00"), None)
    assert due == instant("2026-03-02T04:00"), "05:00 was the first one by the older data"
    assert moved_due(job, JOB, last, instant("2026-03-02T03:00"), None) == due
    assert moved_due(job, JOB, last, due, None) == due
    assert moved_due(
        replace(job, allowance=None), JOB, last, instant("2026-03-02T03:00"), None
    ) == (instant("2026-03-02T03:00"))


def test_an_interval_from_completion_stays() -> None:
    schedule = {"every": "1h", "measured_from": "completion"}
    found = parse_schedule(schedule, job=JOB, now=NOW)
    job = Plan(schedule=found, allowance=Allowance(exclude=(Night(0, 4),)))
    waited = instant("2026-03-02T05:07")
    assert moved_due(job, JOB, instant("2026-03-01T23:00"), waited, None) == waited


@given(
    hour=st.integers(0, 23),
    minute=st.sampled_from([0, 15, 30, 59]),
    old=st.integers(-10, 10),
    new=st.integers(-10, 10),
    moved=st.integers(0, 47),
)
def test_each_local_day_of_a_daily_job_has_one_slot_across_the_change(
    hour: int, minute: int, old: int, new: int, moved: int
) -> None:
    """Offsets move by up to three hours at any hour; each date is launched once."""
    new = old + max(-3, min(3, new - old))
    document = {"cron": f"{minute} {hour} * * *"}
    before, after = (timetable(document, f"Etc/GMT{-n:+d}") for n in (old, new))
    change = NOW + timedelta(days=10, hours=moved)
    slots, at = [], NOW
    while (found := before.next_after(at)) is not None and found < change:
        slots.append((found + timedelta(hours=old)).date())
        at = found
    assert found is not None
    waits = moved_next(after, at, found)
    while waits is not None and waits < NOW + timedelta(days=20):
        assert waits > at
        slots.append((waits + timedelta(hours=new)).date())
        at = waits
        waits = after.next_after(at)
    days = (slots[-1] - slots[0]).days + 1
    assert len(slots) == len(set(slots)) == days, json.dumps([str(s) for s in slots])

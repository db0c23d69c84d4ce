"""What a change of a calendar does to a job: the next run, what is recorded, what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickrail.core.calendar_moves import Changes, Waiting, compare_slots, move_run
from tickrail.core.calendars import parse_calendar
from tickrail.core.definition import Plan, parse_plan
from tickrail.core.ids import JobId
from tickrail.core.plan import Decision, Situation, first_due, plan_job
from tickrail.core.timetable import Allowance, OnExcluded

JOB = JobId(UUID("01914b6e-0000-7000-8000-000000000001"))
HOURLY = {"cron": "0 * * * *"}
DAILY = {"cron": "0 2 * * *"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-06-{text}").replace(tzinfo=UTC)


def plan(schedule: Any, windows: list[list[str]], *, move: bool = False, **more: Any) -> Plan:
    """A plan that leaves out windows of each day."""
    document = {"windows": [{"from": a, "to": b} for a, b in windows]}
    calendar = parse_calendar(document, name="c")
    mode = OnExcluded.NEXT_ALLOWED if move else OnExcluded.SKIP
    read = parse_plan({"schedule": schedule, **more}, job=JOB, now=at("01"))
    return replace(read, allowance=Allowance((calendar,), (), mode))


@dataclass(frozen=True)
class Case:
    before: Plan
    after: Plan
    next_run: str | None
    last: str | None
    now: str
    wanted: str | None
    last_after: str | None
    left_out: int = 0
    launched: int = 0


FREE: list[list[str]] = []
MORNING = [["10:00", "12:30"]]
NOON = [["12:00", "12:30"]]
CASES = {
    "a coming slot is left out": Case(
        plan(HOURLY, FREE), plan(HOURLY, NOON), "01T12:00", "01T11:00", "01T11:20",
        "01T13:00", "01T11:00"),
    "a coming slot is free again": Case(
        plan(HOURLY, NOON), plan(HOURLY, FREE), "01T13:00", "01T11:00", "01T11:20",
        "01T12:00", "01T11:00"),
    "what was left out until now is recorded, and stays left out": Case(
        plan(HOURLY, MORNING), plan(HOURLY, FREE), "01T13:00", "01T09:00", "01T11:20",
        "01T12:00", "01T11:00", left_out=2),
    "a slot of this very second was left out": Case(
        plan(HOURLY, MORNING), plan(HOURLY, FREE), "01T13:00", "01T09:00", "01T11:00",
        "01T12:00", "01T11:00", left_out=2),
    "nothing is recorded of a job that has not run yet": Case(
        plan(HOURLY, MORNING), plan(HOURLY, FREE), "01T13:00", None, "01T11:20",
        "01T12:00", None),
    "a slot that is due and not launched yet is kept": Case(
        plan(HOURLY, FREE), plan(HOURLY, MORNING), "01T09:00", "01T08:00", "01T09:30",
        "01T09:00", "01T08:00"),
    "a slot that is due, and is left out now, is for the tick to record": Case(
        plan(HOURLY, FREE), plan(HOURLY, NOON), "01T12:00", "01T11:00", "01T12:10",
        "01T13:00", "01T11:00"),
    "what was left out before a due slot is recorded": Case(
        plan(HOURLY, MORNING), plan(HOURLY, FREE), "01T13:00", "01T09:00", "01T13:10",
        "01T13:00", "01T12:00", left_out=3),
    "a moved slot goes back to its time": Case(
        plan(DAILY, [["00:00", "06:00"]], move=True), plan(DAILY, FREE, move=True),
        "02T06:00", "01T06:00", "01T12:00", "02T02:00", "01T06:00"),
    "a moved slot whose time has passed is due at once": Case(
        plan(DAILY, [["00:00", "06:00"]], move=True), plan(DAILY, FREE, move=True),
        "02T06:00", "01T06:00", "02T05:00", "02T02:00", "01T06:00"),
    "a moved slot moves less far": Case(
        plan(DAILY, [["00:00", "06:00"]], move=True), plan(DAILY, [["00:00", "04:00"]], move=True),
        "02T06:00", "01T06:00", "02T05:00", "02T04:00", "01T06:00"),
    "a moved slot moves further": Case(
        plan(DAILY, [["00:00", "06:00"]], move=True), plan(DAILY, [["00:00", "08:00"]], move=True),
        "02T06:00", "01T06:00", "02T05:00", "02T08:00", "01T06:00"),
    "a slot that ran does not come again where it would be moved to": Case(
        plan(DAILY, FREE, move=True), plan(DAILY, [["00:00", "06:00"]], move=True),
        "02T02:00", "01T02:00", "01T03:00", "02T06:00", "01T02:00"),
    "jitter: the slot has passed, its due instant has not": Case(
        plan(HOURLY, FREE, jitter="30m"), plan(HOURLY, NOON, jitter="30m"), "JITTER", "01T10:00",
        "01T11:00", "JITTER", "01T10:00"),
    "no run is left": Case(
        plan({"at": "2026-06-01T12:10:00Z"}, FREE), plan({"at": "2026-06-01T12:10:00Z"}, NOON),
        "01T12:10", None, "01T10:00", None, None),
    "a run again after none": Case(
        plan({"at": "2026-06-01T12:10:00Z"}, NOON), plan({"at": "2026-06-01T12:10:00Z"}, FREE),
        None, None, "01T10:00", "01T12:10", None),
    "a job that has had all its launches": Case(
        plan(HOURLY, NOON, max_launches=3), plan(HOURLY, FREE, max_launches=3), None, "01T11:00",
        "01T11:20", None, "01T11:00", launched=3),
    "by hand only": Case(
        plan(None, FREE), plan(None, NOON), None, None, "01T11:20", None, None),
    "behind its end": Case(
        plan(HOURLY, NOON, ends_at="2026-06-01T12:40:00Z"),
        plan(HOURLY, FREE, ends_at="2026-06-01T12:40:00Z"), None, "01T11:00", "01T15:00",
        None, "01T12:00", left_out=1),
    "before its start": Case(
        plan(HOURLY, NOON, starts_at="2026-06-03T12:00:00Z"),
        plan(HOURLY, FREE, starts_at="2026-06-03T12:00:00Z"), "03T13:00", None, "01T10:00",
        "03T12:00", None),
    "an interval from the end of a run": Case(
        plan({"every": "1h", "measured_from": "completion", "anchor": "2026-06-01T00:00:00Z"},
             FREE),
        plan({"every": "1h", "measured_from": "completion", "anchor": "2026-06-01T00:00:00Z"},
             NOON),
        "01T12:10", "01T11:00", "01T11:20", "01T13:30", "01T11:00"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_where_a_job_goes_on(case: Case) -> None:
    due = None if case.next_run is None else case.next_run
    waited = first_due(case.before, JOB, at("01T10:30")) if due == "JITTER" else due and at(due)
    here = Waiting(JOB, waited or None, (case.last and at(case.last)) or None, case.launched)
    found = move_run(case.before, case.after, here, at(case.now))
    if case.wanted == "JITTER":
        assert found.next_run_at == waited
    else:
        assert found.next_run_at == (case.wanted and at(case.wanted))
    assert found.last_slot == (case.last_after and at(case.last_after))
    assert (found.left_out.count if found.left_out else 0) == case.left_out


def test_the_slots_that_come_and_go_are_shown_as_far_as_both_were_looked_at() -> None:
    found = compare_slots(plan(HOURLY, FREE), plan(HOURLY, MORNING), at("01T08:30"), 5)
    morning = (at("01T10:00"), at("01T11:00"), at("01T12:00"))
    assert found == Changes(added=(), removed=morning, first=at("01T09:00"))
    back = compare_slots(plan(HOURLY, MORNING), plan(HOURLY, FREE), at("01T08:30"), 5)
    assert back == Changes(added=morning, removed=(), first=at("01T09:00"))
    same = compare_slots(plan(HOURLY, FREE), plan(HOURLY, FREE), at("01"), 5)
    assert same == Changes(first=at("01T01:00"))


def test_the_slots_of_a_schedule_that_ends_are_all_looked_at() -> None:
    once = {"at": "2026-06-01T12:10:00Z"}
    found = compare_slots(plan(once, FREE), plan(once, NOON), at("01T10:00"), 5)
    assert found == Changes(added=(), removed=(at("01T12:10"),))
    assert compare_slots(plan(None, FREE), plan(None, NOON), at("01"), 5) == Changes()


HOURS = st.lists(
    st.tuples(st.integers(0, 23), st.integers(1, 8)).map(
        lambda p: [f"{p[0]:02d}:00", f"{(p[0] + p[1]) % 24:02d}:00"]
    ),
    max_size=2,
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["tick", "edit", "wait"]), HOURS, st.integers(1, 9 * 3600)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(
    HOURS, STEPS, st.sampled_from([HOURLY, {"cron": "*/20 * * * *"}, DAILY, {"every": "50m"}]),
    st.sampled_from(["fire_all", "fire_once", "skip"]),
)  # fmt: skip
def test_each_slot_is_launched_or_recorded_once_whatever_is_edited_when(
    first: list[list[str]],
    steps: list[tuple[str, list[list[str]], int]],
    schedule: Mapping[str, Any],
    policy: str,
) -> None:
    """Ticks, edits of the calendar and outages in any order: no slot twice, none without a word."""
    misfire = {"policy": policy, "max_count": 10_000, "max_age": "30d", "per_minute": 100_000}
    document = dict(schedule) | ({"anchor": "2026-06-01T00:00:00Z"} if "every" in schedule else {})

    def with_windows(windows: list[list[str]]) -> Plan:
        return plan(document, windows, overlap="allow", misfire=misfire)

    begin = now = at("01T00:30")
    current = with_windows(first)
    due, last = first_due(current, JOB, now), begin
    said: list[datetime] = []
    bare = plan(document, FREE).timetable
    assert bare is not None

    def between(low: datetime, high: datetime) -> list[datetime]:
        run = bare.missed(low - timedelta(microseconds=1), high, 10_000)
        return [] if run is None else list(run.oldest)

    for kind, windows, pause in steps:
        now += timedelta(seconds=pause)
        if kind == "edit":
            changed = with_windows(windows)
            changes = compare_slots(current, changed, now, 3)
            moved = move_run(current, changed, Waiting(JOB, due, last), now)
            assert move_run(current, changed, Waiting(JOB, due, last), now, changes) == moved
            if moved.left_out is not None:
                found = between(moved.left_out.first, moved.left_out.last)
                table = current.timetable
                assert table is not None
                out = [s for s in found if table.excluded(s - timedelta(seconds=1), s, 1)]
                assert len(out) == moved.left_out.count
                said += out
            assert moved.last_slot is not None
            assert moved.last_slot >= last
            current, due, last = changed, moved.next_run_at, moved.last_slot
        while kind == "tick" and due is not None and due <= now:
            decision = plan_job(current, Situation(JOB, due, last_slot=last), now)
            said += [s.scheduled_at for s in decision.launches]
            said += _skipped(current, decision, between)
            assert decision.last_slot is not None
            due, last = decision.wake_at, decision.last_slot
    assert len(said) == len(set(said))
    decided = [s for s in between(begin, last) if s > begin]
    assert sorted(s for s in said if s <= last) == decided


@settings(max_examples=200, deadline=None)
@given(
    HOURS, STEPS, st.sampled_from([HOURLY, {"cron": "*/20 * * * *"}, DAILY]),
)  # fmt: skip
def test_a_slot_that_moves_comes_once_whatever_is_edited_when(
    first: list[list[str]], steps: list[tuple[str, list[list[str]], int]], schedule: Any
) -> None:
    misfire = {"policy": "fire_all", "max_count": 10_000, "max_age": "30d", "per_minute": 100_000}

    def moving(windows: list[list[str]]) -> Plan:
        return plan(schedule, windows, move=True, overlap="allow", misfire=misfire)

    begin = now = at("01T00:30")
    bare = plan(schedule, FREE).timetable
    assert bare is not None
    current = moving(FREE)
    due, last = first_due(current, JOB, now), None
    launched: list[datetime] = []
    passed = None
    end = [("edit", FREE, 1), ("tick", FREE, 1)]
    for kind, windows, pause in [("edit", first, 1), *steps, *end]:
        now += timedelta(seconds=pause)
        if kind == "edit":
            changed = moving(windows)
            moved = move_run(current, changed, Waiting(JOB, due, last), now)
            current, due, last = changed, moved.next_run_at, moved.last_slot
        while kind == "tick" and due is not None and due <= now:
            decision = plan_job(current, Situation(JOB, due, last_slot=last), now)
            launched += [s.scheduled_at for s in decision.launches]
            due, last = decision.wake_at, decision.last_slot
        assert launched == sorted(set(launched))
        passed = bare.missed(begin, now, 1)
        assert len(launched) <= (passed.count if passed else 0)
    if schedule == DAILY:  # no window is long enough to move two of its slots to one instant
        assert len(launched) == (passed.count if passed else 0)


def _skipped(current: Plan, decision: Decision, between: Any) -> list[datetime]:
    """The slots of a decision's skip records, each by itself."""
    table = current.timetable
    assert table is not None
    launched = {s.scheduled_at for s in decision.launches}
    found: list[datetime] = []
    for run in decision.skipped:
        wants_excluded = run.reason.value == "excluded"
        these = [
            s
            for s in between(run.first, run.last)
            if (table.excluded(s - timedelta(seconds=1), s, 1) is not None) == wants_excluded
            and s not in launched
        ]
        assert len(these) == run.count, (run, these)
        found += these
    return found

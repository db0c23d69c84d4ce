"""The watchdog agrees with the planner about every slot, and trusts nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.calendars import parse_calendar
from tickrail.core.definition import Plan, parse_definition
from tickrail.core.ids import JobId, Partition, TenantId
from tickrail.core.plan import (
    Decision,
    Situation,
    first_due,
    from_completion,
    plan_completion,
    plan_job,
    plan_resume,
    within_quota,
)
from tickrail.core.ports import DueJob
from tickrail.core.ports_watch import LastRun, SlotRun, WatchedJob
from tickrail.core.timetable import Allowance, OnExcluded
from tickrail.core.watch import (
    Finding,
    WatchRules,
    Wrong,
    adrift,
    after_completion,
    expected,
    missing,
    overdue,
    unlaunched,
)

JOB = JobId(UUID(int=7))
TENANT = TenantId(UUID(int=1))
RULES = WatchRules(timedelta(seconds=30), timedelta(hours=1))
SPRING = datetime(2026, 3, 28, 22, 0, tzinfo=UTC)
"""Three hours before Berlin's clocks go forward."""
AUTUMN = datetime(2026, 10, 24, 21, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOLIDAY = parse_calendar({"windows": [{"from": "09:15", "to": "10:45"}]}, name="lunch", version=1)


def plan_for(start: datetime, **definition: Any) -> Plan:
    document = {"name": "a", "target": {"noop": {}}, **definition}
    return parse_definition(document, job=JOB, now=start).plan


@dataclass
class World:
    """A job under the planner, with what it has written."""

    plan: Plan
    since: datetime
    due_at: datetime | None
    last_slot: datetime | None = None
    launched: set[datetime] = field(default_factory=set)
    skipped: list[SlotRun] = field(default_factory=list)
    ended: LastRun = field(default_factory=lambda: LastRun(is_open=False, at=None))
    count: int = 0
    skip_next: int = 0

    @classmethod
    def new(cls, plan: Plan, start: datetime) -> World:
        return cls(plan, start, first_due(plan, JOB, start))

    def watched(self, **changes: Any) -> WatchedJob:
        due = self.due_at
        job = DueJob(
            JOB, TENANT, Partition(0), 1, due or datetime.max.replace(tzinfo=UTC), self.last_slot,
            self.count, "{}",
        )  # fmt: skip
        return WatchedJob(job, "a", self.since, due, None, "")._replace(**changes)

    def wrong(self, now: datetime, **changes: Any) -> Finding | None:
        """What the watchdog says."""
        w = self.watched(**changes)
        if from_completion(self.plan):
            return after_completion(w, self.plan, self.ended, now, RULES)
        left = unlaunched(expected(w, self.plan, now, RULES), self.launched)
        late = missing(w, self.plan, left, self.skipped, now - RULES.late)
        return late or overdue(w, now, RULES) or adrift(w, self.plan, now, "")

    def tick(self, now: datetime, *, opened: int = 0, room: int | None = None) -> None:
        """What an owner would do now."""
        while self.due_at is not None and self.due_at <= now:
            s = Situation(
                JOB, self.due_at, self.count, opened, 0, self.last_slot, None, 0, self.skip_next
            )
            decision = plan_job(self.plan, s, now)
            if room is not None:
                decision = within_quota(self.plan, s, decision, room)
            self.skip_next -= decision.by_hand
            self._write(decision)
            if decision.awaits:
                self.due_at = None

    def _write(self, d: Decision) -> None:
        self.launched |= {x.scheduled_at for x in d.launches}
        self.count += len(d.launches)
        self.skipped += [SlotRun(s.first, s.last) for s in d.skipped if s.reason != "excluded"]
        self.last_slot = d.last_slot or self.last_slot
        self.due_at = d.wake_at


def closed(mode: OnExcluded) -> Allowance:
    return Allowance((HOLIDAY,), on_excluded=mode)


CASES: Mapping[str, tuple[Mapping[str, Any], OnExcluded | None]] = {
    "each minute": ({"schedule": {"cron": "* * * * *"}}, None),
    "each 20 seconds": ({"schedule": {"every": "20s"}}, None),
    "Berlin, in the gap and the fold": (
        {"schedule": {"cron": "*/10 1-3 * * *", "time_zone": "Europe/Berlin", "fold": "both"}},
        None,
    ),
    "the gap is skipped": (
        {"schedule": {"cron": "*/7 * * * *", "time_zone": "Europe/Berlin", "gap": "skip"}},
        None,
    ),
    "jitter": ({"schedule": {"cron": "*/10 * * * *"}, "jitter": "7m"}, None),
    "two at once": (
        {"schedule": {"any_of": [{"cron": "*/6 * * * *"}, {"every": "7m"}]}},
        None,
    ),
    "left out by a calendar": ({"schedule": {"cron": "*/5 * * * *"}}, OnExcluded.SKIP),
    "moved by a calendar": ({"schedule": {"cron": "*/5 * * * *"}}, OnExcluded.NEXT_ALLOWED),
    "misfires are skipped": (
        {"schedule": {"every": "2m"}, "misfire": {"policy": "skip", "grace": "10s"}},
        None,
    ),
    "misfires are all caught up": (
        {
            "schedule": {"every": "5m"},
            "misfire": {"policy": "fire_all", "max_count": 4, "max_age": "2h"},
            "overlap": "allow",
        },
        None,
    ),
    "an end": ({"schedule": {"every": "3m"}, "ends_at": "2026-10-25T03:00:00Z"}, None),
    "so many": ({"schedule": {"every": "3m"}, "max_launches": 40}, None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_nothing_is_wrong_while_an_owner_ticks_and_all_of_it_when_none_does(
    name: str, start: datetime
) -> None:
    definition, mode = CASES[name]
    plan = plan_for(start, **definition)
    if mode is not None:
        plan = replace(plan, allowance=closed(mode))
    world, rng = World.new(plan, start), random.Random(name)
    now = start
    for _ in range(150):
        assert world.due_at is not None
        opened = rng.choice([0, 0, 0, 1])
        now = max(now, world.due_at) + timedelta(seconds=rng.uniform(0, 20))
        world.tick(now, opened=opened, room=rng.choice([None, None, 0]))
        if world.due_at is None:
            return  # it is finished, and nobody looks any more
        assert world.wrong(now) is None
        assert world.wrong(now + timedelta(seconds=9)) is None
        if rng.random() < 0.02:  # every scheduler is away for hours
            now += timedelta(hours=rng.uniform(0.1, 9))
            if now >= world.due_at + RULES.late:
                found = world.wrong(now)
                assert found is not None
                assert found.wrong is Wrong.MISSING
            world.tick(now)
            if world.due_at is None:
                return
            assert world.wrong(now) is None
    due = world.due_at
    assert due is not None
    assert world.wrong(due + RULES.late - SECOND) is None
    found = world.wrong(due + RULES.late)
    assert found is not None
    assert (found.wrong, found.due_at, found.slots >= 1) == (Wrong.MISSING, due, True)


@pytest.mark.parametrize(
    ("policy", "opened"), [("skip", 1), ("buffer_one", 1), ("cancel_other", 1), ("allow", 5)]
)
def test_what_overlap_leaves_out_is_decided_on(policy: str, opened: int) -> None:
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}, overlap=policy), SPRING)
    for n in range(1, 90):
        now = SPRING + timedelta(minutes=n, seconds=3)
        world.tick(now, opened=opened)
        assert world.wrong(now + timedelta(seconds=40)) is None


def test_a_launch_record_that_is_gone_is_missed() -> None:
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}), SPRING)
    for n in range(1, 30):
        world.tick(SPRING + timedelta(minutes=n))
    now = SPRING + timedelta(minutes=29, seconds=40)
    gone = SPRING + timedelta(minutes=17)
    world.launched.remove(gone)
    assert world.wrong(now) == Finding(JOB, TENANT, "a", Wrong.MISSING, 1, gone, world.due_at, None)
    world.skipped.append(SlotRun(gone, gone))
    assert world.wrong(now) is None


@pytest.mark.parametrize("ahead", [None, timedelta(days=1)])
def test_a_next_run_that_is_lost_or_ahead_is_found_before_the_slot_is_missed(
    ahead: timedelta | None,
) -> None:
    world = World.new(plan_for(SPRING, schedule={"cron": "0 * * * *"}), SPRING)
    now = SPRING + timedelta(minutes=5)
    assert world.wrong(now) is None
    due, world.due_at = world.due_at, None if ahead is None else now + ahead
    found = world.wrong(now)
    assert found is not None
    assert (found.wrong, found.due_at, found.slots) == (Wrong.ADRIFT, due, 0)
    later = world.wrong(SPRING + timedelta(hours=3, minutes=1))
    assert later is not None
    assert (later.wrong, later.slots) == (Wrong.MISSING, 1)


def test_who_has_other_zone_data_or_cannot_be_planned_is_not_adrift() -> None:
    world = World.new(plan_for(SPRING, schedule={"cron": "0 * * * *"}), SPRING)
    world.due_at = SPRING + timedelta(days=1)
    now = SPRING + timedelta(minutes=5)
    assert world.wrong(now, tzdata="2019a") is None
    assert world.wrong(now, error="no such zone") is None
    assert world.wrong(now) is not None


def test_what_was_due_before_a_change_is_not_asked_for() -> None:
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}), SPRING)
    now = SPRING + timedelta(minutes=20)
    found = world.wrong(now)
    assert found is not None
    assert found.slots == 19
    world.due_at = now + timedelta(minutes=1)
    assert world.wrong(now + timedelta(seconds=20), since=now) is None
    late = world.wrong(now + timedelta(minutes=2, seconds=31), since=now)
    assert late is not None
    assert (late.slots, late.due_at) == (2, now + timedelta(minutes=1))


def test_slots_of_a_pause_and_those_left_out_by_hand_are_decided_on() -> None:
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}), SPRING)
    now = SPRING + timedelta(minutes=30)
    assert world.due_at is not None
    passed = plan_resume(world.plan, Situation(JOB, world.due_at), now)
    world._write(passed)
    assert world.wrong(now + timedelta(seconds=40)) is None
    world.skip_next = 3
    for n in range(31, 40):
        world.tick(SPRING + timedelta(minutes=n))
        assert world.wrong(SPRING + timedelta(minutes=n, seconds=50)) is None
    assert world.count == 6


def test_only_an_hour_is_looked_back() -> None:
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}), SPRING)
    found = world.wrong(SPRING + timedelta(hours=5))
    assert found is not None
    assert (found.slots, found.due_at) == (59, SPRING + timedelta(hours=4, minutes=1))
    daily = World.new(plan_for(SPRING, schedule={"cron": "0 23 * * *"}), SPRING)
    of_before = daily.wrong(SPRING + timedelta(hours=5))
    assert of_before is not None
    assert (of_before.slots, of_before.due_at) == (1, SPRING + timedelta(hours=1))
    thousands = World.new(plan_for(SPRING, schedule={"every": "1s"}), SPRING)
    of_each_second = thousands.wrong(SPRING + timedelta(hours=5))
    assert of_each_second is not None
    assert of_each_second.slots == 1000


def test_a_job_by_hand_and_one_that_has_launched_all_are_never_wrong() -> None:
    assert (
        World.new(plan_for(SPRING, schedule=None), SPRING).wrong(SPRING + RULES.look_back) is None
    )
    world = World.new(plan_for(SPRING, schedule={"every": "1m"}, max_launches=2), SPRING)
    world.count = 2
    world.due_at = None
    slots = expected(world.watched(), world.plan, SPRING + RULES.look_back, RULES)
    assert list(slots) == []


def test_a_job_measured_from_the_end_of_its_launches() -> None:
    every = {"every": "10m", "anchor": "2026-03-28T22:00:00Z", "measured_from": "completion"}
    world = World.new(plan_for(SPRING - SECOND, schedule=every), SPRING - SECOND)
    assert world.due_at == SPRING
    world.tick(SPRING)
    world.ended = LastRun(is_open=True, at=None)
    assert world.wrong(SPRING + timedelta(hours=2)) is None
    end = SPRING + timedelta(hours=2)
    world.ended = LastRun(is_open=False, at=end)
    following = plan_completion(world.plan, Situation(JOB, end), end).wake_at
    assert following == end + timedelta(minutes=10)
    assert world.wrong(following + RULES.late - SECOND) is None
    found = world.wrong(following + RULES.late)
    assert found is not None
    assert (found.wrong, found.slots, found.due_at) == (Wrong.MISSING, 1, following)


def test_slots_that_calendars_leave_out_are_not_expected() -> None:
    plan = replace(plan_for(AUTUMN, schedule={"cron": "*/30 * * * *"}),
                   allowance=closed(OnExcluded.SKIP))  # fmt: skip
    world = World.new(plan, AUTUMN)
    noon = datetime(2026, 10, 25, 10, 50, tzinfo=UTC)
    rules = replace(RULES, look_back=timedelta(hours=3))
    slots: Sequence[datetime] = expected(world.watched(), plan, noon, rules)
    assert [s.strftime("%H:%M") for s in slots] == ["08:00", "08:30", "09:00"]

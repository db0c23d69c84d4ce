"""What ticks make of a schedule, whatever happens between them: each slot once, none lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tickrail.core.calendars import parse_calendar
from tickrail.core.definition import Plan
from tickrail.core.ids import JobId
from tickrail.core.plan import (
    Decision,
    Situation,
    SkipReason,
    first_due,
    plan_job,
    plan_resume,
    spread,
)
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy, Overlap
from tickrail.core.schedule import (
    AnyOf,
    At,
    CalendarInterval,
    Cron,
    Every,
    Fold,
    Gap,
    Schedule,
    Unit,
    next_after,
)
from tickrail.core.timetable import Allowance, OnExcluded
from tickrail.core.zones import FAR

JOB = JobId(UUID("019b76da-a800-7000-8000-000000000001"))
CHANGE = datetime(2026, 3, 29, 1, tzinfo=UTC)  # Europe/Berlin
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
HORIZON = timedelta(days=3)
BOUNDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
Draw = Callable[[st.SearchStrategy[Any]], Any]

CRONS = ("*/7 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 */2 * * *", "* 2 * * *")
SIMPLE: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        Cron,
        st.sampled_from(CRONS),
        st.sampled_from(("Europe/Berlin", "UTC", "Australia/Lord_Howe")),
        st.sampled_from(Gap),
        st.sampled_from(Fold),
    ),
    st.builds(
        Every,
        st.integers(240, 9000).map(lambda n: n * SECOND),
        st.integers(-90_000, 90_000).map(lambda n: CHANGE + n * SECOND),
    ),
    st.builds(
        CalendarInterval,
        st.just(1),
        st.just(Unit.DAY),
        st.none(),
        st.integers(0, 86_399),
        st.just("Europe/Berlin"),
        st.sampled_from(Gap),
        st.sampled_from(Fold),
    ),
    st.builds(At, st.integers(0, 200_000).map(lambda n: CHANGE + n * SECOND)),
)
SCHEDULES = st.one_of(
    SIMPLE, st.lists(SIMPLE, min_size=2, max_size=3).map(lambda parts: AnyOf(tuple(parts)))
)
CALENDARS = (
    {"windows": [{"from": "01:30", "to": "04:10", "weekdays": ["sun", "mon"]}],
     "time_zone": "Europe/Berlin"},
    {"windows": [{"from": "22:00", "to": "03:00"}], "time_zone": "Europe/Berlin"},
    {"dates": ["2026-03-29"], "time_zone": "Europe/Berlin"},
    {"weekdays": ["sun"], "time_zone": "UTC"},
)  # fmt: skip
MISFIRES = st.builds(
    Misfire,
    st.sampled_from(MisfirePolicy),
    st.sampled_from((SECOND, 60 * SECOND, 3600 * SECOND)),
    st.integers(1, 4),
    st.sampled_from((600 * SECOND, 86_400 * SECOND)),
    st.sampled_from(CatchUpOrder),
    st.sampled_from((1, 60)),
)


@st.composite
def plans(draw: Draw) -> Plan:
    plan = Plan(
        schedule=draw(SCHEDULES),
        misfire=draw(MISFIRES),
        overlap=draw(st.sampled_from(Overlap)),
        jitter=draw(st.sampled_from((0, 0, 45, 7200))) * SECOND,
        max_launches=draw(st.sampled_from((None, None, None, 1, 3))),
        starts_at=draw(st.sampled_from((None, CHANGE - timedelta(hours=7)))),
        ends_at=draw(st.sampled_from((None, CHANGE + timedelta(hours=20)))),
    )
    if draw(st.booleans()):
        calendar = parse_calendar(draw(st.sampled_from(CALENDARS)), name="c")
        exclude = draw(st.booleans())
        allowance = Allowance(
            (calendar,) if exclude else (),
            () if exclude else (calendar,),
            draw(st.sampled_from(OnExcluded)),
        )
        plan = replace(plan, allowance=allowance)
    return plan


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("tick", "tick", "tick", "resume", "skip-next")),
        st.one_of(
            st.integers(1, 3000),
            st.integers(3000, 90_000),
            st.integers(-4000, -1),  # the clock is set back
        ),
        st.integers(0, 3),
    ),
    min_size=3,
    max_size=25,
)


@dataclass
class History:
    """One job's records, as ticks leave them."""

    plan: Plan
    now: datetime
    wake_at: datetime | None = None
    last_slot: datetime | None = None
    launched: int = 0
    skip_next: int = 0
    launches: Counter[datetime] = field(default_factory=Counter)
    due: dict[datetime, datetime] = field(default_factory=dict)
    runs: list[tuple[SkipReason, datetime, datetime, int]] = field(default_factory=list)

    def write(self, decision: Decision) -> None:
        for launch in decision.launches:
            self.launches[launch.scheduled_at] += 1
            self.due[launch.scheduled_at] = launch.due_at
        self.runs += [(s.reason, s.first, s.last, s.count) for s in decision.skipped]
        self.launched += len(decision.launches)
        self.wake_at, self.last_slot = decision.wake_at, decision.last_slot
        self.skip_next -= decision.by_hand

    def tick(self, opened: int) -> None:
        for _ in range(200):
            if self.wake_at is None or self.wake_at > self.now:
                return
            s = Situation(
                JOB, self.wake_at, self.launched, opened, 0, self.last_slot, None, 0,
                self.skip_next,
            )  # fmt: skip
            before = self.wake_at
            self.write(plan_job(self.plan, s, self.now, batch=7))
            assert self.wake_at is None or self.wake_at > before
        raise AssertionError("the job stays due")

    def resume(self) -> None:
        if self.wake_at is not None:
            s = Situation(JOB, self.wake_at, self.launched, last_slot=self.last_slot)
            self.write(plan_resume(self.plan, s, self.now))


def walk(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    at = next_after(schedule, after)
    while at is not None and at <= until:
        found.append(at)
        at = next_after(schedule, at)
    return found


def launchable(plan: Plan, after: datetime, until: datetime) -> list[datetime]:
    """The slots to launch, from the schedule slot by slot."""
    assert plan.schedule is not None
    raw = walk(plan.schedule, after - timedelta(days=9), until)
    allowance = plan.allowance
    if allowance is not None:
        kept = set()
        for slot in raw:
            at = int(slot.timestamp())
            if allowance.at(at).by is None:
                kept.add(slot)
            elif allowance.on_excluded is OnExcluded.NEXT_ALLOWED:
                while at < FAR and allowance.at(at).by is not None:
                    at = allowance.at(at).end
                if at < FAR:
                    kept.add(datetime.fromtimestamp(at, UTC))
        raw = sorted(kept)
    return [
        s
        for s in raw
        if after < s <= until
        and (plan.starts_at is None or s >= plan.starts_at)
        and (plan.ends_at is None or s <= plan.ends_at)
    ]


def left_out(plan: Plan, after: datetime, until: datetime) -> list[datetime]:
    """The slots that a calendar leaves out."""
    allowance = plan.allowance
    if plan.schedule is None or allowance is None or allowance.on_excluded is not OnExcluded.SKIP:
        return []
    raw = walk(plan.schedule, after, until)
    return [s for s in raw if allowance.at(int(s.timestamp())).by is not None]


def run_through(plan: Plan, steps: list[tuple[str, int, int]]) -> tuple[History, datetime]:
    """A history of ticks, long outages, pauses and clocks that are set back."""
    start = CHANGE - timedelta(hours=12)
    history = History(plan, start)
    history.wake_at = first_due(plan, JOB, start)
    for what, seconds, opened in steps:
        history.now += seconds * SECOND
        if what == "resume":
            history.resume()
        elif what == "skip-next":
            history.skip_next += opened
        else:
            history.tick(opened)
    return history, start


@BOUNDED
@given(plans(), STEPS)
def test_every_slot_is_launched_or_skipped_once(
    plan: Plan, steps: list[tuple[str, int, int]]
) -> None:
    history, start = run_through(plan, steps)
    seen = Counter(history.launches)
    excluded: Counter[datetime] = Counter()
    end = max([*history.launches, *(last for _, _, last, _ in history.runs)], default=start)
    slots = launchable(plan, start, end)
    forbidden = left_out(plan, start, end)
    for reason, first, last, count in history.runs:
        assert first <= last
        among, into = (forbidden, excluded) if reason is SkipReason.EXCLUDED else (slots, seen)
        inside = [slot for slot in among if first <= slot <= last]
        assert len(inside) == count, (reason, first, last, count)
        into.update(inside)
    assert seen == Counter(slots)
    if slots:
        # What a calendar left out before the first slot that may be launched is nobody's wait.
        assert {x for x in forbidden if slots[0] < x <= slots[-1]} <= set(excluded)
    assert max(excluded.values(), default=1) == 1
    if plan.max_launches is not None:
        assert history.launched <= plan.max_launches


@BOUNDED
@given(plans(), st.integers(2_000, 20_000))
def test_a_preview_is_what_the_ticks_launch(plan: Plan, step: int) -> None:
    """With ticks often enough and no overlap: the launches are the slots shown before."""
    plan = replace(plan, overlap=Overlap.ALLOW, misfire=Misfire(grace=timedelta(days=2)))
    table = plan.timetable
    assert table is not None
    start = CHANGE - timedelta(hours=12)
    begin = start if plan.starts_at is None else max(start, plan.starts_at - TICK)
    shown = [
        slot.at
        for slot in table.upcoming(begin, 300)
        if not any(note.startswith("excluded:") for note in slot.notes)
        and (plan.ends_at is None or slot.at <= plan.ends_at)
    ]
    history, _ = run_through(plan, [("tick", step, 0)] * (120_000 // step))
    launched = sorted(history.launches)
    assert launched == shown[: len(launched)]
    assert set(history.launches.values()) <= {1}
    if plan.max_launches is None:
        due = [s for s in shown if s + spread(plan, JOB, s) <= history.now]
        assert launched == due[: max(len(launched), 100)]
    assert {run[0] for run in history.runs} <= {SkipReason.EXCLUDED}


@BOUNDED
@given(SCHEDULES, st.integers(-400_000, 400_000))
def test_next_is_later_and_none_lies_between(schedule: Schedule, offset: int) -> None:
    start = CHANGE + offset * SECOND
    found = next_after(schedule, start)
    if found is not None:
        assert found > start
        middle = start + (found - start) / 2
        assert next_after(schedule, middle) == found
        assert next_after(schedule, found - TICK) == found

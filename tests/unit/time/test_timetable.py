"""Schedules under calendars: against a walk over each slot, and by named rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickrail.core.calendars import parse_calendar
from tickrail.core.errors import InvalidInputError
from tickrail.core.recurrence import slot_of
from tickrail.core.schedule import AnyOf, At, Cron, Every, Schedule, next_after
from tickrail.core.timetable import (
    MAX_STRETCHES,
    SEARCH_STEPS,
    Allowance,
    OnExcluded,
    Ruling,
    Times,
    Timetable,
)
from tickrail.core.zones import FAR

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)
HOURS = 30


@dataclass(frozen=True)
class Ranges:
    """Times that are a few ranges of seconds after START, `[start, end)`."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    steps: int = 0

    def stretch(self, at: int, /) -> "Found":  # noqa: UP037 - below
        second = at - int(START.timestamp())
        edges = sorted({e for r in self.ranges for e in r})
        low = max((e for e in edges if e <= second), default=None)
        high = min((e for e in edges if e > second), default=None)
        base = int(START.timestamp())
        inside = any(a <= second < b for a, b in self.ranges)
        return Found(
            inside, -FAR if low is None else base + low, FAR if high is None else base + high
        )


@dataclass(frozen=True)
class Found:
    inside: bool
    start: int
    end: int


def minutes(*pairs: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((a * 60, b * 60) for a, b in pairs)


def at(minute: float) -> datetime:
    return START + minute * MINUTE


def raw(schedule: Schedule, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    slot = next_after(schedule, START - timedelta(days=2))
    while slot is not None and slot <= until:
        found.append(slot)
        slot = next_after(schedule, slot)
    return found


def free(allowance: Allowance, minutes_on: int) -> list[bool]:
    """Whether each minute after START is allowed, by the ranges themselves."""

    def inside(calendars: tuple[Times, ...], second: int) -> bool:
        return any(a <= second < b for c in calendars if isinstance(c, Ranges) for a, b in c.ranges)

    return [
        not inside(allowance.exclude, m * 60)
        and (not allowance.include or inside(allowance.include, m * 60))
        for m in range(minutes_on)
    ]


def brute(table: Timetable, end: datetime) -> tuple[list[datetime], list[datetime]]:
    """Slots that are launched and slots that are left out, each looked at by itself."""
    launched: set[datetime] = set()
    left_out: list[datetime] = []
    assert table.allowance is not None
    allowed = free(table.allowance, (end - START) // MINUTE + 1)
    for slot in raw(table.schedule, end):
        minute = (slot - START) // MINUTE
        # Before START lies no range: all is excluded where something is included, else nothing.
        if allowed[minute] if minute >= 0 else not table.allowance.include:
            launched.add(slot)
        elif table.allowance.on_excluded is OnExcluded.SKIP:
            left_out.append(slot)
        elif minute < 0 and True in allowed:
            launched.add(at(allowed.index(True)))
        elif minute >= 0 and True in allowed[minute:]:
            launched.add(at(minute + allowed[minute:].index(True)))
    return sorted(x for x in launched if x <= end), left_out


ranges = st.lists(
    st.tuples(st.integers(0, HOURS * 60), st.integers(1, 400)), min_size=0, max_size=4
).map(lambda found: minutes(*((a, a + n) for a, n in found)))
schedules = st.sampled_from(
    (
        Cron("*/7 * * * *"),
        Cron("0 */5 * * *"),
        Cron("13 3,9,21 * * *"),
        Every(timedelta(minutes=50), START),
        AnyOf((Cron("30 4 * * *"), Every(timedelta(hours=6), START))),
        At(START + timedelta(hours=7, microseconds=500)),
    )
)


@st.composite
def tables(draw: st.DrawFn) -> Timetable:
    def some(name: str) -> tuple[Ranges, ...]:
        return tuple(Ranges(f"{name}-{i}", draw(ranges)) for i in range(draw(st.integers(0, 2))))

    mode = draw(st.sampled_from(OnExcluded))
    return Timetable(draw(schedules), Allowance(some("ex"), some("in"), mode))


@settings(max_examples=250, derandomize=True, deadline=None, database=None)
@given(tables(), st.integers(0, HOURS * 60), st.integers(0, HOURS * 60), st.integers(1, 5))
def test_next_missed_and_excluded_agree_with_a_walk(
    table: Timetable, low: int, length: int, limit: int
) -> None:
    end = START + timedelta(hours=4 * HOURS)
    launched, left_out = brute(table, end)
    after, until = at(low) - TICK * (low % 2), at(low + length)
    assert (
        table.next_after(after) == next((x for x in launched if x > after), None)
        or (table.next_after(after) or end) >= end
    )
    for found, expected in (
        (table.missed(after, until, limit), [x for x in launched if after < x <= until]),
        (table.excluded(after, until, limit), [x for x in left_out if after < x <= until]),
    ):
        if not expected:
            assert found is None
            continue
        assert found is not None
        assert found.count == len(expected)
        assert list(found.oldest) == expected[:limit]
        assert list(found.newest) == expected[-limit:]


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(tables())
def test_what_is_shown_is_what_is_launched_and_what_is_left_out(table: Timetable) -> None:
    shown = table.upcoming(START, 40)
    assert all(a.at < b.at for a, b in pairwise(shown))
    launched = [s.at for s in shown if not any(n.startswith("excluded:") for n in s.notes)]
    walked: list[datetime] = []
    slot = table.next_after(START)
    while slot is not None and shown and slot_of(slot) <= shown[-1].at:
        walked.append(slot_of(slot))
        slot = table.next_after(slot)
    assert launched == walked


HOURLY = Cron("0 * * * *")
CLOSED = Ranges("closed", minutes((90, 200), (200, 270)))


@pytest.mark.parametrize(
    ("allowance", "expected"),
    [
        pytest.param(
            Allowance((CLOSED,)),
            [(60, ()), (120, ("excluded:closed",)), (180, ("excluded:closed",)),
             (240, ("excluded:closed",)), (300, ())],
            id="left out",
        ),
        pytest.param(
            Allowance((CLOSED,), on_excluded=OnExcluded.NEXT_ALLOWED),
            [(60, ()), (270, ("moved_by_calendar:closed",)), (300, ())],
            id="several move to one second",
        ),
        pytest.param(
            Allowance(
                (Ranges("closed", minutes((90, 240))),), on_excluded=OnExcluded.NEXT_ALLOWED
            ),
            [(60, ()), (240, ()), (300, ())],
            id="moved onto a slot that is there anyway",
        ),
        pytest.param(
            Allowance(include=(Ranges("open", minutes((100, 190))),)),
            [(60, ("excluded:open",)), (120, ()), (180, ()), (240, ("excluded:open",))],
            id="only inside",
        ),
        pytest.param(
            Allowance((CLOSED,), (Ranges("open", minutes((60, 130), (290, 400))),)),
            [(60, ()), (120, ("excluded:closed",)), (180, ("excluded:closed",)),
             (240, ("excluded:closed",)), (300, ())],
            id="excluded wins over included",
        ),
    ],
)  # fmt: skip
def test_notes(allowance: Allowance, expected: list[tuple[int, tuple[str, ...]]]) -> None:
    shown = Timetable(HOURLY, allowance).upcoming(START, len(expected))
    assert [(s.at, s.notes) for s in shown] == [(at(m), notes) for m, notes in expected]


@pytest.mark.parametrize("mode", list(OnExcluded))
def test_what_is_forbidden_for_ever_has_no_slot(mode: OnExcluded) -> None:
    never = Timetable(HOURLY, Allowance(include=(Ranges("empty", ()),), on_excluded=mode))
    assert never.next_after(START) is None
    assert never.missed(START, at(600), 3) is None


def test_a_slot_is_moved_out_of_the_time_that_the_question_begins_in() -> None:
    table = Timetable(HOURLY, Allowance((CLOSED,), on_excluded=OnExcluded.NEXT_ALLOWED))
    assert table.next_after(at(250)) == at(270)
    assert table.next_after(at(270)) == at(300)
    found = table.missed(at(250), at(299), 5)
    assert found is not None
    assert found.oldest == (at(270),)


def test_the_end_of_the_allowed_time() -> None:
    table = Timetable(HOURLY, Allowance((CLOSED,)))
    assert table.allowed_until(at(60)) == at(90)
    assert table.allowed_until(at(300)).year == 9999
    assert Timetable(HOURLY).allowed_until(at(60)).year == 9999
    assert table.allowance is not None
    assert table.allowance.at(int(at(100).timestamp())) == Ruling(
        "closed", int(at(90).timestamp()), int(at(200).timestamp())
    )


DAILY = {"events": [{"start": "2026-01-01", "rrule": "FREQ=DAILY"}]}
WHOLE_DAY = {"windows": [{"from": "00:00", "to": "24:00"}]}
WEEK = {"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}
YEAR = {"yearly": [{"from": "01-01", "to": "12-31"}]}
NIGHTS = {"windows": [{"from": "22:00", "to": "06:00"}]}


def under(mode: OnExcluded, *documents: object, schedule: Schedule = HOURLY) -> Timetable:
    exclude = tuple(parse_calendar(d, name=f"c{i}") for i, d in enumerate(documents))
    return Timetable(schedule, Allowance(exclude, (), mode))


@pytest.mark.parametrize("mode", list(OnExcluded))
@pytest.mark.parametrize("document", [DAILY, WHOLE_DAY, WEEK, YEAR], ids=str)
def test_a_calendar_of_all_time_leaves_no_run(mode: OnExcluded, document: object) -> None:
    table = under(mode, document)
    assert table.next_after(START) is None
    assert table.missed(START, at(6000), 3) is None
    assert table.next_after(datetime(9998, 12, 1, tzinfo=UTC)) is None
    shown = table.upcoming(START, 3)
    assert len(shown) == (3 if mode is OnExcluded.SKIP else 0)


def test_a_search_ends_twenty_years_behind_the_first_forbidden_slot() -> None:
    def freeze(last: str) -> object:
        return {"dates": [{"from": "2026-03-01", "to": last}]}

    for mode in OnExcluded:
        assert under(mode, freeze("2046-02-27")).next_after(START) == datetime(
            2046, 2, 28, tzinfo=UTC
        )
        assert under(mode, freeze("2046-03-05")).next_after(START) is None
        # What a schedule alone has in the far future is no search under calendars.
        rare = At(datetime(2070, 1, 1, tzinfo=UTC))
        assert under(mode, YEAR, schedule=rare).next_after(START) is None
        assert under(mode, freeze("2026-03-09"), schedule=rare).next_after(START) == rare.instant


@dataclass
class Counted:
    """A calendar of single hours without end, which counts how often it is asked."""

    name: str = "hours"
    steps: int = 0
    asked: int = 0
    price: int = 0

    def stretch(self, at: int, /) -> Found:
        self.asked += 1
        self.steps += self.price
        start = at - at % 3600
        return Found(inside=True, start=start, end=start + 3600)


@pytest.mark.parametrize("mode", list(OnExcluded))
@pytest.mark.parametrize(
    "schedule", [HOURLY, AnyOf(tuple(Cron(f"{i} * * * *") for i in range(20)))], ids=["one", "any"]
)
def test_a_search_in_vain_asks_so_often_at_most(mode: OnExcluded, schedule: Schedule) -> None:
    hours = Counted()
    assert Timetable(schedule, Allowance((hours,), (), mode)).next_after(START) is None
    assert 160 <= hours.asked <= 2 * MAX_STRETCHES + 10


@pytest.mark.parametrize("mode", list(OnExcluded))
def test_rules_that_cost_too_much_end_a_search_with_an_error(mode: OnExcluded) -> None:
    hours = Counted(price=SEARCH_STEPS // 100)
    with pytest.raises(InvalidInputError) as caught:
        Timetable(HOURLY, Allowance((hours,), (), mode)).next_after(START)
    assert hours.asked < 110
    assert caught.value.problems[0].pointer == "/calendars"
    assert "50,000 steps" in caught.value.problems[0].message


def test_the_next_attempt_with_the_same_calendars_goes_on() -> None:
    """As a job's tick does: it has an error and tries again a minute later."""
    rules = [
        {"start": f"2026-01-01T{h:02d}:00", "duration": "1h", "rrule": "FREQ=DAILY"}
        for h in range(24)
    ]
    calendar = parse_calendar({"events": rules}, name="c", now=START)
    steps: list[int] = []
    for _ in range(6):
        table = Timetable(HOURLY, Allowance((calendar,)))
        before = calendar.steps
        try:
            found = table.next_after(START)
        except InvalidInputError:
            steps.append(calendar.steps - before)
        else:
            assert found is None
            break
    else:
        pytest.fail("no answer in six attempts")
    assert steps
    assert max(steps) < 1.5 * SEARCH_STEPS
    again = calendar.steps
    assert Timetable(HOURLY, Allowance((calendar,))).next_after(START) is None
    assert calendar.steps == again


def test_slots_of_a_long_forbidden_time_move_together() -> None:
    """Thousands of stretches side by side, that end: each is looked at a few times."""
    freeze = {"dates": [{"from": "2026-03-02", "to": "2027-02-28"}]}
    end = datetime(2027, 3, 1, 6, tzinfo=UTC)

    class Until(Counted):
        def stretch(self, at: int, /) -> Found:
            found = super().stretch(at)
            return Found(
                inside=at < int(end.timestamp()) - 3600 * 6, start=found.start, end=found.end
            )

    hours = Until()
    calendar = parse_calendar(freeze, name="freeze")
    table = Timetable(Cron("0 12 * * *"), Allowance((hours, calendar), (), OnExcluded.NEXT_ALLOWED))
    low = datetime(2027, 2, 1, tzinfo=UTC)
    found = table.missed(low, end, 5)
    assert found is not None
    assert found.oldest == (datetime(2027, 3, 1, tzinfo=UTC),)
    assert hours.asked < 6 * MAX_STRETCHES

"""Schedules under calendars: against a walk over each slot, and by named rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickrail.core.schedule import AnyOf, At, Cron, Every, Schedule, next_after
from tickrail.core.timetable import Allowance, OnExcluded, Ruling, Times, Timetable
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
    slot = next_after(schedule, START - TICK)
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
        if allowed[minute]:
            launched.add(slot)
        elif table.allowance.on_excluded is OnExcluded.SKIP:
            left_out.append(slot)
        elif True in allowed[minute:]:
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
    while slot is not None and shown and slot <= shown[-1].at:
        walked.append(slot)
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

"""The day of the load tests: whose jobs, when they are due, and that their schedules say so."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from loadtest.shape import (
    MOST,
    Pattern,
    busiest,
    corpus,
    day_of,
    midnight,
    schedule_of,
    short_day,
    shorten,
    split,
)
from tests.support.schedules import schedule

from tickrail.core.schedule import next_after

DAY = midnight("2026-01-07")
START = datetime(2026, 3, 4, 10, 59, 43, tzinfo=UTC)


def row(expression: str, zone: str = "", dialect: str = "unix5", seen: int = 1) -> dict[str, str]:
    return {
        "expression": expression,
        "dialect": dialect,
        "time_zone": zone,
        "kind": "crontab",
        "seen": str(seen),
    }


def offsets_of(document: object, until: datetime) -> list[int]:
    """When a schedule is due, by the product's own reckoning."""
    s, found = schedule(document), []
    at = next_after(s, START - timedelta(seconds=1))
    while at is not None and at < until:
        found.append(int((at - START).total_seconds()))
        at = next_after(s, at)
    return found


def test_a_pattern_has_the_slots_of_its_day() -> None:
    (found,) = day_of([row("30 2 * * *", seen=7)], DAY)
    assert found == Pattern("30 2 * * *", "UTC", 7, (9000,))


def test_a_pattern_is_due_by_the_clock_of_its_zone() -> None:
    (found,) = day_of([row("30 2 * * *", "Asia/Tokyo")], DAY)
    assert found.slots == (17 * 3600 + 1800,)


@pytest.mark.parametrize(
    "left_out",
    [
        row("@once", dialect="at-name"),
        row("0 30 * * *"),
        row("0 0 1 * *"),  # not on the seventh
        row("*/10 * * * * *", dialect="spring6"),  # more than once a minute
        row("rate(5 minutes)", dialect="eventbridge"),
    ],
)
def test_what_names_no_slots_of_a_day_is_left_out(left_out: dict[str, str]) -> None:
    assert day_of([left_out], DAY) == []


def test_once_a_minute_is_the_most() -> None:
    (found,) = day_of([row("* * * * *")], DAY)
    assert len(found.slots) == MOST


def test_the_corpus_has_its_peak_at_midnight() -> None:
    found = corpus(DAY)
    assert len(found) > 300
    count = Counter(slot for p in found for slot in p.slots for _ in range(p.seen))
    assert count.most_common(1)[0][0] == 0


@pytest.mark.parametrize(
    ("slots", "seconds", "offsets"),
    [
        ((0, 3600, 7200), 3600, (0, 150, 300)),
        ((0, 60, 120), 3600, (0, 3, 5)),  # 2.5 s apart: rounded up
        ((0, 60, 120, 86340), 24, (0, 1, 24)),  # those of one second are one
        ((), 60, ()),
    ],
)
def test_a_day_is_made_short(
    slots: tuple[int, ...], seconds: int, offsets: tuple[int, ...]
) -> None:
    assert shorten(slots, seconds) == offsets


@pytest.mark.parametrize(
    "expression",
    ["* * * * *", "*/5 * * * *", "0 * * * *", "0 0 * * *", "17 3,9,21 * * *", "*/7 1-5 * * *"],
)
@pytest.mark.parametrize("seconds", [30, 60, 3600])
def test_the_schedules_are_due_at_the_offsets_and_at_no_others(
    expression: str, seconds: int
) -> None:
    (pattern,) = day_of([row(expression)], DAY)
    offsets = [o for o in shorten(pattern.slots, seconds) if o < seconds]
    made = schedule_of(offsets, START)
    said = [offsets_of(document, START + timedelta(seconds=3600)) for document, _ in made]
    assert said == [of for _, of in made]
    assert sorted(o for of in said for o in of) == offsets


def test_a_schedule_of_too_many_parts_is_divided() -> None:
    offsets = [60 * minute + (minute * 7) % 59 for minute in range(59)]
    made = schedule_of(offsets, START)
    assert len(made) == 2
    assert sorted(o for _, of in made for o in of) == offsets
    for document, of in made:
        assert offsets_of(document, START + timedelta(hours=1)) == of


def test_an_offset_beyond_the_hour_is_refused() -> None:
    with pytest.raises(ValueError, match="3600 s is not within"):
        schedule_of([0, 3600], START)


def test_jobs_are_drawn_as_often_as_their_expressions_were_met() -> None:
    patterns = [Pattern("often", "UTC", 90, (0,)), Pattern("rare", "UTC", 10, (43200,))]
    jobs = short_day(patterns, 1000, 60, START, random.Random(1))
    count = Counter(offset for job in jobs for offset in job.offsets)
    assert sum(count.values()) == 1000
    assert 860 < count[0] < 940
    assert count[30] == 1000 - count[0]
    assert busiest(jobs) == (0, count[0])


def test_the_same_seed_makes_the_same_day() -> None:
    patterns = corpus(DAY)
    one, two = (short_day(patterns, 500, 60, START, random.Random(3)) for _ in range(2))
    assert one == two
    assert short_day(patterns, 500, 60, START, random.Random(4)) != one


@pytest.mark.parametrize("seconds", [0, 3601])
def test_a_day_longer_than_an_hour_is_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="is not within"):
        short_day([Pattern("x", "UTC", 1, (0,))], 1, seconds, START, random.Random(1))


def test_a_day_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no expression is due"):
        short_day([], 1, 60, START, random.Random(1))


@pytest.mark.parametrize(
    ("total", "parts", "shares"),
    [(11, 3, [6, 3, 2]), (100, 1, [100]), (3, 3, [1, 1, 1]), (1, 3, [1, 1, 1])],
)
def test_tenants_are_of_unequal_size(total: int, parts: int, shares: list[int]) -> None:
    assert split(total, parts) == shares


def test_a_date_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        midnight("the seventh")

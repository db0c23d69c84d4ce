"""Cases of our own, of the kinds that are known to go wrong.

`tests/data/time_cases.csv`: what a case is about, the expression, its zone, gap and fold, from
when, and the next due instants. They were worked out by brute force and looked at one by one.
"""

from __future__ import annotations

from uuid import UUID, uuid5

import pytest
from tests.support.schedules import at, cron, fires, rows, schedule

from tickrail.core.cron import CronExpression
from tickrail.core.schedule import Cron, matches, next_after

CASES = rows("time_cases.csv")


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_case(case: dict[str, str]) -> None:
    s = cron(case["expression"], case["time_zone"], gap=case["gap"], fold=case["fold"])
    expected = case["expected"].split()
    found = fires(s, at(case["start"]), len(expected))
    assert [
        text.replace(":00Z", "Z") if text[16:] == ":00Z" else text for text in found
    ] == expected
    assert isinstance(s, Cron)
    assert all(matches(s, at(text)) for text in expected)


def test_there_are_many() -> None:
    assert len(CASES) > 80
    assert len({case["time_zone"] for case in CASES}) > 20


@pytest.mark.parametrize(
    ("field", "low", "high", "count"),
    [
        pytest.param("H(7-7)", 7, 7, 1, id="a range of one"),
        pytest.param("H(50-59)", 50, 59, 1, id="the range's end is reached"),
        pytest.param("H(0-59)/20", 0, 59, 3, id="the whole field by a step"),
        pytest.param("H(10-29)/7", 10, 29, 2, id="a step that does not divide the range"),
        pytest.param("H(10-12)/50", 10, 12, 1, id="a step wider than the range"),
        pytest.param("H/30,45", 0, 59, 2, id="beside a plain value"),
    ],
)
def test_hashed_ranges(field: str, low: int, high: int, count: int) -> None:
    seen = 0
    for n in range(2000):
        mask = CronExpression.parse(f"{field} 0 * * *", hash_key=uuid5(UUID(int=2), str(n))).minutes
        assert mask.bit_count() >= count
        assert mask >> high + 1 == 0
        assert mask & (1 << low) - 1 == 0
        seen |= mask
    assert seen == (1 << high + 1) - (1 << low)


def test_hashes_of_one_job_differ_by_field_and_hold_in_a_list() -> None:
    masks = set()
    for n in range(200):
        e = CronExpression.parse("H,H(0-9) H,3 H(1-7),L H H", hash_key=_id(n))
        assert e.minutes.bit_count() in {1, 2}
        assert e.hours >> 3 & 1
        assert e.days.last == [0]
        assert e.days.mask & 0b1111_1110
        masks.add((e.minutes, e.hours, e.days.mask, e.months, e.weekdays.mask))
    assert len(masks) > 190


def _id(n: int) -> UUID:
    return uuid5(UUID(int=3), str(n))


@pytest.mark.parametrize("on", ["last", "31", "1st sun", "last sun"])
def test_a_calendar_interval_is_the_cron_that_says_the_same(on: str) -> None:
    """Through the changes of two years, under every rule."""
    forms = {"last": "L * *", "31": "31 * *", "1st sun": "* * 0#1", "last sun": "* * 0L"}
    for zone in ("Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca"):
        for gap, fold in (("after", "first"), ("shift", "both"), ("skip", "second")):
            more = {"time_zone": zone, "gap": gap, "fold": fold}
            calendar = {"unit": "month", "on": int(on) if on.isdigit() else on, "at": "02:15"}
            one = schedule({"calendar": calendar, **more})
            other = schedule({"cron": f"15 2 {forms[on]}", **more})
            instant = at("2026-01-01T00:00Z")
            for _ in range(30):
                found = next_after(one, instant)
                assert found == next_after(other, instant)
                assert found is not None
                instant = found

"""Schedule documents, durations, words, lint, calendars, and what was missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest
from tests.support.schedules import at, cron, days, fires, refused, schedule

from tickrail.core.definition import Plan
from tickrail.core.durations import format_duration, parse_duration
from tickrail.core.lint import lint
from tickrail.core.schedule import (
    At,
    Cron,
    Schedule,
    latest_at_or_before,
    missed,
    next_after,
    parse_schedule,
    schedule_document,
    slot_of,
    upcoming,
)
from tickrail.core.timetable import CalendarUse, OnExcluded
from tickrail.core.words import in_words, plan_words

NOW = datetime(2026, 3, 2, 10, 0, 0, 250_000, tzinfo=UTC)
JOB = UUID("01920000-0000-7000-8000-000000000001")
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("30s", 30, "30s"),
        ("5m", 300, "5m"),
        ("1h30m", 5400, "1h30m"),
        ("2d", 172_800, "2d"),
        ("90s", 90, "1m30s"),
        ("PT5M", 300, "5m"),
        ("P1DT2H", 93_600, "1d2h"),
        ("P2W", 1_209_600, "14d"),
        ("1.5s", 1.5, "1.5s"),
        ("250ms", 0.25, "0.25s"),
        ("0s", 0, "0s"),
    ],
)
def test_duration(text: str, seconds: float, shown: str) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert format_duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    "text", ["", "5", "m5", "5x", "-5m", "P", "PT", "1h1d", "٣s", "9" * 9 + "d"]
)
def test_refused_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("document", "canonical"),
    [
        (
            {"cron": " 0 2 * * * "},
            {"cron": "0 2 * * *", "time_zone": "UTC", "gap": "after", "fold": "first"},
        ),
        (
            {"every": "90m"},
            {
                "every": "1h30m",
                "anchor": "2026-03-02T10:00:00Z",
                "measured_from": "schedule",
            },
        ),
        (
            {"calendar": {"every": 2, "unit": "week", "on": 7, "at": "09:00"}},
            {
                "calendar": {
                    "every": 2,
                    "unit": "week",
                    "on": "sun",
                    "at": "09:00",
                    "anchor": "2026-03-02",
                },
                "time_zone": "UTC",
                "gap": "after",
                "fold": "first",
            },
        ),
        ({"at": "2026-03-02T12:00:00.5+01:00"}, {"at": "2026-03-02T11:00:00.500000Z"}),
        (
            {"at": "2026-10-25T02:30:00", "time_zone": "Europe/Berlin", "fold": "second"},
            {
                "at": "2026-10-25T02:30:00",
                "time_zone": "Europe/Berlin",
                "gap": "after",
                "fold": "second",
            },
        ),
    ],
)
def test_canonical_document(document: object, canonical: object) -> None:
    found = schedule(document, now=NOW)
    assert schedule_document(found) == canonical
    assert parse_schedule(canonical, job=None, now=NOW + timedelta(hours=1), stored=True) == found


def test_null_is_by_hand_only() -> None:
    assert parse_schedule(None, job=JOB, now=NOW) is None
    assert in_words(None) == "By hand only"


@pytest.mark.parametrize(
    ("document", "pointer", "text"),
    [
        (5, "/schedule", "is a number"),
        ({}, "/schedule", "says no time"),
        ({"cronn": "0 0 * * *"}, "/schedule/cronn", "not a known field"),
        ({"rrule": "FREQ=DAILY"}, "/schedule/rrule", "not a known field"),
        ({"time_zone": "UTC"}, "/schedule", "says no time"),
        ({"cron": "0 0 * * *", "every": "5m"}, "/schedule", "has cron and every together"),
        ({"cron": 5}, "/schedule/cron", "is a number"),
        ({"cron": "0 0 * * *", "zone": "UTC"}, "/schedule/zone", "not a known field"),
        ({"cron": "0 0 * * *", "time_zone": "Mars"}, "/schedule/time_zone", "not a time zone"),
        ({"cron": "0 0 * * *", "gap": "jump"}, "/schedule/gap", "'jump'"),
        ({"every": "0s"}, "/schedule/every", "is 0s"),
        ({"every": "1.5s"}, "/schedule/every", "is 1.5s"),
        ({"every": 5}, "/schedule/every", "is a number"),
        ({"every": "5m", "anchor": "noon"}, "/schedule/anchor", "'noon'"),
        ({"every": "5m", "measured_from": "start"}, "/schedule/measured_from", "'start'"),
        ({"every": "5m", "time_zone": "UTC"}, "/schedule/time_zone", "no meaning beside every"),
        ({"at": "soon"}, "/schedule/at", "'soon'"),
        ({"at": "2020-01-01T00:00:00Z"}, "/schedule/at", "has no run after 2026-03-02T10:00:00Z"),
        (
            {"at": "2026-04-01T00:00:00Z", "gap": "skip"},
            "/schedule/gap",
            "no meaning beside an instant with an offset",
        ),
        ({"at": "1960-01-01T00:00:00"}, "/schedule/at", "is '1960-01-01T00:00:00'"),
        (
            {"any_of": [{"cron": "0 0 * * *"}], "time_zone": "UTC"},
            "/schedule/time_zone",
            "no meaning beside any_of",
        ),
        (
            {"at": "2026-03-29T02:30", "time_zone": "Europe/Berlin", "gap": "skip"},
            "/schedule/at",
            "does not exist in Europe/Berlin",
        ),
        ({"any_of": []}, "/schedule/any_of", "is empty"),
        ({"any_of": {}}, "/schedule/any_of", "is {}"),
        ({"any_of": [{}] * 51}, "/schedule/any_of", "has 51 schedules"),
        ({"any_of": [{"cron": "x"}]}, "/schedule/any_of/0/cron", "has 1 field"),
        ({"any_of": [{"any_of": []}]}, "/schedule/any_of/0", "any_of again"),
        ({"any_of": [{"at": "2026-04-01T00:00:00.5Z"}]}, "/schedule/any_of", "fraction"),
        ({"calendar": {"unit": "day"}}, "/schedule/calendar/at", "is missing"),
        ({"calendar": {"at": "09:00"}}, "/schedule/calendar/unit", "is missing"),
        ({"calendar": {"unit": "day", "at": "9:00"}}, "/schedule/calendar/at", "'9:00' is no"),
        (
            {"calendar": {"unit": "week", "at": "09:00"}},
            "/schedule/calendar/on",
            "is missing",
        ),
        (
            {"calendar": {"unit": "month", "on": 32, "at": "09:00"}},
            "/schedule/calendar/on",
            "is 32",
        ),
        (
            {"calendar": {"unit": "month", "on": [1, "last"], "at": "09:00"}},
            "/schedule/calendar/on",
            'is [1, "last"]',
        ),
        (
            {"calendar": {"unit": "year", "on": "02-30", "at": "09:00"}},
            "/schedule/calendar/on",
            "is '02-30'",
        ),
        (
            {"calendar": {"every": 0, "unit": "day", "at": "09:00"}},
            "/schedule/calendar/every",
            "is 0",
        ),
        ({"cron": "a\0b"}, "/schedule/cron", "U+0000"),
    ],
)
def test_refused_document(document: object, pointer: str, text: str) -> None:
    (problem,) = refused(document, now=NOW)
    assert problem.pointer == pointer
    assert text in problem.message
    assert problem.expected or "exist" in problem.message


def test_every_problem_is_named_at_once() -> None:
    found = refused({"cron": "61 * * * *", "time_zone": "europe/berlin", "fold": "no", "x": 1})
    assert {p.pointer.rpartition("/")[2] for p in found} == {"cron", "time_zone", "fold", "x"}
    assert any("Europe/Berlin" in p.expected for p in found)


def test_jobs_share_what_has_no_hash() -> None:
    assert schedule({"cron": "0 0 * * THU"}, job=JOB) == cron("0 0 * * THU")
    hashed = schedule({"cron": "H * * * *"}, job=JOB)
    assert isinstance(hashed, Cron)
    assert hashed.hash_key == JOB
    assert "hashed" in [w.code for w in lint(hashed, NOW)]


def test_interval_from_schedule_and_from_completion() -> None:
    anchor = at("2026-03-02T10:00:00Z")
    grid = schedule({"every": "10m", "anchor": "2026-03-02T10:00:00.9Z"})
    assert next_after(grid, anchor - SECOND) == anchor
    assert next_after(grid, anchor) == anchor + timedelta(minutes=10)
    assert next_after(grid, anchor + timedelta(minutes=25)) == anchor + timedelta(minutes=30)
    ended = schedule({"every": "10m", "anchor": anchor.isoformat(), "measured_from": "completion"})
    assert next_after(ended, anchor - SECOND) == anchor
    assert next_after(ended, NOW) == NOW.replace(microsecond=0) + SECOND + timedelta(minutes=10)
    assert missed(ended, anchor, anchor + timedelta(hours=2), 5).count == 1  # type: ignore[union-attr]


def test_one_off_keeps_its_fraction() -> None:
    s = schedule({"at": "2026-03-03T00:00:00.75Z"}, now=NOW)
    due = at("2026-03-03T00:00:00.75Z")
    assert next_after(s, NOW) == due
    assert slot_of(due) == at("2026-03-03T00:00:00Z")
    assert next_after(s, due) is None


def test_local_one_off_at_both_passes() -> None:
    document = {"at": "2026-10-25T02:30", "time_zone": "Europe/Berlin"}
    both = schedule(document | {"fold": "both"})
    assert fires(both, NOW, 3) == ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]
    assert fires(schedule(document), NOW, 3) == ["2026-10-25T00:30:00Z"]
    gap = schedule({"at": "2026-03-29T02:30", "time_zone": "Europe/Berlin"})
    (slot,) = upcoming(gap, NOW, 2)
    assert (slot.local, slot.notes) == ("2026-03-29T03:00:00+02:00", ("moved_by_gap",))
    there = schedule({"at": "2026-10-26T02:30", "time_zone": "Europe/Berlin", "fold": "both"})
    assert isinstance(there, At)


def test_any_of_is_one_slot_where_parts_meet() -> None:
    s = schedule({"any_of": [{"cron": "0 * * * *"}, {"cron": "0,30 10 * * *"}]})
    found = fires(s, at("2026-03-02T09:30Z"), 4)
    assert [text[11:16] for text in found] == ["10:00", "10:30", "11:00", "12:00"]
    run = missed(s, at("2026-03-02T00:00Z"), at("2026-03-03T00:00Z"), 2)
    assert run is not None
    assert (run.count, run.exact) == (25, True)


def test_notes_of_upcoming_runs() -> None:
    s = cron("30 2 * * *", "Europe/Berlin", fold="both")
    slots = upcoming(s, at("2026-10-24T12:00Z"), 3)
    assert [slot.notes for slot in slots] == [("first_pass",), ("second_pass",), ()]
    assert slots[1].local == "2026-10-25T02:30:00+01:00"
    (moved,) = upcoming(s, at("2026-03-28T12:00Z"), 1)
    assert moved.notes == ("moved_by_gap",)


@pytest.mark.parametrize(
    ("calendar", "start", "expected"),
    [
        ({"unit": "day", "every": 3, "anchor": "2026-03-02"}, "03-02", ["03-05", "03-08"]),
        ({"unit": "week", "on": "fri"}, "03-02", ["03-06", "03-13"]),
        (
            {"unit": "week", "every": 2, "on": "fri", "anchor": "2026-03-09"},
            "03-02",
            ["03-13", "03-27"],
        ),
        ({"unit": "month", "on": 31}, "03-31", ["05-31", "07-31", "08-31"]),
        ({"unit": "month", "on": "last"}, "02-01", ["02-28", "03-31", "04-30"]),
        ({"unit": "month", "on": "2nd tue"}, "03-02", ["03-10", "04-14"]),
        ({"unit": "month", "on": "5th mon"}, "03-02", ["03-30", "06-29"]),
        ({"unit": "month", "on": "last Fri"}, "03-02", ["03-27", "04-24"]),
        (
            {"unit": "month", "every": 3, "on": 1, "anchor": "2026-02-01"},
            "03-02",
            ["05-01", "08-01"],
        ),
        ({"unit": "year", "on": "03-15"}, "03-02", ["03-15", "03-15"]),
        ({"unit": "year", "on": "last"}, "03-02", ["12-31", "12-31"]),
        ({"unit": "year", "on": 1}, "03-02", ["01-01", "01-01"]),
        ({"unit": "year", "on": "02-29"}, "03-02", ["02-29", "02-29"]),
    ],
)
def test_calendar_interval(calendar: dict[str, object], start: str, expected: list[str]) -> None:
    s = schedule({"calendar": calendar | {"at": "00:00"}})
    found = days(s, at(f"2026-{start}T00:00Z"), len(expected))
    assert [day[5:] for day in found] == expected


_EACH_PERIOD: dict[str, dict[object, Callable[[date], object]]] = {
    "day": {None: bool},
    "week": {"fri": lambda day: day.weekday() == 4, "mon": lambda day: day.weekday() == 0},
    "month": {
        1: lambda day: day.day == 1,
        28: lambda day: day.day == 28,
        "last": lambda day: (day + timedelta(days=1)).day == 1,
        "2nd tue": lambda day: day.weekday() == 1 and 8 <= day.day <= 14,
    },
    "year": {"03-15": lambda day: (day.month, day.day) == (3, 15)},
}


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize(
    ("unit", "on"), [(unit, on) for unit, rules in _EACH_PERIOD.items() for on in rules]
)
def test_an_interval_begins_with_the_first_day_that_is_not_before_its_anchor(
    unit: str, on: object, every: int
) -> None:
    """Against a walk over the days: every n-th of those that match, from the anchor on."""
    matches = _EACH_PERIOD[unit][on]
    for shift in range(0, 400, 9):
        anchor = date(2026, 12, 5) + timedelta(days=shift)
        walk = (anchor + timedelta(days=i) for i in range(366 * 12))
        wanted = [day.isoformat() for day in walk if matches(day)][::every][:2]
        calendar = {"unit": unit, "every": every, "at": "09:00", "anchor": anchor.isoformat()}
        s = schedule({"calendar": calendar | ({} if on is None else {"on": on})})
        assert days(s, at("2026-11-01T00:00Z"), 2) == wanted


def test_calendar_interval_follows_gap_and_fold() -> None:
    calendar = {"unit": "day", "at": "02:30"}
    document = {"calendar": calendar, "time_zone": "Europe/Berlin"}
    start = at("2026-03-28T12:00Z")
    assert fires(schedule(document), start, 1) == ["2026-03-29T01:00:00Z"]
    assert fires(schedule(document | {"gap": "shift"}), start, 1) == ["2026-03-29T01:30:00Z"]
    assert fires(schedule(document | {"gap": "skip"}), start, 1) == ["2026-03-30T00:30:00Z"]


@pytest.mark.parametrize(
    "s",
    [
        cron("* * * * * *", "Europe/Berlin"),
        cron("*/7 3-9 * 2-11 1-5", "America/New_York"),
        cron("30 2 L * *", "Europe/Berlin", gap="shift", fold="both"),
        schedule({"every": "17s", "anchor": "2020-01-01T00:00:00Z"}),
        schedule({"calendar": {"unit": "day", "at": "02:30"}, "time_zone": "Europe/Berlin"}),
    ],
    ids=str,
)
def test_missed_a_year_costs_little(s: Schedule) -> None:
    low, high = at("2025-03-02T10:00Z"), at("2026-03-02T10:00:17Z")
    started = time.process_time()
    found = missed(s, low, high, 10)
    assert time.process_time() - started < 0.1
    assert found is not None
    assert len(found.oldest) == len(found.newest) == 10
    assert found.first == next_after(s, low)
    assert latest_at_or_before(s, high, low) == found.last
    after = next_after(s, found.last)
    assert after is None or after > high
    assert next_after(s, found.newest[-2]) == found.last
    half = at("2025-09-01T00:00Z")
    one, two = missed(s, low, half, 1), missed(s, half, high, 1)
    assert one is not None
    assert two is not None
    assert one.count + two.count == found.count


def test_missed_counts_seconds_exactly() -> None:
    found = missed(cron("* * * * * *"), at("2025-01-01T00:00Z"), at("2026-01-01T00:00Z"), 1)
    assert found is not None
    assert found.count == 365 * 86_400
    assert missed(cron("0 0 1 1 *"), at("2025-02-01T00:00Z"), at("2025-03-01T00:00Z"), 1) is None


WORDS: list[tuple[object, str]] = [
    (
        {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
        "At 02:00 every day in Europe/Berlin",
    ),
    ({"cron": "* * * * *"}, "Every minute in UTC"),
    (
        {"cron": "*/15 9-17 * * mon-fri"},
        "Every 15 minutes from 09:00 to 17:59 on Monday to Friday in UTC",
    ),
    ({"cron": "0 9 13 * FRI"}, "At 09:00 on day 13 of the month or on Friday in UTC"),
    ({"cron": "*/10 * * * * *"}, "Every 10 seconds in UTC"),
    ({"cron": "0 0 L * *"}, "At 00:00 on the last day of the month in UTC"),
    (
        {"cron": "0 0 * 1,6 1#2"},
        "At 00:00 on the second Monday of January and June in UTC",
    ),
    ({"cron": "0 0 6 2 2 ? 2027"}, "At 06:00 on day 2 of February in 2027 in UTC"),
    ({"cron": "0 8 * * 1-5"}, "At 08:00 from Monday to Friday in UTC"),
    ({"cron": "0 8 * * FRI-MON"}, "At 08:00 on Monday and Friday to Sunday in UTC"),
    ({"cron": "0 8 * * 0,6"}, "At 08:00 on Saturday and Sunday in UTC"),
    ({"cron": "0 9-17 * * 1-5"}, "Every hour from 09:00 to 17:00 on Monday to Friday in UTC"),
    ({"cron": "48 1-23/3 * * *"}, "Every 3 hours from 01:48 to 22:48 every day in UTC"),
    ({"cron": "30 */2 * * *"}, "Every 2 hours at minute 30 in UTC"),
    ({"cron": "15 * * * *"}, "Every hour at minute 15 in UTC"),
    ({"cron": "*/7 * * * *"}, "Every 7th minute from 0 to 56 of every hour in UTC"),
    ({"cron": "0 0 */2 * *"}, "At 00:00 on every 2nd day from 1 to 31 of the month in UTC"),
    ({"cron": "* 22-2 * * *"}, "Every minute in the hours 00 to 02, 22 and 23 every day in UTC"),
    ({"cron": "* * 3 * * *"}, "Every second from 03:00 to 03:59 every day in UTC"),
    ({"cron": "5 * 3 * * *"}, "At second 5 of every minute from 03:00 to 03:59 every day in UTC"),
    (
        {"cron": "*/15 */30 3 * * *"},
        "Every 15 seconds in minutes 0 and 30 from 03:00 to 03:59 every day in UTC",
    ),
    ({"cron": "10 */5 * * * *"}, "At second 10 of every 5 minutes in UTC"),
    ({"cron": "0 0 1 1 *"}, "At 00:00 on day 1 of January in UTC"),
    ({"cron": "0 0 L-3 2 *"}, "At 00:00 on the day 3 days before the last day of February in UTC"),
    (
        {"cron": "0 0 1,15W * *"},
        "At 00:00 on day 1 of the month and the working day nearest to day 15 of the month in UTC",
    ),
    (
        {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "gap": "skip", "fold": "both"},
        (
            "At 02:30 every day in Europe/Berlin (left out where the clock skips it,"
            " at both passes where it comes twice)"
        ),
    ),
    (
        {"calendar": {"unit": "day", "at": "02:30"}, "gap": "shift", "fold": "second"},
        (
            "At 02:30 every day in UTC (later by the gap where the clock skips it,"
            " at the second pass where it comes twice)"
        ),
    ),
    (
        {"cron": "*/5 * * * *", "time_zone": "Europe/Berlin", "gap": "skip"},
        "Every 5 minutes in Europe/Berlin",
    ),
    (
        {"at": "2027-10-31T02:30:00", "time_zone": "Europe/Berlin", "fold": "both"},
        "Once at 2027-10-31 02:30:00 in Europe/Berlin, at both passes",
    ),
    (
        {"every": "15m", "anchor": "2026-01-01T00:00:00Z"},
        "Every 15 minutes from 2026-01-01 00:00:00 UTC",
    ),
    ({"every": "1h", "measured_from": "completion"}, "Every hour after the last run ended"),
    (
        {"calendar": {"unit": "month", "on": "last", "at": "02:00"}},
        "At 02:00 on the last day of every month in UTC",
    ),
    (
        {"calendar": {"unit": "week", "on": "fri", "at": "02:00"}},
        "At 02:00 every Friday in UTC",
    ),
    ({"at": "2026-04-01T00:00:00Z"}, "Once at 2026-04-01 00:00:00 UTC"),
    (
        {"any_of": [{"cron": "0 1 * * *"}, {"cron": "@hourly"}]},
        "At 01:00 every day in UTC; and every hour in UTC",
    ),
]


@pytest.mark.parametrize(("document", "words"), WORDS)
def test_words(document: object, words: str) -> None:
    assert in_words(schedule(document)) == words


def test_words_of_a_plan_tell_what_bounds_it() -> None:
    hourly = Plan(schedule=schedule({"cron": "@hourly"}))
    assert plan_words(Plan()) == "By hand only"
    assert plan_words(hourly) == "Every hour in UTC"
    bounded = replace(
        hourly,
        starts_at=at("2027-01-01T00:00Z"),
        ends_at=at("2027-02-01T00:00Z"),
        max_launches=1,
        calendars=CalendarUse(("holidays", "freeze"), ("office",), OnExcluded.NEXT_ALLOWED),
    )
    assert plan_words(bounded) == (
        "Every hour in UTC, only in office, not in holidays and freeze but at the next time that"
        " is allowed, not before 2027-01-01 00:00:00 UTC, not after 2027-02-01 00:00:00 UTC,"
        " 1 time at most"
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"cron": "* 3 * * *"}, ["every_minute"]),
        ({"cron": "0 0 1 * 1"}, ["either_day"]),
        ({"cron": "0 0 12 ? * 2"}, ["weekday_numbers"]),
        ({"cron": "0 0 12 ? * MON"}, []),
        ({"cron": "*/15 * * * *", "gap": "skip"}, ["no_effect"]),
        ({"cron": "0 0 */31 * *"}, ["wide_step"]),
        ({"cron": "0 0 */30 * *"}, []),
        ({"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}, ["in_gap", "in_fold"]),
        ({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}, []),
        ({"calendar": {"unit": "month", "on": 31, "at": "12:00"}}, ["short_months"]),
        ({"any_of": [{"cron": "* 3 * * *"}]}, ["every_minute"]),
    ],
)
def test_lint(document: object, expected: list[str]) -> None:
    assert [w.code for w in lint(schedule(document), NOW)] == expected

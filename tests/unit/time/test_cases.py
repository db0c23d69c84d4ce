"""The hard cases of cron and time, each under its number."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

import pytest
from tests.support.cron_oracle import zone_info
from tests.support.schedules import at, cron, days, fires, refused, schedule

from tickrail.core.cron import CronExpression
from tickrail.core.lint import lint
from tickrail.core.schedule import Cron, Schedule, matches, next_after, upcoming

NEW_YORK = "America/New_York"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a01_spring_gap_fixed_time() -> None:
    start = at("2026-03-07T12:00", NEW_YORK)
    assert fires(cron("30 2 * * *", NEW_YORK), start, 3) == [
        "2026-03-08T07:00:00Z",
        "2026-03-09T06:30:00Z",
        "2026-03-10T06:30:00Z",
    ]
    assert fires(cron("0 2 * * *", NEW_YORK), at("2026-03-08T01:30", NEW_YORK), 2) == [
        "2026-03-08T07:00:00Z",
        "2026-03-09T06:00:00Z",
    ]
    assert fires(cron("30 2 * * *", NEW_YORK, gap="shift"), start, 1) == ["2026-03-08T07:30:00Z"]
    assert fires(cron("30 2 * * *", NEW_YORK, gap="skip"), start, 1) == ["2026-03-09T06:30:00Z"]


def test_a03_wildcard_over_the_gap_goes_forward() -> None:
    assert fires(cron("*/15 * * * *", NEW_YORK), at("2026-03-08T06:40:00Z"), 4) == [
        "2026-03-08T06:45:00Z",
        "2026-03-08T07:00:00Z",
        "2026-03-08T07:15:00Z",
        "2026-03-08T07:30:00Z",
    ]
    assert fires(cron("30 * * * *", NEW_YORK), at("2026-03-08T05:45:00Z"), 3) == [
        "2026-03-08T06:30:00Z",
        "2026-03-08T07:30:00Z",
        "2026-03-08T08:30:00Z",
    ]


@pytest.mark.parametrize("expression", ["*/15 * * * *", "30 * * * *", "30 2 * * *", "0 1,2 * * *"])
@pytest.mark.parametrize("change", ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"])
def test_a03_next_is_after_its_argument(expression: str, change: str) -> None:
    s = cron(expression, NEW_YORK)
    for minute in range(-180, 181):
        start = at(change) + timedelta(minutes=minute)
        found = next_after(s, start)
        assert found is not None
        assert found > start


def test_a05_autumn_repeat_hourly_keeps_real_time() -> None:
    zone = "America/Los_Angeles"
    assert fires(cron("0 * * * *", zone), at("2026-11-01T00:30", zone), 4) == [
        f"2026-11-01T{hour:02d}:00:00Z" for hour in (8, 9, 10, 11)
    ]
    start = at("2026-11-01T04:59:59Z")
    found = [slot.at for slot in upcoming(cron("*/15 * * * *", NEW_YORK), start, 10)]
    assert found == [at("2026-11-01T05:00Z") + i * timedelta(minutes=15) for i in range(10)]


def test_a07_a_list_is_still_fixed_time() -> None:
    start = at("2026-11-01T00:30", NEW_YORK)
    assert fires(cron("0,30 1 * * *", NEW_YORK), start, 5) == [
        "2026-11-01T05:00:00Z",
        "2026-11-01T05:30:00Z",
        "2026-11-02T06:00:00Z",
        "2026-11-02T06:30:00Z",
        "2026-11-03T06:00:00Z",
    ]
    both = fires(cron("0,30 1 * * *", NEW_YORK, fold="both"), start, 4)
    assert [text[11:16] for text in both] == ["05:00", "05:30", "06:00", "06:30"]
    assert fires(cron("0 1 * * *", NEW_YORK, fold="second"), start, 1) == ["2026-11-01T06:00:00Z"]


def test_a09_half_hour_repeat_fixed_time() -> None:
    zone = "Australia/Lord_Howe"
    assert fires(cron("45 1 * * *", zone), at("2026-04-04T12:00", zone), 2) == [
        "2026-04-04T14:45:00Z",
        "2026-04-05T15:15:00Z",
    ]


def test_a11_half_hour_repeat_wildcard() -> None:
    zone = "Australia/Lord_Howe"
    found = fires(cron("*/30 * * * *", zone), at("2026-04-04T14:00:00Z"), 5)
    assert [text[11:16] for text in found] == ["14:30", "15:00", "15:30", "16:00", "16:30"]


def test_a13_restricted_day_whose_midnight_is_missing() -> None:
    zone = "America/Sao_Paulo"
    assert fires(cron("0 1 4 11 *", zone), at("2018-11-03T23:00", zone), 2) == [
        "2018-11-04T03:00:00Z",
        "2019-11-04T04:00:00Z",
    ]


def test_a15_gap_that_crosses_midnight() -> None:
    zone = "America/Nuuk"
    start = at("2024-03-29T12:00", zone)
    assert fires(cron("30 23 * * *", zone), start, 3) == [
        "2024-03-30T01:30:00Z",
        "2024-03-31T01:00:00Z",
        "2024-04-01T00:30:00Z",
    ]
    assert fires(cron("30 23 * * *", zone, gap="skip"), start, 2) == [
        "2024-03-30T01:30:00Z",
        "2024-04-01T00:30:00Z",
    ]


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14T12:00",
            ["2026-02-15T01:30:00Z", "2026-02-16T02:30:00Z", "2026-02-17T02:30:00Z"],
        ),
        (
            "0 3 * * *",
            "Africa/Casablanca",
            "2026-02-13T12:00",
            ["2026-02-14T02:00:00Z", "2026-02-15T03:00:00Z", "2026-02-16T03:00:00Z"],
        ),
        (
            "30 1 * * *",
            "Europe/Dublin",
            "2026-03-28T12:00",
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "30 1 * * *",
            "Europe/Dublin",
            "2026-10-24T12:00",
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
    ],
)
def test_a17_negative_and_off_season_dst(
    expression: str, zone: str, start: str, expected: list[str]
) -> None:
    assert fires(cron(expression, zone), at(start, zone), len(expected)) == expected


@pytest.mark.parametrize(
    ("zone", "day", "minutes", "quarters"),
    [
        ("Europe/Berlin", "2026-10-25", 1500, 100),
        ("Europe/Berlin", "2026-03-29", 1380, 92),
        (NEW_YORK, "2026-11-01", 1500, 100),
        ("Australia/Lord_Howe", "2026-04-05", 1470, 98),
        ("Australia/Lord_Howe", "2026-10-04", 1410, 94),
    ],
)
def test_a19_number_of_fires_in_a_transition_day(
    zone: str, day: str, minutes: int, quarters: int
) -> None:
    for expression, expected in (("* * * * *", minutes), ("*/15 * * * *", quarters)):
        s = cron(expression, zone)
        start = at(f"{day}T00:00", zone) - timedelta(seconds=1)
        found = [slot for slot in upcoming(s, start, 1600) if slot.local.startswith(day)]
        assert len(found) == expected


def test_a21_day_of_month_or_weekday() -> None:
    found = fires(cron("0 9 13 * FRI"), at("2026-02-01T00:00Z"), 6)
    expected = ["2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27", "2026-03-06", "2026-03-13"]
    assert found == [f"{day}T09:00:00Z" for day in expected]
    expected = ["2026-06-29", "2026-07-01", "2026-07-06", "2026-07-13"]
    assert days(cron("0 0 1 * 1"), at("2026-06-22T12:00Z"), 4) == expected
    # A day field that begins with * is no restriction to be joined by OR.
    assert days(cron("0 0 */2 * 1"), at("2026-11-29T00:00Z"), 2) == ["2026-12-07", "2026-12-21"]


def test_a23_impossible_day_beside_a_weekday() -> None:
    s = cron("0 0 31 2 0")
    expected = ["2026-02-01", "2026-02-08", "2026-02-15", "2026-02-22"]
    assert days(s, at("2026-01-31T23:59Z"), 4) == expected
    assert isinstance(s, Cron)
    assert matches(s, at("2026-02-01T00:00Z"))
    assert "never fires" in refused({"cron": "0 0 31 2 *"})[0].message


def test_a25_leap_day() -> None:
    assert days(cron("0 9 29 2 *"), at("2016-02-29T09:00Z"), 2) == ["2020-02-29", "2024-02-29"]
    s = cron("0 0 29 2 *")
    assert days(s, at("2026-01-01T00:00Z"), 3) == ["2028-02-29", "2032-02-29", "2036-02-29"]
    assert days(s, at("2096-02-28T00:00Z"), 2) == ["2096-02-29", "2104-02-29"]
    assert days(s, at("2096-03-01T00:00Z"), 2) == ["2104-02-29", "2108-02-29"]


def test_a27_nth_weekday_with_a_day_of_month() -> None:
    assert days(cron("0 0 29 2 1#5"), at("2026-01-01T00:00Z"), 2) == ["2028-02-29", "2032-02-29"]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 L * *", "2027-12-31", ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]),
        (
            "0 14 LW * ?",
            "2020-09-16",
            ["2020-09-30", "2020-10-30", "2020-11-30", "2020-12-31", "2021-01-29"],
        ),
        ("0 0 L-3 * *", "2026-01-30", ["2026-02-25", "2026-03-28", "2026-04-27", "2026-05-28"]),
        ("0 0 * * 5L", "2026-01-01", ["2026-01-30", "2026-02-27", "2026-03-27", "2026-04-24"]),
        (
            "0 0 1,14,L * *",
            "2026-02-01",
            ["2026-02-14", "2026-02-28", "2026-03-01", "2026-03-14"],
        ),
        ("0 0 * * MON#5", "2026-01-01", ["2026-03-30", "2026-06-29", "2026-08-31", "2026-11-30"]),
        # 1 August 2026 is a Saturday: its nearest working day stays in the month.
        ("0 0 1W 8 *", "2026-01-01", ["2026-08-03", "2027-08-02"]),
        ("0 0 15W * *", "2026-02-01", ["2026-02-16", "2026-03-16", "2026-04-15"]),
        # A month without the 31st has no working day nearest to it.
        ("0 0 31W * *", "2026-01-31", ["2026-03-31", "2026-05-29", "2026-07-31"]),
    ],
)
def test_a29_last_and_nearest_days(expression: str, start: str, expected: list[str]) -> None:
    found = fires(cron(expression), at(f"{start}T00:00Z"), len(expected))
    hour = expression.split()[1]
    assert found == [f"{day}T{hour:0>2}:00:00Z" for day in expected]


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("0 0 * * L", "weekday"),
        ("0 0 L-0 * *", "day of month"),
        ("0 0 L-31 * *", "day of month"),
        ("0 0 * * 1#6", "weekday"),
        ("0 0 * * 1#0", "weekday"),
        ("0 0 1#2 * *", "day of month"),
        ("0 0 32W * *", "day of month"),
    ],
)
def test_a29_refused_day_forms(expression: str, field: str) -> None:
    assert refused({"cron": expression})[0].message.startswith(f"{field} (field ")


def test_a31_steps_wider_than_the_range() -> None:
    for wide in ("0-59/61", "*/60", "*/90"):
        problem = refused({"cron": f"{wide} * * * *"})[0]
        assert "wider than the field" in problem.message
        assert '{"every"' in problem.expected
    assert fires(cron("41-59/24 5 * * 5"), NOW, 2) == [
        "2026-01-02T05:41:00Z",
        "2026-01-09T05:41:00Z",
    ]
    sevens = fires(cron("*/7 * * * *"), NOW, 9)
    minutes = [int(text[14:16]) for text in sevens]
    assert minutes == [*range(7, 60, 7), 0]
    tens = days(cron("0 0 */10 * *"), at("2026-01-01T00:00Z"), 6)
    assert [day[5:] for day in tens] == ["01-11", "01-21", "01-31", "02-01", "02-11", "02-21"]
    firsts = days(cron("0 0 */31 * *"), NOW, 3)
    assert firsts == ["2026-02-01", "2026-03-01", "2026-04-01"]


@pytest.mark.parametrize("item", ["*/0", "5-5/0", "59-0/0", "*/-5", "R/0", "H/0", "H(0-0)/0"])
def test_a33_zero_and_negative_steps(item: str) -> None:
    (problem,) = refused({"cron": f"{item} * * * *"})
    assert problem.pointer == "/schedule/cron"
    assert problem.message.startswith("minute (field 1): ")
    assert problem.expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 8 * * FRI-MON", ["2026-01-09", "2026-01-10", "2026-01-11", "2026-01-12"]),
        ("0 0 1 NOV-FEB *", ["2026-02-01", "2026-11-01", "2026-12-01", "2027-01-01"]),
        (
            "0 0 28-3 * *",
            ["2026-01-28", "2026-01-29", "2026-01-30", "2026-01-31", "2026-02-01", "2026-02-02"],
        ),
        ("0 0 * * sat-sun", ["2026-01-10", "2026-01-11", "2026-01-17"]),
        ("0 0 * * 7-1", ["2026-01-11", "2026-01-12", "2026-01-18"]),
    ],
)
def test_a35_wrapped_days(expression: str, expected: list[str]) -> None:
    assert days(cron(expression), at("2026-01-06T12:00Z"), len(expected)) == expected


def test_a35_wrapped_hours() -> None:
    start = at("2026-01-06T12:00Z")
    found = fires(cron("0 22-2 * * *"), start, 5)
    assert [text[11:13] for text in found] == ["22", "23", "00", "01", "02"]
    found = fires(cron("0 22-2/2 * * *"), start, 4)
    assert [text[11:13] for text in found] == ["22", "00", "02", "22"]
    assert "backwards" in refused({"cron": "0 0 0 1 1 ? 2030-2027"})[0].message


def test_a37_seven_fields_and_a_year() -> None:
    s = schedule({"cron": "0 0 6 2 2 ? 2027"}, now=NOW)
    assert fires(s, NOW, 3) == ["2027-02-02T06:00:00Z"]
    assert next_after(s, at("2027-02-02T06:00Z")) is None
    past = refused({"cron": "0 0 6 2 2 ? 2018"}, now=NOW)
    assert past[0].message == "has no run after 2026-01-01T00:00:00Z"
    two = schedule({"cron": "0 0 6 2 2 ? 2027,2029"}, now=NOW)
    assert days(two, NOW, 3) == ["2027-02-02", "2029-02-02"]


JOBS = [uuid5(UUID(int=1), str(i)) for i in range(10_000)]


def _minutes(expression: str, job: UUID) -> list[int]:
    mask = CronExpression.parse(expression, hash_key=job).minutes
    return [m for m in range(60) if mask >> m & 1]


def test_a39_hashed_fields() -> None:
    seen: set[int] = set()
    for job in JOBS:
        (minute,) = _minutes("H * * * *", job)
        seen.add(minute)
        quarter = _minutes("H/15 * * * *", job)
        assert quarter[0] in range(15)
        assert quarter == [quarter[0] + 15 * i for i in range(4)]
        half = _minutes("H(0-29)/10 * * * *", job)
        assert len(half) == 3
        assert half[-1] <= 29
        (short,) = _minutes("H(1-5)/10 * * * *", job)
        assert short in range(1, 6)
    assert seen == set(range(60))


def test_a39_hashed_days_and_hours() -> None:
    hours, day_masks = set(), 0
    for job in JOBS[:1000]:
        day_masks |= CronExpression.parse("0 0 H * *", hash_key=job).days.mask
        hours.add(CronExpression.parse("0 H(0-2) * * *", hash_key=job).hours)
    assert day_masks == (1 << 29) - 2  # 1 to 28
    assert hours == {1, 2, 4}


def test_a39_hash_is_stable_over_processes() -> None:
    job = UUID("01920000-0000-7000-8000-000000000001")
    program = (
        "from uuid import UUID; from tickrail.core.cron import CronExpression as C;"
        f"e = C.parse('H H H * *', hash_key=UUID('{job}'));"
        "print(e.minutes, e.hours, e.days.mask)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = CronExpression.parse("H H H * *", hash_key=job)
    assert outputs == {f"{here.minutes} {here.hours} {here.days.mask}\n"}


def test_a41_exact_interval_and_calendar_interval() -> None:
    anchor = at("2019-03-26T16:00", "Europe/Brussels")
    week = schedule({"every": "7d", "anchor": anchor.isoformat()})
    assert fires(week, anchor, 1) == ["2019-04-02T15:00:00Z"]
    calendar = {"every": 7, "unit": "day", "at": "16:00", "anchor": "2019-03-26"}
    days7 = schedule({"calendar": calendar, "time_zone": "Europe/Brussels"})
    assert fires(days7, anchor, 1) == ["2019-04-02T14:00:00Z"]
    start = at("2026-03-07T09:00", NEW_YORK)
    exact = schedule({"every": "24h", "anchor": start.isoformat()})
    assert fires(exact, start, 2) == ["2026-03-08T14:00:00Z", "2026-03-09T14:00:00Z"]
    daily = schedule({"calendar": {"unit": "day", "at": "09:00"}, "time_zone": NEW_YORK})
    assert fires(daily, start, 2) == ["2026-03-08T13:00:00Z", "2026-03-09T13:00:00Z"]


def test_a43_waits_are_differences_of_instants() -> None:
    zone = zone_info(NEW_YORK)
    now = datetime(2026, 3, 8, 1, 59, 59, tzinfo=zone)
    due = next_after(cron("0 3 * * *", NEW_YORK), now)
    assert due is not None
    assert due.tzinfo is UTC
    assert due - now.astimezone(UTC) == timedelta(seconds=1)


def test_a45_short_months_are_left_out() -> None:
    start = at("2026-01-31T10:00", "Asia/Kolkata")
    found = fires(cron("0 9 31 * *", "Asia/Kolkata"), start, 4)
    assert found == [f"2026-{m}-31T03:30:00Z" for m in ("03", "05", "07", "08")]
    expected = ["2026-03-30", "2026-04-30", "2026-05-30"]
    assert days(cron("0 0 30 * *"), at("2026-01-30T00:00Z"), 3) == expected
    (warning,) = lint(cron("0 0 30 * *"), NOW)
    assert warning.code == "short_months"
    assert "L is the last day" in warning.message


def test_a47_utc_is_utc() -> None:
    found = fires(cron("0 * * * *"), at("2025-10-05T02:00Z"), 3)
    assert [text[11:16] for text in found] == ["03:00", "04:00", "05:00"]
    for text in ("00:59", "01:00", "01:01", "01:30", "01:59", "02:00"):
        hour, minute = text.split(":")
        s = cron(f"{minute} {hour} * * *")
        found = fires(s, at("2022-10-29T12:00Z"), 2)
        assert found == [f"2022-10-30T{text}:00Z", f"2022-10-31T{text}:00Z"]


@pytest.mark.parametrize(
    ("document", "start", "expected"),
    [
        pytest.param(
            cron("*/30 1 * * 0", NEW_YORK),
            "2026-11-01T05:10:00Z",
            ["11-01T05:30", "11-01T06:00", "11-01T06:30", "11-08T06:00"],
            id="weekly, follows real time",
        ),
        pytest.param(
            cron("30 1 1 * *", NEW_YORK, fold="both"),
            "2026-11-01T00:00:00Z",
            ["11-01T05:30", "11-01T06:30", "12-01T06:30"],
            id="monthly, both",
        ),
        pytest.param(
            cron("30 1 1 * *", NEW_YORK, fold="second"),
            "2026-11-01T05:45:00Z",
            ["11-01T06:30", "12-01T06:30"],
            id="monthly, the second, asked between the two",
        ),
        pytest.param(
            cron("0 30 1 1 11 ? 2026", NEW_YORK, fold="both"),
            "2026-11-01T00:00:00Z",
            ["11-01T05:30", "11-01T06:30"],
            id="the last ever is the second",
        ),
    ],
)
def test_a05_the_second_pass_is_found_when_the_next_local_time_is_far(
    document: Schedule, start: str, expected: list[str]
) -> None:
    found = [s.at.strftime("%m-%dT%H:%M") for s in upcoming(document, at(start), len(expected))]
    assert found == expected


@pytest.mark.parametrize("minute", ["H5", "H-5", "HELLO", "H5-9", "H-5/2"])
def test_a39_what_only_begins_with_h_is_refused(minute: str) -> None:
    (problem,) = refused({"cron": f"{minute} * * * *"})
    assert problem.message.startswith("minute (field 1): ")


@pytest.mark.parametrize("field", ["*,1", "1,*", "*/2,3", "?"])
def test_a21_a_star_in_a_list_of_days(field: str) -> None:
    e = CronExpression.parse(f"0 0 {field} * *")
    assert e.days.star is (field[0] in "*?")
    assert e.days.mask >> 3 & 1

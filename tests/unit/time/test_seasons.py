"""A-49: what the walk gives is what matches, minute by minute, for 60 days round each change."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.support.schedules import at, cron

from tickrail.core.schedule import Cron, matches, next_after

MINUTE = timedelta(minutes=1)
DAYS = 30
ROWS = [
    ("A-01", "30 2 * * *", "America/New_York", "2026-03-08T07:00Z"),
    ("A-01", "0 2 * * *", "America/New_York", "2026-03-08T07:00Z"),
    ("A-03", "*/15 * * * *", "America/New_York", "2026-03-08T07:00Z"),
    ("A-03", "30 * * * *", "America/New_York", "2026-03-08T07:00Z"),
    ("A-05", "0 * * * *", "America/Los_Angeles", "2026-11-01T09:00Z"),
    ("A-07", "0,30 1 * * *", "America/New_York", "2026-11-01T06:00Z"),
    ("A-09", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("A-11", "*/30 * * * *", "Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("A-13", "0 1 4 11 *", "America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("A-15", "30 23 * * *", "America/Nuuk", "2024-03-31T01:00Z"),
    ("A-17", "30 2 * * *", "Africa/Casablanca", "2026-02-15T02:00Z"),
    ("A-17", "0 3 * * *", "Africa/Casablanca", "2026-03-22T02:00Z"),
    ("A-17", "30 1 * * *", "Europe/Dublin", "2026-03-29T01:00Z"),
    ("A-19", "* * * * *", "Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("A-21", "0 9 13 * FRI", "UTC", "2026-02-13T09:00Z"),
    ("A-23", "0 0 31 2 0", "UTC", "2026-02-10T00:00Z"),
    ("A-29", "0 14 LW * ?", "Europe/Berlin", "2026-10-25T01:00Z"),
    ("A-31", "*/7 * * * *", "Europe/Berlin", "2026-10-25T01:00Z"),
    ("A-35", "0 22-2/2 * * *", "Europe/Berlin", "2026-03-29T01:00Z"),
    ("A-45", "0 9 31 * *", "Asia/Kolkata", "2026-03-31T03:30Z"),
]


@pytest.mark.parametrize(
    ("expression", "zone", "change"),
    [row[1:] for row in ROWS],
    ids=[f"{row[0]} {row[1]} {row[2]}" for row in ROWS],
)
def test_a49_walk_and_match_agree(expression: str, zone: str, change: str) -> None:
    s = cron(expression, zone)
    assert isinstance(s, Cron)
    low, high = (at(change) + n * timedelta(days=DAYS) for n in (-1, 1))
    walked: list[datetime] = []
    found = next_after(s, low)
    while found is not None and found <= high:
        walked.append(found)
        found = next_after(s, found)
    minutes = 2 * DAYS * 1440
    assert walked == [t for t in (low + i * MINUTE for i in range(1, minutes + 1)) if matches(s, t)]
    assert walked

"""How close two slots of a job are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.definition import parse_plan
from tickrail.core.ids import JobId
from tickrail.core.spacing import closest

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobId(UUID("019b76da-a800-7000-8000-000000000001"))


def gap(schedule: dict[str, Any] | None, least: timedelta, **more: Any) -> timedelta | None:
    plan = parse_plan({"schedule": schedule, **more}, job=JOB, now=NOW)
    return closest(plan, NOW, least)


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [
        ({"cron": "*/2 * * * *"}, 2),
        ({"every": "2m"}, 2),
        ({"every": "2m", "measured_from": "completion"}, 2),
        ({"any_of": [{"cron": "0 2 * * *"}, {"cron": "2 2 * * sun"}]}, 2),
        # Once a year, and a clock change that only one of the days has.
        ({"cron": "58,0 0 24 12 *"}, 58),
        ({"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "fold": "both"}, 60),
    ],
)
def test_the_distance_is_found(schedule: dict[str, Any], minutes: int) -> None:
    found = timedelta(minutes=minutes)
    assert gap(schedule, found) is None
    assert gap(schedule, found + timedelta(seconds=1)) == found


@pytest.mark.parametrize("schedule", [None, {"at": "2027-01-01T00:00:00Z"}])
def test_one_slot_or_none_has_no_distance(schedule: dict[str, Any] | None) -> None:
    assert gap(schedule, timedelta(days=366)) is None


def test_what_lies_outside_of_the_jobs_time_does_not_matter() -> None:
    dense = {"cron": "* 3 2 3 *"}
    assert gap(dense, timedelta(hours=1)) == timedelta(minutes=1)
    assert gap(dense, timedelta(hours=1), ends_at="2026-03-02T03:00:30Z") is None
    late = gap(dense, timedelta(hours=1), starts_at="9998-03-03T00:00:00Z")
    assert late == timedelta(minutes=1)

"""Short ways to say schedules and instants in tests."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.schedule import Schedule, parse_schedule, upcoming

DATA = Path(__file__).parent.parent / "data"
LONG_AGO = datetime(1971, 1, 1, tzinfo=UTC)


def at(text: str, zone: str = "UTC") -> datetime:
    """An instant: with its own offset, or on the wall clock of a zone."""
    value = datetime.fromisoformat(text)
    return (value if value.tzinfo else value.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)


def schedule(document: object, *, now: datetime = LONG_AGO, job: UUID | None = None) -> Schedule:
    """The schedule of a document that has one."""
    found = parse_schedule(document, job=job, now=now)
    assert found is not None
    return found


def cron(expression: str, zone: str = "UTC", **more: Any) -> Schedule:
    """A cron schedule."""
    return schedule({"cron": expression, "time_zone": zone, **more})


def fires(s: Schedule, start: datetime, n: int) -> list[str]:
    """The next n due instants as text."""
    return [slot.at.isoformat().replace("+00:00", "Z") for slot in upcoming(s, start, n)]


def days(s: Schedule, start: datetime, n: int) -> list[str]:
    """The days of the next n due instants."""
    return [text[:10] for text in fires(s, start, n)]


def refused(
    document: object, *, now: datetime = LONG_AGO, job: UUID | None = None
) -> list[Problem]:
    """The problems of a document that must be refused."""
    try:
        found = parse_schedule(document, job=job, now=now)
    except InvalidInputError as e:
        return list(e.problems)
    raise AssertionError(f"accepted: {document!r} as {found!r}")


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of the test data."""
    with (DATA / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))

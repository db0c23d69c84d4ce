"""The page on schedules says of calendars what they do."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.tree import ROOT

from tickrail.core.calendar_events import MAX_EVENTS, MAX_STEPS
from tickrail.core.calendars import MAX_BYTES, MAX_ENTRIES, Calendar, parse_calendar
from tickrail.core.recurrence_rules import MAX_COUNT
from tickrail.core.timetable import MAX_STRETCHES, SEARCH_STEPS, SEARCH_YEARS

PAGE = (ROOT / "docs/schedules.md").read_text()
SECTION = PAGE.split("## Calendars\n", 1)[1].split("\n## ", 1)[0]
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", SECTION, re.DOTALL)]


def calendar(document: Any) -> Calendar:
    return parse_calendar(document, name="a", now=datetime(2026, 3, 1, tzinfo=UTC))


def hours(made: Calendar, first: str, last: str) -> float:
    """How many hours between two instants belong to a calendar."""
    at, end = (int(datetime.fromisoformat(t).timestamp()) for t in (first, last))
    total = 0
    while at < end:
        found = made.stretch(at)
        total += (min(found.end, end) - at) * found.inside
        at = found.end
    return total / 3600


def test_the_examples_are_read() -> None:
    use, document = BLOCKS
    assert set(use["calendars"]) == {"exclude", "include", "on_excluded"}
    made = calendar(document)
    for at in ("2026-11-26T12:00+01:00", "2026-07-04T09:00-04:00", "2027-01-02T12:00+01:00"):
        assert made.contains(int(datetime.fromisoformat(at).timestamp()))


@pytest.mark.parametrize(
    ("zone", "entries", "first", "last", "wanted"),
    [
        ("Europe/Berlin", {"dates": ["2026-10-25"]}, "2026-10-20T00Z", "2026-10-30T00Z", 25),
        ("Europe/Berlin", {"dates": ["2026-03-29"]}, "2026-03-20T00Z", "2026-04-02T00Z", 23),
        ("America/Sao_Paulo", {"dates": ["2018-11-04"]}, "2018-11-01T00Z", "2018-11-08T00Z", 23),
        ("Pacific/Apia", {"dates": ["2011-12-30"]}, "2011-12-20T00Z", "2012-01-08T00Z", 0),
        ("Europe/Berlin", {"windows": [{"from": "02:00", "to": "03:00"}]}, "2026-03-28T23Z",
         "2026-03-29T22Z", 0),
        ("Europe/Berlin", {"windows": [{"from": "01:30", "to": "04:00"}]}, "2026-03-28T23Z",
         "2026-03-29T22Z", 1.5),
        ("Europe/Berlin", {"windows": [{"from": "02:00", "to": "03:00"}]}, "2026-10-24T22Z",
         "2026-10-25T23Z", 2),
        ("Pacific/Apia", {"windows": [{"from": "22:00", "to": "06:00", "weekdays": ["fri"]}]},
         "2011-12-29T20Z", "2012-01-01T00Z", 6),
    ],
)  # fmt: skip
def test_clock_changes_do_what_the_page_says(
    zone: str, entries: dict[str, Any], first: str, last: str, wanted: float
) -> None:
    assert hours(calendar({"time_zone": zone} | entries), first, last) == wanted


@pytest.mark.parametrize(
    "words",
    [
        f"{MAX_ENTRIES:,} entries",
        f"{MAX_EVENTS:,} of them events",
        f"{MAX_BYTES // 1024} KiB",
        f"{MAX_STEPS:,} steps",
        f"`COUNT` (to {MAX_COUNT:,}",
        f"**: {SEARCH_YEARS} years behind",
        f"than {MAX_STRETCHES:,} forbidden stretches",
        f"may cost {SEARCH_STEPS:,} steps",
    ],
)
def test_the_bounds_are_those_of_the_code(words: str) -> None:
    assert words in SECTION

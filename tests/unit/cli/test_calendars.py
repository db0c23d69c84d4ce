from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.stub_api import Answer, Asked, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail_cli.calendars import entries

HOLIDAYS = "/v1/calendars/holidays"
CALENDAR: dict[str, Any] = {
    "name": "holidays",
    "version": 3,
    "description": "Days off",
    "time_zone": "Europe/Berlin",
    "dates": ["2026-12-24"],
    "yearly": [],
    "weekdays": ["sat", "sun"],
    "windows": [],
    "events": [],
    "created_at": "2026-03-01T12:00:00Z",
    "updated_at": "2026-03-02T12:00:00Z",
}
MOVED = {
    "jobs": 12,
    "items": [
        {
            "job": {"id": "j", "name": f"job-{i}"},
            "state": "finished" if i else "active",
            "next_run_at": {
                "before": "2026-12-24T12:00:00Z",
                "after": None if i else "2026-12-25T12:00:00Z",
            },
            "added": [],
            "removed": ["2026-12-24T12:00:00Z"],
        }
        for i in range(12)
    ],
}
PUT = CALENDAR | {"moved": {"jobs": 0, "items": []}}


def answer(asked: Asked) -> Answer:
    """The calendar as it was put."""
    assert asked.method == "PUT"
    return Answer(body=PUT)


def test_list_counts_the_entries(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/calendars", Answer(body={"items": [CALENDAR], "next_cursor": None}))
    table = tickrail("--utc", "calendars", "list").out
    for word in ("holidays", "1 date, 2 weekdays", "2026-03-02 12:00:00Z", "Days off"):
        assert word in table
    assert tickrail("calendars", "list", "--output", "json").json() == {"items": [CALENDAR]}


def test_list_says_how_to_make_one(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/calendars", Answer(body={"items": [], "next_cursor": None}))
    assert "`tickrail calendars put -f` makes one" in tickrail("calendars", "list").out


def test_get_shows_what_there_is(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", HOLIDAYS, Answer(body=CALENDAR))
    card = tickrail("--utc", "calendars", "get", "holidays").out
    assert "weekdays     sat, sun" in card
    assert "windows" not in card
    assert tickrail("calendars", "get", "holidays", "--output", "json").json() == CALENDAR


@pytest.mark.parametrize("word", ["put", "apply"])
def test_put_sends_the_document_to_its_name(
    tickrail: Tickrail, api: StubApi, tmp_path: Path, word: str
) -> None:
    api.on("PUT", HOLIDAYS, answer)
    document = {"name": "holidays", "dates": ["2026-12-24"]}
    (tmp_path / "c.json").write_text(json.dumps(document))
    (tmp_path / "c.yaml").write_text("dates: [2026-12-24]\n")
    said = tickrail("calendars", word, "-f", "c.json")
    assert said.out == "Put holidays, version 3: 1 date, 2 weekdays.\n"
    assert tickrail("calendars", word, "holidays", "-f", "c.yaml").code == 0
    dry = tickrail("calendars", word, "-f", "c.json", "--dry-run", "--if-version", "3")
    assert dry.out.startswith("Would put holidays")
    bodies = [asked.body for asked in api.asked]
    assert bodies == [document, {"dates": ["2026-12-24"]}, document | {"dry_run": True}]
    assert api.asked[2].headers["if-match"] == '"3"'
    assert "if-match" not in api.asked[0].headers


def test_put_says_which_runs_move(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("PUT", HOLIDAYS, Answer(body=CALENDAR | {"moved": MOVED}))
    (tmp_path / "c.json").write_text("{}")
    lines = tickrail("--utc", "calendars", "put", "holidays", "-f", "c.json").out.splitlines()
    assert lines[1] == "12 jobs move:"
    assert lines[2] == (
        "  job-0: next run 2026-12-24 12:00:00Z -> 2026-12-25 12:00:00Z; 0 slots added, 1 removed"
    )
    assert lines[3].endswith("-> none, no run is left; 0 slots added, 1 removed")
    assert lines[-1] == "  and 2 more (--output json lists a hundred)"


def test_import_sends_the_file_as_it_is(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("PUT", HOLIDAYS, answer)
    text = "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"
    (tmp_path / "days.ics").write_bytes(text.encode())
    assert tickrail("calendars", "import", "days.ics", "holidays", "--tz", "Asia/Tokyo").code == 0
    assert api.asked[0].body == {"icalendar": text, "time_zone": "Asia/Tokyo"}
    assert tickrail("calendars", "import", "days.ics", "holidays", "--dry-run").code == 0
    assert api.asked[1].body == {"icalendar": text, "dry_run": True}


def test_delete_says_what_is_in_the_way(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", HOLIDAYS, Answer(body={}))
    api.on("DELETE", HOLIDAYS, Answer(204))
    assert tickrail("calendars", "delete", "--yes", "holidays").out == "Deleted holidays.\n"
    used = problem(409, "conflict", "The calendar is used by payroll.")
    api.on("DELETE", HOLIDAYS, used)
    said = tickrail("calendars", "delete", "--yes", "holidays")
    assert (said.code, "used by payroll" in said.err) == (1, True)


def test_delete_says_that_there_was_none(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", HOLIDAYS, problem(404, "not_found", "There is no calendar holidays."))
    said = tickrail("calendars", "delete", "--yes", "holidays")
    assert (said.code, said.out) == (0, "There is no calendar holidays: nothing to delete.\n")
    assert [asked.method for asked in api.asked] == ["GET", "GET"]


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    assert entries({"dates": ["2026-12-24"], "windows": [{}], "events": [{}, {}]}) == (
        "1 date, 1 window, 2 events"
    )
    assert entries({"yearly": ["12-24"], "weekdays": ["sat"]}) == "1 yearly, 1 weekday"


WRONG = {
    "no file": (["put", "holidays"], 2, "--file"),
    "no name anywhere": (["put", "-f", "empty.json"], 2, "give a NAME"),
    "a list": (["put", "x", "-f", "list.json"], 1, "a calendar is an object"),
    "a file that is not there": (["import", "none.ics", "x"], 1, "none.ics"),
    "a name too few": (["import", "empty.json"], 2, "NAME"),
    "an unknown word": (["imprt"], 2, "did you mean import"),
}


@pytest.mark.parametrize(("words", "code", "text"), WRONG.values(), ids=WRONG.keys())
def test_wrong_use_is_said(
    tickrail: Tickrail, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "list.json").write_text("[]")
    said = tickrail("calendars", *words)
    assert (said.code, text in said.err) == (code, True), said.err

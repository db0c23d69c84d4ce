"""`tickrail calendars` against the real API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.api import World

from tickrail_cli import main

pytestmark = pytest.mark.integration
Said = tuple[int, str, str]

ICS = """BEGIN:VCALENDAR
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VEVENT
UID:1
SUMMARY:New year
DTSTART;VALUE=DATE:20260101
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""


@pytest.fixture
def tickrail(
    world: World,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICKRAIL_API_URL", str(world.client.base_url))
    monkeypatch.setenv("TICKRAIL_API_KEY", world.acme.token)

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main.run(["--utc", *words])
        said = capsys.readouterr()
        return code, "\n".join(x for x in said.out.splitlines() if "request_id=" not in x), said.err

    return run


def test_a_file_becomes_a_calendar_and_moves_a_job(
    world: World, tickrail: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "days.ics").write_text(ICS)
    code, out, _ = tickrail("calendars", "import", "days.ics", "days")
    assert (code, out) == (0, "Put days, version 1: 1 event.")
    use = {"exclude": ["days"], "on_excluded": "next_allowed"}
    schedule = {"cron": "0 12 1 1 *", "time_zone": "Europe/Berlin"}
    job = world.acme.create("greeting", schedule=schedule, calendars=use)
    assert job["next_run_at"].endswith("-01-01T23:00:00Z")

    (tmp_path / "none.json").write_text('{"name": "days"}')
    code, out, _ = tickrail("calendars", "put", "-f", "none.json", "--dry-run")
    assert code == 0
    first, second, moved = out.splitlines()
    assert (first, second) == ("Would put days, version 2: empty.", "1 job moves:")
    day = job["next_run_at"][:10]
    assert moved.startswith(f"  greeting: next run {day} 23:00:00Z -> {day} 11:00:00Z;")
    assert world.acme.get("/v1/jobs/name:greeting")["next_run_at"] == job["next_run_at"]

    code, out, _ = tickrail("calendars", "list", "--output", "json")
    [listed] = json.loads(out)["items"]
    assert (listed["time_zone"], listed["version"]) == ("Europe/Berlin", 1)
    code, _, err = tickrail("calendars", "delete", "--yes", "days")
    assert (code, "used by greeting" in err) == (1, True)
    code, out, _ = tickrail("calendars", "put", "-f", "none.json", "--if-version", "1")
    assert (code, out.splitlines()[0]) == (0, "Put days, version 2: empty.")
    code, _, err = tickrail("calendars", "put", "-f", "none.json", "--if-version", "1")
    assert (code, "at version 2, not 1" in err) == (1, True)
    assert world.acme.get("/v1/jobs/name:greeting")["next_run_at"] == f"{day}T11:00:00Z"


def test_what_is_wrong_with_a_file_is_said_in_words(
    tickrail: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "days.ics").write_text(ICS.replace("FREQ=YEARLY", "FREQ=HOURLY"))
    code, _, err = tickrail("calendars", "import", "days.ics", "days")
    assert code == 1
    assert "the event 'New year': rrule has FREQ=HOURLY (FREQ=DAILY or longer)" in err
    (tmp_path / "days.json").write_text('{"dats": ["2026-01-01"]}')
    code, _, err = tickrail("calendars", "put", "days", "-f", "days.json")
    assert (code, "did you mean 'dates'?" in err) == (1, True)
    code, _, err = tickrail("calendars", "get", "days")
    assert (code, "there is no calendar 'days'" in err) == (1, True)

from __future__ import annotations

from typing import Any

from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

ID = "01914b6e-0000-7000-8000-000000000001"
JOB = {"id": ID, "name": "nightly", "state": "active", "version": 4,
       "next_run_at": "2026-03-02T01:00:00Z"}  # fmt: skip
NIGHTLY = "/v1/jobs/name:nightly"
VERSION: dict[str, Any] = {
    "version": 3,
    "definition": {"name": "nightly", "schedule": {"cron": "0 2 * * *", "time_zone": "UTC"}},
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "key:abc",
}


def test_versions_are_listed_and_one_is_printed(tickrail: Tickrail, api: StubApi) -> None:
    by_hand = {**VERSION, "version": 2, "definition": {"name": "old", "schedule": None}}
    api.on("GET", NIGHTLY, Answer(body=JOB))
    page = {"items": [VERSION, by_hand], "next_cursor": None}
    api.on("GET", f"{NIGHTLY}/versions", Answer(body=page))
    table = tickrail("--utc", "jobs", "versions", "nightly").out
    for word in ("2026-03-01 12:00:00Z", "key:abc", "cron 0 2 * * *", "by hand", "old"):
        assert word in table
    api.on("GET", f"{NIGHTLY}/versions/3", Answer(body=VERSION))
    one = tickrail("jobs", "versions", "nightly", "3").out
    assert one == "name: nightly\nschedule:\n  cron: 0 2 * * *\n  time_zone: UTC\n"
    assert tickrail("jobs", "versions", "nightly", "3", "--output", "json").json() == VERSION
    assert tickrail("jobs", "versions", "nightly", "0").code == 2


def test_restore_and_undelete_say_what_is_now(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", f"{NIGHTLY}/versions/3/restore", Answer(body=JOB))
    said = tickrail("jobs", "restore", "nightly", "3").out
    assert said == "nightly is as in version 3: now version 4.\n"
    api.on("POST", f"/v1/jobs/{ID}/undelete", Answer(body=JOB))
    said = tickrail("--utc", "jobs", "undelete", ID).out
    assert said == f"nightly is back ({ID}), next run 2026-03-02 01:00:00Z.\n"
    finished = {**JOB, "state": "finished", "next_run_at": None}
    api.on("POST", f"{NIGHTLY}/undelete", Answer(body=finished))
    assert tickrail("jobs", "undelete", "nightly").out == f"nightly is back ({ID}), finished.\n"


def test_a_name_that_is_taken_by_now_is_told(tickrail: Tickrail, api: StubApi) -> None:
    taken = problem(409, "name_taken", "A live job has the name 'nightly' already.")
    api.on("POST", f"/v1/jobs/{ID}/undelete", taken)
    said = tickrail("jobs", "undelete", ID)
    assert said.code == 1
    assert "A live job has the name 'nightly' already." in said.err

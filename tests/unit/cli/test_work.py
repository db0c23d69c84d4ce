"""What goes on for a while: backfills, and pauses of many jobs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

ID = "01914b6e-0000-7000-8000-000000000009"
FROM, UNTIL = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"
RANGE = ("--from", FROM, "--until", UNTIL)
BACKFILLS = "/v1/jobs/name:nightly/backfills"
BACKFILL: dict[str, Any] = {
    "id": ID, "job": {"id": "J", "name": "nightly"}, "state": "running", "from": FROM,
    "until": UNTIL, "order": "oldest", "existing": "leave", "per_minute": None, "max_count": None,
    "max_open": 1, "reason": "", "total": 24, "launched": 3, "left_alone": 1, "remaining": 20,
    "launches": {"succeeded": 2, "running": 1}, "created_by": "key:a",
    "created_at": "2026-03-03T00:00:00Z", "updated_at": "2026-03-03T00:00:00Z",
    "finished_at": None,
}  # fmt: skip
ENDED = {**BACKFILL, "state": "finished", "launched": 23, "remaining": 0,
         "launches": {"succeeded": 23}}  # fmt: skip
OPERATION: dict[str, Any] = {
    "id": ID, "kind": "jobs.pause", "state": "running", "request": {"filter": {}}, "total": 120,
    "done": 50, "changed": 49, "failed": 1, "created_by": "key:a",
    "errors": [{"job": {"id": "J", "name": "nightly"}, "code": "conflict", "detail": "finished"}],
    "created_at": "2026-03-03T00:00:00Z", "updated_at": "2026-03-03T00:00:00Z",
    "finished_at": None,
}  # fmt: skip


def page(*items: Any) -> Answer:
    return Answer(body={"items": list(items), "next_cursor": None})


def test_a_backfill_is_asked_for_as_the_flags_say(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", BACKFILLS, Answer(202, BACKFILL))
    said = tickrail("jobs", "backfill", "nightly", *RANGE)
    assert api.asked[0].body == {"from": FROM, "until": UNTIL}
    assert said.code == 0
    assert "24 slots" in said.out
    assert f"tickrail backfills get {ID}" in said.out
    tickrail(
        "jobs", "backfill", "nightly", *RANGE, "--order", "newest", "--per-minute", "60",
        "--max-count", "5", "--max-open", "2", "--launch-again", "--reason", "outage",
        "--payload", '{"a": 1}',
    )  # fmt: skip
    assert api.asked[1].body == {
        "from": FROM, "until": UNTIL, "order": "newest", "per_minute": 60, "max_count": 5,
        "max_open": 2, "existing": "launch", "reason": "outage", "payload": {"a": 1},
    }  # fmt: skip
    answer = tickrail("jobs", "backfill", "nightly", *RANGE, "--output", "json")
    assert answer.json() == BACKFILL


def test_a_dry_run_is_a_table(tickrail: Tickrail, api: StubApi) -> None:
    items = [
        {"at": FROM, "launch": {"id": "L1", "state": "succeeded"}},
        {"at": "2026-03-01T01:00:00Z", "launch": None},
    ]
    preview = {"job": {"id": "J", "name": "nightly"}, "total": 24, "to_launch": 23,
               "first": FROM, "last": FROM, "items": items}  # fmt: skip
    api.on("POST", BACKFILLS, Answer(200, preview))
    said = tickrail("--utc", "jobs", "backfill", "nightly", *RANGE, "--dry-run")
    assert api.asked[0].body["dry_run"] is True
    for word in ("2026-03-01 00:00:00Z", "succeeded", "L1", "23 of 24 slots would be launched"):
        assert word in said.out
    as_json = tickrail("jobs", "backfill", "nightly", *RANGE, "--dry-run", "--output", "json")
    assert as_json.json() == preview
    many = {**preview, "total": 200_000, "to_launch": None}
    api.on("POST", BACKFILLS, Answer(200, many))
    said = tickrail("jobs", "backfill", "nightly", *RANGE, "--dry-run")
    assert "200000 slots would be launched (the first 2 shown)." in said.out
    nothing = {**preview, "total": 0, "to_launch": 0, "items": []}
    api.on("POST", BACKFILLS, Answer(200, nothing))
    said = tickrail("jobs", "backfill", "nightly", *RANGE, "--dry-run")
    assert said.out == "No slots in this range.\n"


def test_watch_ends_with_the_backfill(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", BACKFILLS, Answer(202, BACKFILL))
    api.on("GET", f"/v1/backfills/{ID}", Answer(body=BACKFILL), Answer(body=ENDED))
    said = tickrail("jobs", "backfill", "nightly", *RANGE, "--watch")
    assert said.code == 0
    assert said.err.splitlines() == [
        "running: 3 of 24 slots launched (1 running, 2 succeeded), 1 left alone, 20 to come",
        "finished: 23 of 24 slots launched (23 succeeded), 1 left alone, 0 to come",
    ]
    assert "is finished" in said.out
    api.on("GET", f"/v1/backfills/{ID}", Answer(body=ENDED))
    said = tickrail("backfills", "get", ID, "--watch", "--output", "json")
    assert (said.json(), said.err) == (ENDED, "")


def test_what_the_api_refuses_is_said_with_its_field(tickrail: Tickrail, api: StubApi) -> None:
    error = {"pointer": "/from", "message": "is too old", "expected": "at or after 2026-02-01"}
    api.on("POST", BACKFILLS, problem(422, "invalid", "The backfill is not valid.", error))
    said = tickrail("jobs", "backfill", "nightly", *RANGE)
    assert said.code == 1
    assert "too old" in said.err
    assert "from" in said.err
    assert tickrail("jobs", "backfill", "nightly", "--from", FROM).code == 2


def test_backfills_are_listed_shown_and_cancelled(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs/name:nightly", Answer(body={"name": "nightly"}))
    api.on("GET", BACKFILLS, page(BACKFILL))
    said = tickrail("--utc", "backfills", "list", "nightly")
    for word in ("running", "2026-03-01 00:00:00Z", "24", ID):
        assert word in said.out
    api.on("GET", f"/v1/backfills/{ID}", Answer(body=BACKFILL))
    assert "1 running, 2 succeeded" in tickrail("backfills", "get", ID).out
    path = f"/v1/backfills/{ID}/cancel"
    api.on("POST", path, Answer(202, {**BACKFILL, "state": "cancelled"}))
    said = tickrail("backfills", "cancel", ID)
    assert said.out == f"Cancelled {ID} (1 running, 2 succeeded).\n"
    tickrail("backfills", "cancel", ID, "--cancel")
    assert [a.body for a in api.asked if a.path == path] == [{}, {"in_flight": "cancel"}]


def test_many_jobs_are_paused_by_a_filter(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs/pause", Answer(202, OPERATION))
    flags = ("--tag", "a:b", "--tag", "c", "--prefix", "n", "--queue", "q", "--state", "active")
    said = tickrail("jobs", "pause", *flags, "--reason", "move", "--cancel")
    assert api.asked[0].body == {
        "filter": {"tag": ["a:b", "c"], "name_prefix": "n", "queue": "q", "state": ["active"]},
        "reason": "move", "in_flight": "cancel",
    }  # fmt: skip
    assert "120 jobs" in said.out
    assert f"tickrail operations get {ID}" in said.out
    tickrail("jobs", "pause", "--all")
    assert api.asked[1].body == {"filter": {}}
    api.on("POST", "/v1/jobs/pause", Answer(200, {"total": 101, "names": ["a", "b"]}))
    said = tickrail("jobs", "pause", "--all", "--dry-run")
    assert said.out.splitlines() == ["a", "b", "...", "101 jobs."]
    assert api.asked[2].body == {"filter": {}, "dry_run": True}


@pytest.mark.parametrize(
    ("flags", "catch_up"),
    [
        ((), None),
        (("--catch-up", "policy"), "policy"),
        (("--max-count", "5", "--max-age", "1h"), {"max_count": 5, "max_age": "1h"}),
        (
            ("--order", "newest", "--per-minute", "9"),
            {"order": "newest", "per_minute": 9},
        ),
    ],
)
def test_many_jobs_go_on(
    tickrail: Tickrail, api: StubApi, flags: tuple[str, ...], catch_up: Any
) -> None:
    api.on("POST", "/v1/jobs/resume", Answer(202, {**OPERATION, "kind": "jobs.resume"}))
    assert tickrail("jobs", "resume", "--tag", "x", *flags).code == 0
    wanted = {"filter": {"tag": ["x"]}} | ({} if catch_up is None else {"catch_up": catch_up})
    assert api.asked[0].body == wanted


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "pause"),
        ("jobs", "pause", "nightly", "--tag", "x"),
        ("jobs", "pause", "nightly", "--all"),
        ("jobs", "pause", "nightly", "--dry-run"),
        ("jobs", "resume", "--dry-run"),
        ("jobs", "resume", "nightly", "--catch-up", "none", "--max-count", "1"),
    ],
)
def test_it_must_be_said_which_jobs_are_meant(
    tickrail: Tickrail, api: StubApi, words: tuple[str, ...]
) -> None:
    said = tickrail(*words)
    assert said.code == 2
    assert api.asked == []


def test_an_operation_is_watched_listed_shown_and_cancelled(
    tickrail: Tickrail, api: StubApi
) -> None:
    done = {**OPERATION, "state": "finished", "done": 120, "changed": 119}
    api.on("POST", "/v1/jobs/pause", Answer(202, OPERATION))
    api.on("GET", f"/v1/operations/{ID}", Answer(body=OPERATION), Answer(body=done))
    said = tickrail("jobs", "pause", "--all", "--watch")
    assert said.code == 0
    assert said.err.splitlines() == [
        "running: 50 of 120 jobs, 49 changed, 1 refused",
        "finished: 120 of 120 jobs, 119 changed, 1 refused",
    ]
    failed = {**OPERATION, "state": "failed",
              "errors": [{"job": None, "code": "internal", "detail": "ValueError"}]}  # fmt: skip
    api.on("GET", f"/v1/operations/{ID}", Answer(body=failed))
    assert tickrail("jobs", "pause", "--all", "--watch").code == 1
    assert "operation: ValueError" in tickrail("operations", "get", ID).out
    api.on("GET", "/v1/operations", page(done))
    for word in ("jobs.pause", "finished", "119", ID):
        assert word in tickrail("operations", "list").out
    path = f"/v1/operations/{ID}/cancel"
    api.on("POST", path, Answer(202, {**OPERATION, "state": "cancelled"}))
    said = tickrail("operations", "cancel", ID)
    assert said.out == f"Cancelled {ID} after 50 of 120 jobs.\n"

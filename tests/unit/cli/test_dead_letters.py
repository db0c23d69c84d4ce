"""`tickrail dead-letters` and `tickrail launches redrive`: what is asked of the API, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

ID = "01914b6e-0000-8000-8000-000000000009"
RAW = "tickrail.launch.default.normal/3/1042"
DIED = "2026-03-02T01:00:31Z"
LETTERS = "/v1/dead-letters"
LETTER: dict[str, Any] = {
    "kind": "launch", "id": ID, "reason": "attempts_exhausted", "state": "dead",
    "error": "http_500: it said 500", "job": {"id": "J", "name": "nightly", "version": 1},
    "queue": "default", "scheduled_at": DIED, "died_at": DIED, "attempt": 5, "failures": 5,
    "redrive_count": 0, "published": True,
}  # fmt: skip
MESSAGE = {
    "kind": "undecodable", "id": RAW, "reason": "undecodable", "error": "not JSON",
    "queue": "default", "topic": "tickrail.launch.default.normal", "partition": 3, "offset": 1042,
    "size": 5, "died_at": DIED, "value": {"text": "hello", "base64": None, "truncated": False},
}  # fmt: skip
OPERATION: dict[str, Any] = {
    "id": "O", "kind": "dead_letters.redrive", "state": "running", "request": {"filter": {}},
    "total": 3, "done": 1, "changed": 1, "failed": 0, "errors": [], "created_by": "key:a",
    "created_at": DIED, "updated_at": DIED, "finished_at": None,
}  # fmt: skip


def test_a_list_is_a_table_and_its_options_are_the_filter(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", LETTERS, Answer(body={"items": [LETTER, MESSAGE], "next_cursor": None}))
    api.on("GET", "/v1/jobs/name:nightly", Answer(body={"id": "J", "name": "nightly"}))
    said = tickrail(
        "--utc", "dead-letters", "list", "--job", "nightly", "--reason", "uncertain", "--reason",
        "rejected", "--state", "dead", "--tag", "a:b", "--queue", "q", "--from", DIED, "-n", "5",
    )  # fmt: skip
    assert said.code == 0
    for word in ("2026-03-02 01:00:31Z", "nightly", "attempts_exhausted", "it said 500", RAW):
        assert word in said.out
    assert api.asked[-1].query == {
        "limit": ["5"], "job": ["J"], "reason": ["uncertain", "rejected"], "state": ["dead"],
        "tag": ["a:b"], "queue": ["q"], "from": [DIED],
    }  # fmt: skip
    api.on("GET", LETTERS, Answer(body={"items": [], "next_cursor": None}))
    assert tickrail("dead-letters", "list").out == "No dead letters.\n"
    assert tickrail("dead-letters", "list", "--reason", "sad").code == 2


def test_one_is_shown_with_its_attempts_or_its_value(tickrail: Tickrail, api: StubApi) -> None:
    attempt = {"attempt": 5, "outcome": "http_500", "message": "it said 500", "worker": "w-1",
               "finished_at": DIED}  # fmt: skip
    whole = {**LETTER, "launch": {}, "attempts": [attempt], "target": {"noop": {}},
             "payload": {"n": 1}, "payload_own": True,
             "last_response": {"outcome": "http_500", "body": "sorry"}}  # fmt: skip
    api.on("GET", f"{LETTERS}/{ID}", Answer(body=whole))
    said = tickrail("dead-letters", "get", ID)
    for word in ("nightly", "sorry", '{"n": 1}', "w-1"):
        assert word in said.out
    assert tickrail("dead-letters", "get", ID, "--output", "json").json() == whole
    api.on("GET", f"{LETTERS}/{RAW}", Answer(body=MESSAGE))
    said = tickrail("dead-letters", "get", RAW)
    assert "hello" in said.out
    assert "1042" in said.out


def test_a_redrive_of_many(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("POST", f"{LETTERS}/redrive", Answer(202, OPERATION))
    (tmp_path / "p.yaml").write_text("n: 2\n")
    said = tickrail(
        "dead-letters", "redrive", "--reason", "worker_lost", "--per-minute", "60",
        "--max-count", "9", "--payload", str(tmp_path / "p.yaml"),
    )  # fmt: skip
    assert "3 dead letters" in said.out
    assert "tickrail operations get O" in said.out
    assert api.asked[-1].body == {
        "filter": {"reason": ["worker_lost"]}, "per_minute": 60, "max_count": 9,
        "payload": {"n": 2},
    }  # fmt: skip
    tickrail("dead-letters", "redrive", ID)
    assert api.asked[-1].body == {"filter": {"launch": [ID]}}
    refused = {"job": {"id": "J", "name": "nightly"}, "launch": ID, "code": "conflict",
               "detail": "The job is deleted."}  # fmt: skip
    ended = {**OPERATION, "state": "finished", "done": 3, "failed": 1, "errors": [refused]}
    api.on("GET", "/v1/operations/O", Answer(body=ended))
    said = tickrail("dead-letters", "redrive", "--all", "--watch")
    assert said.code == 1, "one refused"
    assert "finished: 3 of 3 dead letters, 1 changed, 1 refused" in said.out
    shown = tickrail("operations", "get", "O")
    assert f"nightly {ID}: The job is deleted." in shown.out


def test_an_empty_option_is_not_left_out(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", f"{LETTERS}/redrive", Answer(202, OPERATION))
    tickrail("dead-letters", "redrive", "--reason", "worker_lost", "--queue", "")
    assert api.asked[-1].body == {"filter": {"reason": ["worker_lost"], "queue": ""}}


def test_a_dry_run_shows_which(tickrail: Tickrail, api: StubApi) -> None:
    preview = {"total": 3, "items": [LETTER]}
    api.on("POST", f"{LETTERS}/redrive", Answer(200, preview))
    said = tickrail("dead-letters", "redrive", "--all", "--dry-run")
    assert api.asked[-1].body == {"filter": {}, "dry_run": True}
    assert ID in said.out
    assert "3 dead letters." in said.out
    as_json = tickrail("dead-letters", "redrive", "--all", "--dry-run", "--output", "json")
    assert as_json.json() == preview


def test_a_purge_of_launches_and_of_messages(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", f"{LETTERS}/purge", Answer(202, {**OPERATION, "kind": "dead_letters.purge"}))
    assert tickrail("dead-letters", "purge", "--yes", "--to", DIED).code == 0
    assert api.asked[-1].body == {"filter": {"to": DIED}}
    api.on("POST", f"{LETTERS}/purge", Answer(200, {"total": 2, "purged": 2, "items": []}))
    said = tickrail("dead-letters", "purge", "--yes", RAW)
    assert api.asked[-1].body == {"filter": {"kind": "undecodable", "id": [RAW]}}
    assert said.out == "Purged 2 of 2 messages.\n"
    tickrail("dead-letters", "purge", "--yes", "--undecodable", "--all")
    assert api.asked[-1].body == {"filter": {"kind": "undecodable"}}


@pytest.mark.parametrize(
    "words",
    [
        ("redrive",),
        ("purge",),
        ("redrive", ID, "--all"),
        ("redrive", ID, "--reason", "uncertain"),
        ("purge", ID, RAW),
        ("redrive", "--all", "--per-minute", "0"),
    ],
)
def test_wrong_use(tickrail: Tickrail, api: StubApi, words: tuple[str, ...]) -> None:
    assert tickrail("dead-letters", *words).code == 2
    assert api.asked == []


def test_one_launch_is_redriven(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    path = f"/v1/launches/{ID}/redrive"
    api.on("POST", path, Answer(202, {"id": ID, "state": "due", "attempt": 6}))
    said = tickrail("launches", "redrive", ID)
    assert said.out == f"Redriven {ID}: it is due at attempt 6.\n"
    assert api.asked[-1].body == {}
    (tmp_path / "p.json").write_text("null")
    tickrail("launches", "redrive", ID, "--payload", str(tmp_path / "p.json"), "--expected", "1")
    assert api.asked[-1].body == {"payload": None, "expected_redrive_count": 1}
    api.on("POST", path, problem(409, "conflict", "The job is deleted."))
    said = tickrail("launches", "redrive", ID)
    assert (said.code, "deleted" in said.err) == (1, True)


def test_a_redriven_launch_tells_its_failures(tickrail: Tickrail, api: StubApi) -> None:
    launch = {"id": ID, "state": "dead", "attempt": 7, "failures": 2, "max_attempts": 5,
              "redrive_count": 1, "job": {"name": "nightly", "version": 1}}  # fmt: skip
    api.on("GET", f"/v1/launches/{ID}", Answer(body=launch))
    assert "7 (2 of 5 failures)" in tickrail("launches", "get", ID).out

"""`tickrail jobs put` and `update`, and what the flags of `create` say in the document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail
from tests.unit.cli.test_jobs import JOB, NIGHTLY

PUT = "Put nightly, version 3, next run 2026-03-02 01:00:00Z.\n"
UPDATED = "Updated nightly, version 3, next run 2026-03-02 01:00:00Z.\n"


def test_put_sends_the_document_to_its_name(
    tickrail: Tickrail, api: StubApi, tmp_path: Path
) -> None:
    lint = [{"code": "herd", "message": "many jobs are due then", "pointer": "/schedule"}]
    api.on("PUT", NIGHTLY, Answer(201, JOB), Answer(200, JOB | {"lint": lint}))
    (tmp_path / "j.yaml").write_text("name: nightly\nstarts_at: 2026-12-01T00:00:00Z\n")
    assert tickrail("--utc", "jobs", "put", "-f", "j.yaml").out == PUT
    assert api.asked[0].body == {"name": "nightly", "starts_at": "2026-12-01T00:00:00Z"}
    assert "if-match" not in api.asked[0].headers
    said = tickrail("--utc", "jobs", "put", "-f", "j.yaml", "--if-version", "2")
    assert said.out == PUT + "note: many jobs are due then\n"
    assert api.asked[1].headers["if-match"] == '"2"'


def test_update_sends_a_merge_patch(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("PATCH", NIGHTLY, Answer(200, JOB))
    patch = {"overlap": "allow", "description": None}
    (tmp_path / "p.json").write_text(json.dumps(patch))
    words = ("jobs", "update", "nightly", "-f", "p.json")
    assert tickrail("--utc", *words).out == UPDATED
    assert api.asked[0].body == patch
    assert "if-match" not in api.asked[0].headers
    assert tickrail(*words, "--if-version", "2", "--output", "json").json() == JOB
    assert api.asked[1].headers["if-match"] == '"2"'
    api.on("PATCH", NIGHTLY, problem(412, "precondition_failed", "The job is at version 3, not 2."))
    said = tickrail(*words, "--if-version", "2")
    assert (said.code, said.err) == (1, "tickrail: The job is at version 3, not 2.\n")


def test_update_names_the_nearest_job(tickrail: Tickrail, api: StubApi, tmp_path: Path) -> None:
    api.on("PATCH", "/v1/jobs/name:nightli", problem(404, "not_found", "There is none."))
    api.on("GET", "/v1/jobs", Answer(body={"items": [JOB], "next_cursor": None}))
    (tmp_path / "p.json").write_text("{}")
    said = tickrail("jobs", "update", "nightli", "-f", "p.json")
    assert (said.code, "did you mean nightly?" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("put", "-f", "p.json"), 1, "p.json: /name: says which job is meant, and is missing"),
        (("put", "-f", "list.json"), 1, "list.json: a job is an object"),
        (("put",), 2, "--file"),
        (("update", "-f", "p.json"), 2, "JOB"),
        (("update", "x", "-f", "none.json"), 1, "none.json"),
        (("create", "--misfire", "never"), 2, "fire_once"),
        (("create", "--overlap", "never"), 2, "buffer_one"),
    ],
)
def test_wrong_use_is_said(
    tickrail: Tickrail, tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "p.json").write_text("{}")
    (tmp_path / "list.json").write_text("[]")
    said = tickrail("jobs", *words)
    assert said.code == code
    assert text in said.err


def test_flags_of_create_add_to_the_document(
    tickrail: Tickrail, api: StubApi, tmp_path: Path
) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    document = {
        "misfire": {"grace": "5s"},
        "tags": {"team": "ops"},
        "calendars": {"include": ["a"]},
    }
    (tmp_path / "j.json").write_text(json.dumps(document))
    flags = ("--name", "x", "--misfire", "skip", "--overlap", "buffer_one", "--exclude", "b")
    tags = ("--tag", "team:billing", "--tag", "url:http://x", "--tag", "urgent")
    assert tickrail("jobs", "create", "-f", "j.json", *flags, *tags).code == 0
    assert api.asked[0].body == {
        "name": "x",
        "overlap": "buffer_one",
        "misfire": {"grace": "5s", "policy": "skip"},
        "tags": {"team": "billing", "url": "http://x", "urgent": ""},
        "calendars": {"include": ["a"], "exclude": ["b"]},
    }


def test_what_is_told_of_a_job_is_given_by_flags(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    told = ("--notify", "webhook:ops", "--notify", "kafka:t", "--expect-success-every", "26h")
    tickrail("jobs", "create", "--name", "a", "--webhook", "https://e.org", *told)
    assert api.asked[0].body["on_failures"] == {
        "notify": ["webhook:ops", "kafka:t"],
        "expect_success_every": "26h",
    }
    api.on("GET", NIGHTLY, Answer(200, JOB | {"silent_since": "2026-03-01T01:00:00Z"}))
    shown = tickrail("--utc", "jobs", "get", "nightly").out
    assert re.search(r"no success since +2026-03-01 01:00:00Z", shown)

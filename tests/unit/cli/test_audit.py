from __future__ import annotations

import json
from pathlib import Path

from tests.support.stub_api import Answer, StubApi
from tests.unit.cli.conftest import Tickrail

LOG = "/v1/audit-log"
ENTRY = {
    "id": "01914b6e-0000-7000-8000-000000000001", "at": "2026-03-01T12:00:00Z",
    "actor": "key:abc", "action": "job.pause", "subject": "job:1", "before": None,
    "after": {"reason": "Grüße"}, "request_id": "r-1", "address": "192.0.2.7",
}  # fmt: skip


def test_entries_are_listed_by_what_they_say(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", LOG, Answer(body={"items": [ENTRY], "next_cursor": None}))
    table = tickrail("--utc", "audit", "list").out
    for word in ("2026-03-01 12:00:00Z", "key:abc", "job.pause", "job:1", "192.0.2.7", "r-1"):
        assert word in table
    flags = ("--actor", "a", "--action", "b", "--subject", "c", "--request", "d", "--from", "e")
    said = tickrail("audit", "list", *flags, "--to", "f", "-n", "7", "--output", "json")
    assert said.json() == {"items": [ENTRY]}
    assert dict(api.asked[-1].query) == {
        "actor": ["a"], "action": ["b"], "subject": ["c"], "request_id": ["d"],
        "from": ["e"], "to": ["f"], "limit": ["7"],
    }  # fmt: skip


def test_an_export_has_every_page_as_lines(
    tickrail: Tickrail, api: StubApi, tmp_path: Path
) -> None:
    first = {"items": [ENTRY, {**ENTRY, "subject": "job:2"}], "next_cursor": "more"}
    last = {"items": [{**ENTRY, "subject": "job:3"}], "next_cursor": None}
    api.on("GET", LOG, Answer(body=first), Answer(body=last))
    lines = tickrail("audit", "export").out.splitlines()
    assert [json.loads(line)["subject"] for line in lines] == ["job:1", "job:2", "job:3"]
    assert json.loads(lines[0]) == ENTRY
    assert dict(api.asked[0].query) == {"limit": ["500"], "sort": ["at"]}
    api.on("GET", LOG, Answer(body=last))
    assert tickrail("audit", "export", "-f", "log.ndjson").out == "Wrote 1 entry to log.ndjson.\n"
    assert (tmp_path / "log.ndjson").read_text("utf-8").count("\n") == 1
    said = tickrail("audit", "export", "-f", "nowhere/log.ndjson")
    assert (said.code, "nowhere/log.ndjson cannot be written" in said.err) == (1, True)

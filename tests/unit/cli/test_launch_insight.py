"""`tickrail launches log | explain` and `tickrail system workers`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail.sdk.client import Client, UnreachableError
from tickrail_cli.launch_insight import new_text

LOG, EXPLAIN, WORKERS = "/v1/launches/L1/log", "/v1/launches/L1/explain", "/v1/system/workers"


def log(body: str = "", *, live: bool = False, **more: Any) -> Answer:
    size = len(body.encode())
    return Answer(
        body={"attempt": 1, "body": body, "size": size, "truncated": False,
              "updated_at": "2026-03-02T10:00:00Z", "live": live} | more
    )  # fmt: skip


def test_a_log_as_it_is_without_what_moves_the_cursor(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", LOG, log("one\ttab\n\x1b[31mred\nno end"))
    said = tickrail("launches", "log", "L1")
    assert said.out == "one\ttab\n\ufffd[31mred\nno end"
    assert (said.code, said.err) == (0, "")
    assert api.asked[-1].query == {}


def test_the_log_of_an_attempt_whole_for_programs(tickrail: Tickrail, api: StubApi) -> None:
    answer = log("x", attempt=2)
    api.on("GET", LOG, answer)
    said = tickrail("launches", "log", "L1", "--attempt", "2", "--output", "json")
    assert said.json() == answer.body
    assert api.asked[-1].query == {"attempt": ["2"]}
    assert yaml.safe_load(tickrail("launches", "log", "L1", "--output", "yaml").out) == answer.body


def test_what_is_left_out_and_what_is_not_there_is_said(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", LOG, log("end\n", truncated=True, size=99999))
    said = tickrail("launches", "log", "L1")
    assert (said.out, said.err) == ("end\n", "(the end of 99999 bytes)\n")
    api.on("GET", LOG, log(attempt=0))
    said = tickrail("launches", "log", "L1")
    assert (said.out, said.err) == ("", "No attempt yet.\n")
    api.on("GET", LOG, problem(404, "not_found", "There is no launch with the id L1."))
    said = tickrail("launches", "log", "L1")
    assert (said.code, said.out) == (1, "")
    assert "no launch" in said.err


def test_following_shows_each_part_once_until_the_attempt_has_ended(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on(
        "GET", LOG,
        log(attempt=0),
        log("a\ncaf\ufffd", live=True),
        log("a\ncaf\u00e9\n", live=True),
        log("caf\u00e9\nb\n", live=True, truncated=True),  # the tail has moved on
        log("caf\u00e9\nb\nend", live=False),
    )  # fmt: skip
    said = tickrail("launches", "log", "L1", "--follow")
    assert said.out == "a\ncaf\u00e9\nb\nend"
    assert said.err == "No attempt yet.\n"
    # From the first attempt that is seen on, that one is followed.
    assert [a.query for a in api.asked] == [{}, {}, *[{"attempt": ["1"]}] * 3]


def test_following_for_programs_answers_at_the_end(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", LOG, log("a", live=True), log("ab"))
    said = tickrail("launches", "log", "L1", "--follow", "--output", "json")
    assert said.json()["body"] == "ab"


def test_following_waits_for_an_api_that_is_away(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("GET", LOG, log("a\n", live=True), log("a\nb\n"))
    asked, calls = Client.request, iter(range(9))

    def request(self: Client, method: str, path: str, **more: Any) -> Any:
        if next(calls) in (1, 2):
            raise UnreachableError("The API does not answer.")
        return asked(self, method, path, **more)

    monkeypatch.setattr(Client, "request", request)
    said = tickrail("launches", "log", "L1", "--follow")
    assert (said.code, said.out) == (0, "a\nb\n")
    assert said.err == "The API does not answer.; waiting\n"


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("", "abc", "abc"),
        ("ab", "abc", "c"),
        ("abc", "abc", ""),
        ("abcdef", "defgh", "gh"),
        ("abc", "xyz", "xyz"),
        ("abab", "ababab", "ab"),
        ("xxab", "abab", "ab"),
        ("abc", "", ""),
        ("0123456789" * 6553, "0123456789" * 6000 + "end", "end"),
        ("x" * 3000, "x" * 2000 + "y", "y"),
        ("1" * 500 + "end", "1" * 100 + "end more", " more"),
    ],
)
def test_what_a_moving_tail_has_more(before: str, after: str, new: str) -> None:
    assert new_text(before, after) == new


def check(name: str, ok: bool | None, until: str | None = None) -> dict[str, Any]:
    return {"check": name, "ok": ok, "detail": f"about {name}", "until": until}


def test_explain_marks_what_holds(tickrail: Tickrail, api: StubApi) -> None:
    answer = {
        "launch": "L1", "state": "retrying", "holds": "retry", "ended": None,
        "checks": [
            check("tenant", ok=True), check("retry", ok=False, until="2026-03-02T10:00:00Z"),
            check("partition", ok=None), check("relay", ok=False),
        ],
    }  # fmt: skip
    api.on("GET", EXPLAIN, Answer(body=answer))
    said = tickrail("launches", "explain", "L1", "--utc")
    assert said.out.splitlines() == [
        "L1 is retrying",
        "  + tenant     about tenant",
        "> - retry      about retry (2026-03-02 10:00:00Z)",
        "    partition  about partition",
        "  - relay      about relay",
    ]
    assert tickrail("launches", "explain", "L1", "--output", "json").json() == answer


def test_explain_says_how_it_ended(tickrail: Tickrail, api: StubApi) -> None:
    ended = {
        "reason": "not_retryable", "outcome": "http_404", "attempts": 1,
        "detail": "Not retryable after 1 of 5 failures; the last: http_404.",
        "at": "2026-03-02T10:00:00Z",
    }  # fmt: skip
    answer = {"launch": "L1", "state": "dead", "holds": None, "checks": [], "ended": ended}
    api.on("GET", EXPLAIN, Answer(body=answer))
    said = tickrail("launches", "explain", "L1", "--utc")
    assert said.out == (
        "L1 is dead at 2026-03-02 10:00:00Z: Not retryable after 1 of 5 failures; the last:"
        " http_404.\n"
    )


def test_workers(tickrail: Tickrail, api: StubApi) -> None:
    worker = {
        "id": "w-1-0a", "name": "w-1", "state": "active", "queues": ["default", "mail"],
        "kinds": ["webhook", "task"], "tasks": [], "version": "0.1.0", "concurrency": 8,
        "running": 3, "draining": False, "started_at": "2026-03-02T09:00:00Z",
        "seen_at": "2026-03-02T10:00:00Z",
    }  # fmt: skip
    answer = {"items": [worker], "next_cursor": None}
    api.on("GET", WORKERS, Answer(body=answer))
    row = tickrail("--utc", "system", "workers").out.splitlines()[2]
    for word in ("w-1", "active", "3 of 8", "default, mail", "webhook, task", "10:00:00Z"):
        assert word in row
    assert tickrail("system", "workers", "--output", "json").json() == answer
    api.on("GET", WORKERS, Answer(body={"items": [], "next_cursor": None}))
    assert tickrail("system", "workers").out == "No worker is there.\n"


def test_lag(tickrail: Tickrail, api: StubApi) -> None:
    queue = {
        "queue": "mail", "priority": "low", "due": 12, "queued": 4, "running": 7,
        "oldest_due": "1m30s", "oldest_queued": None,
    }  # fmt: skip
    answer = {
        "plan": "3s", "publish": "1m30s", "start": "0s", "items": [queue], "next_cursor": None,
    }  # fmt: skip
    api.on("GET", "/v1/system/lag", Answer(body=answer))
    said = tickrail("system", "lag").out.splitlines()
    assert said[0] == "Behind: planning 3s, publishing 1m30s, starting 0s."
    assert said[3].split() == ["mail", "low", "12", "1m30s", "4", "-", "7"]
    assert tickrail("system", "lag", "--output", "json").json() == answer
    api.on("GET", "/v1/system/lag", Answer(body={**answer, "items": []}))
    assert tickrail("system", "lag").out.splitlines()[1] == "Nothing waits and nothing runs."

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.support.clock import START
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail_cli.follow import Follower


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def launch(name: str, state: str, second: float = 0, **more: Any) -> dict[str, Any]:
    ended = state in {"succeeded", "dead", "cancelled"}
    return {
        "id": name,
        "job": {"id": "j", "name": "nightly", "version": 1},
        "state": state,
        "attempt": 1,
        "max_attempts": 5,
        "scheduled_at": at(second),
        "created_at": at(second),
        "started_at": at(second) if state != "due" else None,
        "finished_at": at(second) if ended else None,
        "result": {"outcome": "http_500", "message": "no"} if state == "dead" else None,
        **more,
    }


def page(*items: Any) -> Answer:
    return Answer(body={"items": list(items), "next_cursor": None})


def test_list_filters_and_shows(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs/name:nightly", Answer(body={"id": "j", "name": "nightly"}))
    api.on("GET", "/v1/launches", page(launch("L1", "dead", attempt=5)))
    flags = ("--job", "nightly", "--state", "dead", "--tag", "a:b", "-n", "3")
    said = tickrail("launches", "list", *flags, "--from", at(0), "--utc")
    assert dict(api.asked[-1].query) == {
        "job": ["j"], "state": ["dead"], "tag": ["a:b"], "limit": ["3"], "from": [at(0)],
    }  # fmt: skip
    for word in ("nightly", "5 of 5", "http_500: no", "2026-03-02 10:00:00Z", "L1"):
        assert word in said.out


def test_a_long_message_stays_within_its_line_of_the_list(tickrail: Tickrail, api: StubApi) -> None:
    found = launch("L1", "dead", result={"outcome": "raised_ValueError", "message": "x" * 400})
    api.on("GET", "/v1/launches", page(found))
    api.on("GET", "/v1/launches/L1", Answer(body=found))
    assert max(map(len, tickrail("launches", "list").out.splitlines())) < 200
    assert "x" * 400 in tickrail("launches", "get", "L1").out.replace("\n", "").replace(" ", "")


def test_get_cancel_and_attempts(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/launches/L1", Answer(body=launch("L1", "running")))
    api.on("POST", "/v1/launches/L1/cancel", Answer(202, launch("L1", "running")))
    api.on("POST", "/v1/launches/L2/cancel", Answer(202, launch("L2", "cancelled")))
    row = {"attempt": 1, "outcome": "http_500", "code": 500, "message": "no"}
    api.on("GET", "/v1/launches/L1/attempts", page(row))
    assert "running" in tickrail("launches", "get", "L1").out
    assert tickrail("launches", "cancel", "L1", "L2").out == "Asked to stop L1.\nCancelled L2.\n"
    assert "http_500" in tickrail("launches", "attempts", "L1").out


def test_what_a_task_returned_is_shown(tickrail: Tickrail, api: StubApi) -> None:
    result = {"outcome": "ok", "code": None, "message": "", "body": "", "value": {"sum": [1, 2]}}
    api.on("GET", "/v1/launches/L1", Answer(body={**launch("L1", "succeeded"), "result": result}))
    assert 'value         {"sum": [1, 2]}' in tickrail("launches", "get", "L1").out


def test_an_unknown_launch_is_1(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/launches/X", problem(404, "not_found", "There is no launch X."))
    said = tickrail("launches", "get", "X")
    assert (said.code, said.err) == (1, "tickrail: There is no launch X.\n")


def test_follow_prints_a_line_for_each_start_and_end_until_interrupted(
    tickrail: Tickrail, api: StubApi
) -> None:
    def interrupted(_asked: object) -> Answer:
        import _thread  # noqa: PLC0415 - only here

        _thread.interrupt_main()
        return page()

    api.on(
        "GET",
        "/v1/launches",
        page(launch("L0", "succeeded", 0)),
        page(launch("L1", "running", 1), launch("L0", "succeeded", 0)),
        page(launch("L1", "dead", 2), launch("L0", "succeeded", 0)),
        interrupted,
    )
    said = tickrail("launches", "list", "--follow", "--utc")
    lines = [line.split() for line in said.out.splitlines()]
    assert [(line[1], line[2], line[3], line[-1]) for line in lines] == [
        ("10:00:01Z", "running", "nightly", "L1"),
        ("10:00:02Z", "dead", "nightly", "L1"),
    ]
    assert said.code == 0


class Seen:
    """The API's launches, as a follower reads them."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.by_id: dict[str, dict[str, Any]] = {}
        self.reads = 0
        self.follower = Follower(self.newest, self.by_id.get)

    def newest(self) -> Iterator[Mapping[str, Any]]:
        for item in self.listed:
            self.reads += 1
            yield item

    def poll(self) -> list[tuple[str, str, datetime | None]]:
        return [(str(c.launch["id"]), c.state, c.at) for c in self.follower.poll()]


def test_the_first_look_shows_only_what_runs() -> None:
    seen = Seen()
    seen.listed = [launch("a", "running"), launch("b", "succeeded"), launch("c", "due")]
    assert [c[:2] for c in seen.poll()] == [("a", "running")]
    assert seen.poll() == []


def test_a_launch_between_two_looks_is_shown_once_ended() -> None:
    seen = Seen()
    seen.poll()
    seen.listed = [launch("a", "succeeded", 5), launch("b", "dead", 4)]
    assert [c[:2] for c in seen.poll()] == [("b", "dead"), ("a", "succeeded")]
    assert seen.poll() == []


def test_a_retry_is_shown_again() -> None:
    seen = Seen()
    seen.listed = [launch("a", "running", 1)]
    seen.poll()
    seen.listed = [launch("a", "retrying", 1)]
    assert [c[1] for c in seen.poll()] == ["retrying"]
    seen.listed = [launch("a", "running", 9, attempt=2)]
    assert [c[1] for c in seen.poll()] == ["running"]


def test_an_open_launch_that_is_no_longer_among_the_newest_is_read_by_id() -> None:
    seen = Seen()
    seen.listed = [launch("old", "running", 1), launch("gone", "running", 1)]
    seen.poll()
    seen.listed = [launch("new", "running", 2)]
    seen.by_id["old"] = launch("old", "succeeded", 3)
    assert [c[:2] for c in seen.poll()] == [("new", "running"), ("old", "succeeded")]
    assert seen.poll() == []


def test_old_launches_are_neither_read_to_the_end_nor_shown() -> None:
    seen = Seen()
    old = [launch(f"o{n}", "succeeded", -n) for n in range(3000)]
    seen.listed = [launch("slow", "running", 1), *old]
    seen.poll()
    assert seen.reads == 1000
    seen.reads = 0
    # An end in the middle makes the look go deeper than before, to launches long over.
    seen.listed = [*old[:90], launch("slow", "succeeded", 2), *old[90:]]
    assert [c[:2] for c in seen.poll()] == [("slow", "succeeded")]
    assert seen.reads < 1000

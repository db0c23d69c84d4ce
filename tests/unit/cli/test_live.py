"""`--watch`: what changed in a pipe, a redrawn table on a terminal; bars for what takes long."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console
from tests.support.stub_api import Answer, Asked, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail.sdk.client import UnreachableError
from tickrail_cli import live
from tickrail_cli.context import Context
from tickrail_cli.output import Column, table_of

COLUMNS = (Column("name", "name"), Column("state", "state", "state"))


def job(name: str, state: str) -> dict[str, str]:
    return {"name": name, "state": state}


def looks(*answers: object) -> Callable[[], Any]:
    """Fetches that answer one after the other; after the last, Ctrl-C."""
    left: Iterator[object] = iter(answers)

    def fetch() -> object:
        found = next(left, KeyboardInterrupt())
        if isinstance(found, BaseException):
            raise found
        return found

    return fetch


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between two looks."""
    monkeypatch.setattr(live, "_POLL", 0.0)


def session(output: str = "table", *, terminal: bool = False) -> tuple[Context, io.StringIO]:
    out = io.StringIO()
    made = Context(flags={}, environ={}, output=output)
    made._console = Console(file=out, force_terminal=terminal, width=60, highlight=False)
    return made, out


AWAY = UnreachableError("http://x does not answer")
LOOKS: Sequence[object] = (
    [job("b", "active"), job("a", "active")],
    [job("b", "active"), job("a", "active")],
    AWAY,
    AWAY,
    [job("c", "active"), job("b", "paused"), job("a", "active")],
)


def test_a_pipe_gets_a_line_for_what_is_new_or_different(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made, out = session()
    live.show_items(made, looks(*LOOKS), COLUMNS, empty="None.", live=True)
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["a", "active"],
        ["b", "active"],
        ["b", "paused"],
        ["c", "active"],
    ]
    assert capsys.readouterr().err == "http://x does not answer; waiting\n"


def test_a_pipe_is_told_that_a_list_is_empty_as_the_plain_list_does() -> None:
    made, out = session()
    live.show_items(made, looks([]), COLUMNS, empty="No jobs.", live=False)
    fetch = looks([], [], [job("a", "active")], [job("a", "active")], [])
    live.show_items(made, fetch, COLUMNS, empty="No jobs.", live=True)
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "No jobs.", "No jobs.", "a   active", "No jobs.",
    ]  # fmt: skip


def test_what_has_several_parts_is_shown_whole_at_each_change() -> None:
    made, out = session()

    def parts(found: Mapping[str, Any]) -> list[Any]:
        return [f"[{found['n']}]", table_of(made, [job("a", "active")], COLUMNS)]

    live.show_whole(made, looks({"n": 1}, {"n": 1}, {"n": 2}), parts, live=True)
    table = [["name", "state"], ["a", "active"]]
    lines = [line.split() for line in out.getvalue().splitlines() if "\u2500" not in line]
    assert lines == [["[1]"], *table, ["[2]"], *table]


def test_a_program_gets_a_document_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = session("json")
    live.show_items(made, looks(*LOOKS), COLUMNS, empty="None.", live=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(x["name"], x["state"]) for x in lines] == [
        ("a", "active"), ("b", "active"), ("b", "paused"), ("c", "active"),
    ]  # fmt: skip


def test_on_a_terminal_the_table_is_drawn_over() -> None:
    made, out = session(terminal=True)
    live.show_items(made, looks([], *LOOKS), COLUMNS, empty="No jobs.", live=True)
    text = out.getvalue()
    assert "No jobs." in text
    assert "does not answer; waiting" in text
    assert text.count("name") >= 3
    assert "\x1b[2K" in text  # the lines before are cleared


def test_one_thing_is_shown_until_it_has_ended() -> None:
    made, out = session()
    seen: list[Mapping[str, str]] = []

    def ended(found: Mapping[str, str]) -> bool:
        seen.append(found)
        return found["state"] == "done"

    fetch = looks(job("a", "running"), job("a", "running"), job("a", "done"), AssertionError())
    live.show_item(made, fetch, COLUMNS, live=True, ended=ended)
    assert out.getvalue().split() == ["name", "a", "state", "running", "name", "a", "state", "done"]
    assert len(seen) == 3


def test_what_is_wrong_at_first_ends_the_command() -> None:
    with pytest.raises(UnreachableError):
        live.show_items(session()[0], looks(AWAY), COLUMNS, empty="", live=True)


def test_a_launch_is_watched_to_its_end(tickrail: Tickrail, api: StubApi) -> None:
    launch = {"id": "L1", "job": {"name": "a", "version": 1}, "attempt": 1, "max_attempts": 5}
    states = ("queued", "running", "succeeded")
    api.on("GET", "/v1/launches/L1", *(Answer(body=launch | {"state": s}) for s in states))
    said = tickrail("launches", "get", "L1", "--watch", "--output", "json")
    assert (said.code, [json.loads(line)["state"] for line in said.out.splitlines()]) == (
        0, list(states)
    )  # fmt: skip


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("dead", 1), ("cancelled", 1)])
def test_a_launch_by_hand_is_watched_to_its_end(
    tickrail: Tickrail, api: StubApi, state: str, code: int
) -> None:
    launch = {"id": "L1", "job": {"name": "a", "version": 1}, "attempt": 1, "max_attempts": 5}
    api.on("POST", "/v1/jobs/name:a/trigger", Answer(201, launch | {"state": "due"}))
    answers = (Answer(body=launch | {"state": s}) for s in ("due", "running", state))
    api.on("GET", "/v1/launches/L1", *answers)
    words = ("--watch", "--output", "json", "--copy-of", "L0")
    said = tickrail("jobs", "trigger", "a", *words)
    assert (said.code, len(said.out.splitlines())) == (code, 3)
    assert api.asked[0].body == {"copy_of": "L0"}


def test_the_newest_launch_is_found_by_the_name_of_its_job(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("GET", "/v1/jobs/name:a", Answer(body={"id": "J1", "name": "a"}))
    launch = {"id": "L1", "job": {"name": "a", "version": 1}, "attempt": 1, "max_attempts": 5}
    page = Answer(body={"items": [{"id": "L1"}], "next_cursor": None})
    api.on("GET", "/v1/launches", page)
    api.on("GET", "/v1/launches/L1", Answer(body=launch | {"state": "due"}))
    assert tickrail("launches", "get", "a", "--output", "json").json()["id"] == "L1"
    assert api.asked[1].query == {"job": ["J1"], "limit": ["1"]}
    api.on("GET", "/v1/launches", Answer(body={"items": [], "next_cursor": None}))
    said = tickrail("launches", "explain", "a")
    assert (said.code, said.err) == (1, "Error: the job a has no launch yet\n")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("usage",), "/v1/usage"),
        (("tenants", "get", "acme"), "/v1/tenants/acme"),
        (("calendars", "get", "off"), "/v1/calendars/off"),
        (("dead-letters", "get", "L1"), "/v1/dead-letters/L1"),
        (("system", "lag"), "/v1/system/lag"),
    ],
)
def test_single_things_are_watched(
    tickrail: Tickrail, api: StubApi, words: Sequence[str], path: str
) -> None:
    looked = (Answer(body={"name": "a", "state": state}) for state in ("first", "first", "second"))
    api.on("GET", path, *looked, problem(403, "forbidden", "enough was seen"))
    said = tickrail(*words, "--watch", "--output", "json")
    seen = [json.loads(line)["state"] for line in said.out.splitlines()]
    assert (said.code, seen) == (1, ["first", "second"])


def test_watching_what_is_not_there_is_an_error(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/launches/L1", problem(404, "not_found", "There is no such launch."))
    assert tickrail("launches", "get", "L1", "--watch").code == 1
    assert tickrail("launches", "list", "--watch", "--follow").code == 2


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("calendars", "list"), "/v1/calendars"),
        (("secrets", "list"), "/v1/secrets"),
        (("keys", "list"), "/v1/api-keys"),
        (("tenants", "list"), "/v1/tenants"),
        (("system", "workers"), "/v1/system/workers"),
        (("audit", "list"), "/v1/audit-log"),
        (
            ("launches", "attempts", "0195a3f0-0000-7000-8000-000000000001"),
            "/v1/launches/0195a3f0-0000-7000-8000-000000000001/attempts",
        ),
    ],
)
def test_lists_are_watched(
    tickrail: Tickrail, api: StubApi, words: Sequence[str], path: str
) -> None:
    states = iter(("first", "first", "second"))

    def answer(_: Asked) -> Answer:
        state = next(states, None)
        if state is None:
            return problem(403, "forbidden", "enough was seen")
        return Answer(body={"items": [{"name": "a", "state": state}], "next_cursor": None})

    api.on("GET", path, answer)
    said = tickrail(*words, "--watch", "--output", "json")
    seen = [json.loads(line)["state"] for line in said.out.splitlines()]
    assert (said.code, seen) == (1, ["first", "second"])
    assert "enough was seen" in said.err

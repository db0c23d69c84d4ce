from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail_cli import home

TOKEN = "/v1/secrets/token"
SECRET = {"name": "token", "updated_at": "2026-03-01T12:00:00Z"}


class Stdin(io.TextIOWrapper):
    """Standard input with these bytes, a terminal or not."""

    def __init__(self, content: bytes, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content), "utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_list_has_names_only(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/secrets", Answer(body={"items": [SECRET], "next_cursor": None}))
    table = tickrail("--utc", "secrets", "list").out
    assert "token" in table
    assert "2026-03-01 12:00:00Z" in table
    api.on("GET", "/v1/secrets", Answer(body={"items": [], "next_cursor": None}))
    assert "`tickrail secrets set NAME` makes one" in tickrail("secrets", "list").out


@pytest.mark.parametrize(
    ("content", "value"),
    [(b"a b", "a b"), (b"a\n", "a"), (b"a\r\n", "a"), (b"a\n\n", "a\n"), (b" \xc3\xbc ", " ü ")],
)
def test_set_reads_standard_input_or_a_file(
    tickrail: Tickrail,
    api: StubApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    value: str,
) -> None:
    api.on("PUT", TOKEN, Answer(201, SECRET))
    (tmp_path / "value").write_bytes(content)
    assert tickrail("secrets", "set", "token", "-f", "value").out == "Set token.\n"
    monkeypatch.setattr(sys, "stdin", Stdin(content))
    assert tickrail("secrets", "set", "token", "--output", "json").json() == SECRET
    assert [asked.body for asked in api.asked] == [{"value": value}] * 2


def test_set_asks_on_a_terminal_without_showing(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("PUT", TOKEN, Answer(body=SECRET))
    hidden: list[bool] = []

    def prompt(*_: object, hide_input: bool, confirmation_prompt: bool) -> str:
        hidden.append(hide_input and confirmation_prompt)
        return "hush"

    monkeypatch.setattr(sys, "stdin", Stdin(b"", terminal=True))
    monkeypatch.setattr("click.prompt", prompt)
    said = tickrail("secrets", "set", "token")
    assert (said.code, hidden) == (0, [True])
    assert "hush" not in said.out + said.err
    assert api.asked[0].body == {"value": "hush"}


def test_a_value_is_no_word_of_the_command_line(tickrail: Tickrail, api: StubApi) -> None:
    assert tickrail("secrets", "set", "token", "hush").code == 2
    assert api.asked == []


def test_delete_says_which_jobs_use_it(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", TOKEN, Answer(body=SECRET))
    used = {"pointer": "", "message": "the job 'a' names it", "expected": "a job without it"}
    api.on("DELETE", TOKEN, problem(409, "conflict", "The secret is used by a.", used))
    said = tickrail("secrets", "delete", "--yes", "token")
    assert said.code == 1
    assert "the job 'a' names it" in said.err
    api.on("GET", "/v1/secrets/gone", problem(404, "not_found", "There is none."))
    assert "nothing to delete" in tickrail("secrets", "delete", "--yes", "gone").out


def test_a_new_key_is_one(tickrail: Tickrail) -> None:
    first, second = tickrail("secrets", "new-key").out, tickrail("secrets", "new-key").out
    assert first != second
    Fernet(first.strip())


def test_up_keeps_one_key_in_its_folder(tmp_path: Path) -> None:
    assert home.secret_keys(tmp_path) == ()
    (made,) = home.secret_keys(tmp_path, make=True)
    Fernet(made)
    assert home.secret_keys(tmp_path, make=True) == (made,)
    assert (tmp_path / home.KEPT_FILE).stat().st_mode & 0o077 == 0


def test_keys_that_are_none_are_refused_without_being_shown(
    tickrail: Tickrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKRAIL_SECRET_KEYS", "hush,hush")
    said = tickrail("secrets", "rekey")
    assert said.code == 2
    assert "TICKRAIL_SECRET_KEYS" in said.err
    assert "hush" not in said.err

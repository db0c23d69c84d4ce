"""What destroys asks first: on a terminal a question, elsewhere `--yes` or a refusal."""

from __future__ import annotations

import io
import sys

import pytest
from tests.support.stub_api import Answer, StubApi
from tests.unit.cli.conftest import Tickrail

from tickrail_cli.confirm import named

NIGHTLY = "/v1/jobs/name:nightly"


class Terminal(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "delete", "nightly"),
        ("calendars", "delete", "days"),
        ("secrets", "delete", "token"),
        ("queues", "delete", "mail"),
        ("dead-letters", "purge", "--all"),
    ],
)
def test_without_a_terminal_and_without_yes_nothing_is_destroyed(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    said = tickrail(*words)
    assert said.code == 2
    assert "give --yes. Nothing was done." in said.err
    assert api.asked == []


@pytest.mark.parametrize(("answer", "code", "calls"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)])
def test_on_a_terminal_the_question_is_asked(
    tickrail: Tickrail,
    api: StubApi,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    calls: int,
) -> None:
    api.on("DELETE", NIGHTLY, Answer(204))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    said = tickrail("jobs", "delete", "nightly")
    assert (said.code, len(api.asked)) == (code, calls)
    assert "Delete the job nightly? [y/N]" in said.err


def test_a_long_list_is_cut_short() -> None:
    assert named("job", ["a"]) == "the job a"
    assert named("job", ["a", "b"]) == "2 jobs: a, b"
    assert named("job", list("abcdefg")) == "7 jobs: a, b, c, d, e and 2 more"

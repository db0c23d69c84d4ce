from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail.runtime.settings import Settings
from tickrail_cli import main
from tickrail_cli.installation import DRAIN

EMPTY = Answer(body={"items": [], "next_cursor": None})


def test_the_help_names_every_command_and_imports_none(tickrail: Tickrail) -> None:
    said = tickrail("--help")
    assert said.code == 0
    assert all(f"  {name} " in said.out for name in main.COMMANDS)


def test_the_help_of_up_says_how_long_its_processes_drain(tickrail: Tickrail) -> None:
    said = " ".join(tickrail("up", "--help").out.split())
    assert f"may go on after a stop is asked for. [{DRAIN:g}]" in said
    said = " ".join(tickrail("worker", "--help").out.split())
    assert f"may go on after a stop is asked for. [{Settings().drain_grace:g}]" in said


def test_the_help_is_quick_and_needs_nothing_heavy() -> None:
    code = (
        "import sys; from tickrail_cli.main import run; run(['--help']);"
        "print([m for m in ('httpx','rich','pydantic','yaml','psycopg') if m in sys.modules])"
    )
    best = 99.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, spent)  # CPU time: other work on the machine does not count
        assert done.stdout.splitlines()[-1] == "[]"
    assert best < 1.0


@pytest.mark.parametrize("name", [n for n in main.COMMANDS if n not in {"up", "down"}])
def test_every_command_has_a_help(tickrail: Tickrail, name: str) -> None:
    said = tickrail(name, "--help")
    assert said.code == 0
    assert f"Usage: tickrail {name}" in said.out


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("job", "list"), "did you mean jobs?"),
        (("jobs", "lst"), "did you mean list or slots?"),
        (("jobs", "list", "--stat", "x"), "--stat"),
        (("launches", "list", "--state", "ded"), "'dead'"),
        (("zzzzzz",), "there are up, down, migrate"),
    ],
)
def test_wrong_use_is_2_and_names_what_is_near(
    tickrail: Tickrail, words: tuple[str, ...], near: str
) -> None:
    said = tickrail(*words)
    assert said.code == 2
    assert near in said.err


def test_what_is_not_installed_breaks_its_own_command_only(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ("tickrail_cli.no_such_module:x", "Run", "Nothing.")
    monkeypatch.setitem(main.COMMANDS, "up", row)
    said = tickrail("up")
    assert said.code == 1
    assert "tickrail[local]" in said.err
    api.on("GET", "/v1/jobs", EMPTY)
    assert tickrail("jobs", "list").code == 0


def test_an_unreachable_server_is_3(tickrail: Tickrail, api: StubApi) -> None:
    api.close()
    said = tickrail("jobs", "list")
    assert said.code == 3
    assert f"{api.url} does not answer" in said.err
    assert "--url" in said.err
    api.__init__()  # type: ignore[misc]  # the fixture closes it again


def test_what_is_no_api_is_3(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", Answer(text="<html>hello"))
    said = tickrail("jobs", "list")
    assert said.code == 3
    assert "not Tickrail's API" in said.err


def test_a_bad_key_is_1_with_a_hint(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", problem(401, "unauthenticated", "A valid API key is needed."))
    said = tickrail("jobs", "list")
    assert said.code == 1
    assert "A valid API key is needed." in said.err
    assert "TICKRAIL_API_KEY" in said.err


def test_an_operator_names_the_tenant(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", EMPTY)
    assert tickrail("--tenant", "acme", "jobs", "list").code == 0
    assert api.asked[-1].headers["tickrail-tenant"] == "acme"


def test_a_failure_of_the_server_names_the_request(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", problem(500, "internal", "The request failed."))
    said = tickrail("jobs", "list")
    assert said.code == 1
    assert "request req-1" in said.err


def test_an_unknown_setting_and_a_wrong_value_are_2(
    tickrail: Tickrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKRAIL_API_KYE", "x")
    monkeypatch.setenv("TICKRAIL_API_TIMEOUT", "soon")
    said = tickrail("jobs", "list")
    assert said.code == 2
    assert "TICKRAIL_API_KYE: there is no such setting (did you mean TICKRAIL_API_KEY?)" in said.err
    assert "TICKRAIL_API_TIMEOUT: 'soon' is not right (a duration such as" in said.err


def test_a_wrong_flag_of_a_service_is_2(tickrail: Tickrail) -> None:
    said = tickrail("scheduler", "--lease-ttl", "long")
    assert said.code == 2
    assert "--lease-ttl: 'long' is not right (a whole number from 2 to 600)" in said.err


def test_the_file_in_the_folder_is_read_and_another_can_be_named(
    tickrail: Tickrail, api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TICKRAIL_API_URL")
    api.on("GET", "/v1/jobs", EMPTY)
    (tmp_path / "tickrail.toml").write_text(f"api_url = '{api.url}'\n")
    (tmp_path / "other.toml").write_text("api_url = 'no'\n")
    assert tickrail("jobs", "list").code == 0
    said = tickrail("--config", "other.toml", "jobs", "list")
    assert (said.code, "other.toml: api_url" in said.err) == (2, True)
    monkeypatch.setenv("TICKRAIL_CONFIG", "missing.toml")
    said = tickrail("jobs", "list")
    assert (said.code, "missing.toml: it cannot be read" in said.err) == (2, True)


@pytest.mark.parametrize("before", [True, False])
def test_global_flags_stand_before_or_behind_the_command(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    monkeypatch.delenv("TICKRAIL_API_URL")
    api.on("GET", "/v1/jobs", EMPTY)
    flags = ("--url", api.url, "--key", "trk_x_y", "--output", "json")
    words = (*flags, "jobs", "list") if before else ("jobs", "list", *flags)
    said = tickrail(*words)
    assert said.json() == {"items": []}
    assert api.asked[-1].headers["authorization"] == "Bearer trk_x_y"


def test_a_failure_inside_is_said_without_a_trace(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", Answer(body={"items": [{"name": "a"}], "next_cursor": None}))
    said = tickrail("jobs", "list")
    assert said.code == 1
    assert "something went wrong inside: KeyError" in said.err


def test_output_to_a_reader_that_has_gone_is_no_trace(api: StubApi) -> None:
    job = {"name": "n" * 100, "state": "active"}
    api.on("GET", "/v1/jobs", Answer(body={"items": [job] * 5000, "next_cursor": None}))
    command = f"{sys.executable} -m tickrail_cli --url {api.url} jobs list --output json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(tickrail: Tickrail, shell: str) -> None:
    said = tickrail("completion", shell)
    assert said.code == 0
    assert "_TICKRAIL_COMPLETE" in said.out


def test_no_shell_is_wrong_use(tickrail: Tickrail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "")
    assert tickrail("completion").code == 2

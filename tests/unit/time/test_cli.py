"""`tickrail preview` and `tickrail import crontab`, with an API held in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.support.schedules import DATA

from tickrail_cli.import_crontab import import_group, machine_zone
from tickrail_cli.preview import preview

BERLIN = ("--tz", "Europe/Berlin", "--from", "2026-03-28T00:00:00Z")
TAB = "SHELL=/bin/bash\n0 1 * * * one\n0 2 * * * two\n"


class FakeApi:
    """Jobs by name, with versions that only a change moves."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []

    def request(self, method: str, path: str, json: Any = None) -> Any:
        self.calls.append((method, path))
        if method == "DELETE":
            gone = path.removeprefix("/v1/jobs/")
            self.jobs = {n: j for n, j in self.jobs.items() if j["id"] != gone}
            return None
        assert method == "PUT"
        name = path.removeprefix("/v1/jobs/name:")
        assert json["name"] == name
        old = self.jobs.get(name)
        assert old is None or "paused" not in json
        definition = {key: value for key, value in json.items() if key != "paused"}
        if old is None:
            state = "paused" if json.get("paused") else "active"
            job = {"id": f"id-{name}", "version": 1, "state": state}
        else:
            job = old | {"version": old["version"] + (old["definition"] != definition)}
        self.jobs[name] = job | {"name": name, "definition": definition, "tags": json["tags"]}
        return self.jobs[name]

    def pages(self, path: str, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        assert path == "/v1/jobs"
        key, _, value = params["tag"].partition(":")
        return iter([job for job in self.jobs.values() if job["tags"][key] == value])


class Session:
    output: str | None = None

    def __init__(self) -> None:
        self.api = FakeApi()

    def client(self) -> FakeApi:
        return self.api


@pytest.fixture
def session() -> Session:
    return Session()


def run_preview(*arguments: str) -> Result:
    return CliRunner().invoke(preview, arguments)


def run_import(session: Session, *arguments: str, text: str | bytes | None = None) -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(import_group, ["crontab", *arguments], obj=session, input=text)


def test_preview_for_programs() -> None:
    run = run_preview("30 2 * * *", *BERLIN, "-n", "2", "--output", "json")
    assert run.exit_code == 0
    answer = json.loads(run.output)
    assert answer["items"] == [
        {"at": "2026-03-28T01:30:00Z", "local": "2026-03-28T02:30:00+01:00", "notes": []},
        {
            "at": "2026-03-29T01:00:00Z",
            "local": "2026-03-29T03:00:00+02:00",
            "notes": ["moved_by_gap"],
        },
    ]
    assert answer["words"] == "At 02:30 every day in Europe/Berlin"
    assert [w["code"] for w in answer["warnings"]] == ["in_gap", "in_fold"]
    as_yaml = run_preview("30 2 * * *", *BERLIN, "-n", "2", "--output", "yaml")
    assert yaml.safe_load(as_yaml.output) == answer


def test_preview_for_people() -> None:
    run = run_preview("30 2 * * *", *BERLIN, "-n", "2")
    assert run.exit_code == 0
    assert "At 02:30 every day in Europe/Berlin" in run.output
    assert "moved by gap" in run.output
    assert "does not exist in Europe/Berlin" in run.output


def test_preview_takes_a_document_and_local_start() -> None:
    document = json.dumps({"calendar": {"unit": "month", "on": "last", "at": "02:00"}})
    start = ("--from", "2026-01-31T02:00", "--tz", "Asia/Tokyo")
    run = run_preview(document, *start, "-n", "1", "--output", "json")
    assert json.loads(run.output)["items"][0]["local"] == "2026-02-28T02:00:00+09:00"
    shifted = run_preview("30 2 * * *", *BERLIN, "--gap", "shift", "-n", "2", "--output", "json")
    assert json.loads(shifted.output)["items"][1]["at"] == "2026-03-29T01:30:00Z"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("60 * * * *",), 1, "minute (field 1): 60 does not exist"),
        (("0 0 31 2 *",), 1, "never fires"),
        (("0 0 * * *", "--tz", "europe/berlin"), 1, "did you mean Europe/Berlin?"),
        (("0 0 0 1 1 ? 2020",), 1, "has no run after"),
        (('{"cron": ',), 1, "no JSON document"),
        (("0 0 * * *", "--from", "noon"), 1, "--from: is 'noon' (an instant such as"),
        (("0 0 * * *", "-n", "0"), 2, "'-n'"),
    ],
)
def test_preview_refuses_in_one_line(arguments: tuple[str, ...], code: int, text: str) -> None:
    run = run_preview(*arguments)
    assert run.exit_code == code
    assert text in run.output
    assert "Traceback" not in run.output


def test_import_is_declarative(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "tab"
    file.write_text(TAB)
    first = run_import(session, str(file), "--tz", "UTC", "--output", "json")
    assert first.exit_code == 0, first.output
    assert [job["result"] for job in json.loads(first.output)["jobs"]] == ["created", "created"]
    assert {job["tags"]["set"] for job in session.api.jobs.values()} == {"tab"}
    again = run_import(session, str(file), "--tz", "UTC", "--output", "json", "--paused")
    assert [job["result"] for job in json.loads(again.output)["jobs"]] == ["unchanged"] * 2
    assert {job["version"] for job in session.api.jobs.values()} == {1}
    file.write_text(TAB.replace("0 2", "5 2"))
    moved = run_import(session, str(file), "--tz", "UTC", "--output", "json")
    assert [job["result"] for job in json.loads(moved.output)["jobs"]] == ["unchanged", "changed"]
    assert len(session.api.jobs) == 2


def test_paused_is_for_new_jobs(session: Session) -> None:
    run = run_import(session, "-", "--paused", "--set", "s", text=TAB)
    assert run.exit_code == 0
    assert {job["state"] for job in session.api.jobs.values()} == {"paused"}


def test_prune_keeps_to_its_set(session: Session) -> None:
    run_import(session, "-", "--set", "a", text=TAB)
    run_import(session, "-", "--set", "b", text=TAB)
    shorter = TAB.replace("0 2 * * * two\n", "")
    shown = run_import(session, "-", "--set", "a", "--prune", "--dry-run", text=shorter)
    assert "would delete two-" in shown.output
    assert len(session.api.jobs) == 4
    run = run_import(session, "-", "--set", "a", "--prune", "--yes", text=shorter)
    assert run.exit_code == 0
    left = sorted((j["tags"]["set"], n[:3]) for n, j in session.api.jobs.items())
    assert left == [("a", "one"), ("b", "one"), ("b", "two")]


def test_errors_hold_everything_back(session: Session) -> None:
    text = TAB + "61 * * * * broken\n"
    run = run_import(session, "-", text=text)
    assert run.exit_code == 1
    assert "line 4: minute (field 1): 61 does not exist" in run.output
    assert "nothing imported" in run.output
    assert session.api.calls == []
    skipped = run_import(session, "-", "--skip-errors", "--prune", "--yes", text=text)
    assert skipped.exit_code == 0
    assert len(session.api.jobs) == 2
    assert "nothing was pruned" in skipped.output


def test_dry_run_asks_no_server(session: Session) -> None:
    file = str(DATA / "crontabs" / "047.crontab")
    run = run_import(session, file, "--system", "--dry-run")
    assert run.exit_code == 0
    assert session.api.calls == []
    assert "svc: /usr/local/bin/job-02" in run.output
    assert "set 047.crontab" in run.output
    as_json = run_import(session, file, "--system", "--dry-run", "--output", "json")
    answer = json.loads(as_json.output)
    assert [job["line"] for job in answer["jobs"]] == [8, 9, 10, 12]
    assert all(len(job["next"]) == 3 for job in answer["jobs"])
    assert answer["jobs"][0]["schedule"]["time_zone"] == "America/Los_Angeles"


def test_odd_bytes_and_missing_files(session: Session, tmp_path: Path) -> None:
    run = run_import(session, "-", "--dry-run", text=b"# caf\xe9\n0 0 * * * a\xff\n0 1 * * * b\0\n")
    assert run.exit_code == 1
    assert "line 2: is not UTF-8 at column 12" in run.output
    assert "line 3: holds a NUL at column 12" in run.output
    missing = run_import(session, str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "No such file" in missing.output
    assert run_import(session, "-", "--tz", "Mars", text=TAB).exit_code == 1


def test_machine_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    (tmp_path / "etc").mkdir()
    assert machine_zone(tmp_path) == "UTC"
    (tmp_path / "etc/timezone").write_text("Asia/Tokyo\n")
    assert machine_zone(tmp_path) == "Asia/Tokyo"
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Paris")
    assert machine_zone(tmp_path) == "Europe/Paris"
    monkeypatch.setenv("TZ", ":America/Lima")
    assert machine_zone(tmp_path) == "America/Lima"

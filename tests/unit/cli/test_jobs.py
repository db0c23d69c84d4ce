from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.stub_api import Answer, Asked, StubApi, problem
from tests.unit.cli.conftest import Tickrail

ID = "01914b6e-0000-7000-8000-000000000001"
JOB: dict[str, Any] = {
    "id": ID,
    "name": "nightly",
    "state": "active",
    "paused": None,
    "description": "Closes\x1b[31m the day",
    "tags": {"team": "billing"},
    "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
    "schedule_words": "At 02:00 every day in Europe/Berlin",
    "next_run_at": "2026-03-02T01:00:00Z",
    "last_launch": {"id": "L1", "state": "succeeded"},
    "target": {"webhook": {"url": "https://example.org/hook"}},
    "queue": "default",
    "version": 3,
}
LAUNCH = {"id": "L2", "state": "due", "job": {"id": ID, "name": "nightly"}}
NIGHTLY = "/v1/jobs/name:nightly"


def page(*items: Any) -> Answer:
    return Answer(body={"items": list(items), "next_cursor": None})


def test_list_is_a_table_for_people_and_the_items_for_programs(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("GET", "/v1/jobs", page(JOB))
    table = tickrail("--utc", "jobs", "list")
    assert next(line.split("  ")[0] for line in table.out.splitlines() if line) == "name"
    for word in ("nightly", "At 02:00 every day in Europe/Berlin", "2026-03-02 01:00:00Z"):
        assert word in table.out
    assert tickrail("jobs", "list", "--output", "json").json() == {"items": [JOB]}
    assert "name: nightly" in tickrail("jobs", "list", "--output", "yaml").out


def test_list_asks_with_its_filters(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", page())
    flags = ("--state", "paused", "--tag", "a:b", "--tag", "c", "--prefix", "n", "--queue", "q")
    said = tickrail("jobs", "list", *flags, "--limit", "7")
    assert dict(api.asked[0].query) == {
        "limit": ["7"],
        "state": ["paused"],
        "tag": ["a:b", "c"],
        "name_prefix": ["n"],
        "queue": ["q"],
    }
    assert said.out.startswith("No jobs.")


def test_get_tells_what_is_probably_not_meant(tickrail: Tickrail, api: StubApi) -> None:
    lint = [{"code": "x", "message": m, "pointer": "/schedule"} for m in ("one", "two")]
    api.on("GET", NIGHTLY, Answer(body={**JOB, "lint": lint}))
    assert re.search(r"^notes +one; two$", tickrail("jobs", "get", "nightly").out, re.MULTILINE)


def test_a_job_that_cannot_be_planned_says_so(tickrail: Tickrail, api: StubApi) -> None:
    why = "the calendar holidays is gone"
    paused = {**JOB, "name": "resting", "state": "paused", "error": why}
    api.on("GET", "/v1/jobs", page({**JOB, "error": why}, paused, JOB))
    rows = tickrail("jobs", "list").out.splitlines()[2:]
    assert [row.split()[1] for row in rows] == ["unplannable", "paused", "active"]
    api.on("GET", NIGHTLY, Answer(body={**JOB, "error": why}))
    card = tickrail("jobs", "get", "nightly").out
    assert re.search(r"^state +unplannable$", card, re.MULTILINE)
    assert re.search(rf"^cannot be planned +{why}$", card, re.MULTILINE)
    api.on("GET", NIGHTLY, Answer(body=JOB))
    assert "planned" not in tickrail("jobs", "get", "nightly").out


def test_get_is_a_card_without_control_characters(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", NIGHTLY, Answer(body=JOB))
    said = tickrail("jobs", "get", "nightly")
    assert "webhook https://example.org/hook" in said.out
    assert "team:billing" in said.out
    assert "\x1b" not in said.out
    assert tickrail("jobs", "get", "nightly", "--output", "json").json() == JOB


def test_a_job_is_named_by_name_or_by_id(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", f"/v1/jobs/{ID}", Answer(body=JOB))
    api.on("GET", NIGHTLY, Answer(body=JOB))
    assert tickrail("jobs", "get", ID).code == 0
    assert tickrail("jobs", "get", "name:nightly").code == 0


def test_an_unknown_job_names_the_nearest(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", "/v1/jobs", page(JOB, JOB | {"name": "other"}))
    said = tickrail("jobs", "pause", "nightli")
    assert said.code == 1
    assert said.err == "Error: there is no job 'nightli'; did you mean nightly?\n"


def test_create_from_a_file_in_json_or_yaml(
    tickrail: Tickrail, api: StubApi, tmp_path: Path
) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    (tmp_path / "j.json").write_text('{"name": "nightly"}')
    (tmp_path / "j.yaml").write_text("name: nightly\nschedule: {every: 5m}\n")
    said = tickrail("jobs", "create", "-f", "j.json", "--paused")
    assert (said.code, "Created nightly" in said.out) == (0, True)
    assert api.asked[-1].body == {"name": "nightly", "paused": True}
    tickrail("jobs", "create", "-f", "j.yaml")
    assert api.asked[-1].body == {"name": "nightly", "schedule": {"every": "5m"}}


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("j.json", b'{"name": "x",\n  "schedule": }', "j.json: line 2, column 15: not valid JSON"),
        ("j.json", b'{"a": NaN}', "j.json: not valid JSON: NaN is no number"),
        ("j.json", b"[" * 100_000, "j.json: not valid JSON: nested too deep"),
        ("j.json", b'{"a": "\xff"}', "j.json: not UTF-8 text (byte 7)"),
        ("j.json", b"[1]", "j.json: a job is an object"),
        ("j.yaml", b"a: [1\nb: 2", "j.yaml: line 2, column 2: not valid YAML"),
        ("j.json", None, "j.json: No such file or directory"),
    ],
)
def test_a_file_that_is_no_document_is_refused(
    tickrail: Tickrail, tmp_path: Path, file: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / file).write_bytes(content)
    answer = tickrail("jobs", "create", "-f", file)
    assert answer.code == 1
    assert said in answer.err


def test_create_tells_what_is_probably_not_meant(tickrail: Tickrail, api: StubApi) -> None:
    lint = [{"code": "herd", "message": "many jobs are due then", "pointer": "/schedule"}]
    made = {**JOB, "lint": lint}
    api.on("POST", "/v1/jobs", Answer(201, made))
    flags = ("jobs", "create", "--name", "x", "--every", "1h", "--shell", "date")
    assert tickrail(*flags).out.splitlines()[1:] == ["note: many jobs are due then"]
    assert tickrail(*flags, "--output", "json").json() == made


def test_create_from_flags(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    flags = ("--name", "x", "--cron", "0 2 * * *", "--tz", "UTC", "--shell", "date", "--payload")
    assert tickrail("jobs", "create", *flags, '{"a": 1}').code == 0
    assert api.asked[-1].body == {
        "name": "x",
        "schedule": {"cron": "0 2 * * *", "time_zone": "UTC"},
        "target": {"command": {"shell": "date"}},
        "payload": {"a": 1},
    }


def test_create_a_message_from_flags(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    assert tickrail("jobs", "create", "--name", "x", "--kafka", "orders.due").code == 0
    assert api.asked[-1].body == {"name": "x", "target": {"kafka": {"topic": "orders.due"}}}


def test_create_a_call_of_a_task_from_flags(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    flags = ("jobs", "create", "--name", "x", "--task", "greet")
    assert tickrail(*flags, "--args", '{"name": "Ada"}').code == 0
    assert api.asked[-1].body == {
        "name": "x",
        "target": {"task": {"name": "greet", "args": {"name": "Ada"}}},
    }
    assert tickrail(*flags).code == 0
    assert api.asked[-1].body["target"] == {"task": {"name": "greet", "args": {}}}


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 2, "give a document with -f"),
        (("--cron", "* * * * *", "--every", "5m"), 2, "give one of --cron"),
        (("--webhook", "http://x", "--shell", "y"), 2, "one of --webhook"),
        (("--every", "5m", "--tz", "UTC"), 2, "--tz belongs to"),
        (("--kafka", "x", "--webhook", "http://x"), 2, "one of --webhook, --shell, --kafka"),
        (("--task", "x", "--shell", "y"), 2, "one of --webhook, --shell, --kafka, --task"),
        (("--webhook", "http://x", "--args", "{}"), 2, "--args belongs to --task"),
        (("--task", "x", "--args", "{"), 1, "--args: line 1, column 2: not valid JSON"),
        (("--payload", "{"), 1, "--payload: line 1, column 2: not valid JSON"),
    ],
)
def test_flags_that_make_no_job_are_refused(
    tickrail: Tickrail, flags: tuple[str, ...], code: int, said: str
) -> None:
    answer = tickrail("jobs", "create", *flags)
    assert answer.code == code
    assert said in answer.err


def test_what_the_api_refuses_is_shown_by_part(tickrail: Tickrail, api: StubApi) -> None:
    wrong = {"pointer": "/schedule/cron", "message": "hour is 25", "expected": "0 to 23"}
    api.on("POST", "/v1/jobs", problem(422, "invalid", "The job is not valid.", wrong))
    said = tickrail("jobs", "create", "--name", "x")
    assert said.code == 1
    one = "tickrail: The job is not valid: /schedule/cron: hour is 25 (0 to 23)\n"
    assert said.err == one
    api.on("POST", "/v1/jobs", problem(422, "invalid", "The job is not valid.", wrong, wrong))
    said = tickrail("jobs", "create", "--name", "x")
    part = "  /schedule/cron: hour is 25 (0 to 23)\n"
    assert said.err == f"tickrail: The job is not valid.\n{part}{part}"


@pytest.mark.parametrize(
    ("words", "path", "body", "answer", "said"),
    [
        (("pause", "nightly"), "/pause", {}, JOB, "Paused nightly."),
        (
            ("pause", "nightly", "--reason", "r", "--until", "2026-04-01T00:00:00Z", "--cancel"),
            "/pause",
            {"reason": "r", "until": "2026-04-01T00:00:00Z", "in_flight": "cancel"},
            JOB,
            "Paused nightly.",
        ),
        (("resume", "nightly"), "/resume", {}, JOB, "Resumed nightly, next run 2026"),
        (
            ("resume", "nightly", "--catch-up", "policy"),
            "/resume",
            {"catch_up": "policy"},
            JOB,
            "Resumed nightly",
        ),
        (("trigger", "nightly"), "/trigger", {}, LAUNCH, "Launched nightly as L2 (due)"),
        (
            ("trigger", "nightly", "--payload", "null", "--overlap", "allow", "--priority", "high"),
            "/trigger",
            {"payload": None, "overlap": "allow", "priority": "high"},
            LAUNCH,
            "Launched nightly as L2",
        ),
    ],
)
def test_verbs(
    tickrail: Tickrail,
    api: StubApi,
    words: tuple[str, ...],
    path: str,
    body: Any,
    answer: Any,
    said: str,
) -> None:
    api.on("POST", NIGHTLY + path, Answer(202, answer))
    result = tickrail("jobs", *words)
    assert result.code == 0
    assert said in result.out
    assert api.asked[-1].body == body
    assert tickrail("jobs", *words, "--output", "json").json() == answer


def test_delete(tickrail: Tickrail, api: StubApi) -> None:
    api.on("DELETE", NIGHTLY, Answer(204))
    assert tickrail("jobs", "delete", "--yes", "nightly").out == "Deleted nightly.\n"


def test_slots(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", NIGHTLY, Answer(body=JOB))
    rows = [
        {"at": "2026-03-01T01:00:00Z", "state": "launched", "launch": LAUNCH, "reason": None},
        {"at": "2026-03-02T01:00:00Z", "state": "skipped", "launch": None, "reason": "overlap"},
        {"at": "2026-03-03T01:00:00Z", "state": "upcoming", "launch": None, "reason": "undecided"},
    ]
    api.on("GET", f"{NIGHTLY}/slots", page(*rows))
    for command in (("slots",), ("jobs", "slots")):
        said = tickrail(*command, "nightly", "--utc")
        assert "2026-03-02 01:00:00Z" in said.out
        assert "overlap" in said.out
        assert "undecided" in said.out


def slots_by_query(asked: Asked) -> Answer:
    """Slots of the hours round noon, as the API sorts and bounds them."""
    hours = range(24) if asked.query["sort"] == ["at"] else range(23, -1, -1)
    low, high = (asked.query.get(edge, [""])[0] for edge in ("from", "to"))
    at = [f"2026-03-01T{hour:02d}:00:00Z" for hour in hours]
    kept = [x for x in at if (not low or x >= low) and (not high or x < high)]
    return page(*({"at": x, "state": "?"} for x in kept[: int(asked.query["limit"][0])]))


def test_slots_are_the_latest_and_the_next(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = FakeClock(datetime(2026, 3, 1, 12, 30, tzinfo=UTC))
    monkeypatch.setattr("tickrail_cli.jobs.SystemClock", lambda: noon)
    api.on("GET", NIGHTLY, Answer(body=JOB))
    api.on("GET", f"{NIGHTLY}/slots", slots_by_query)

    def hours(*words: str) -> list[int]:
        said = tickrail("slots", "nightly", "--output", "json", *words)
        return [datetime.fromisoformat(x["at"]).hour for x in said.json()["items"]]

    assert hours("--limit", "2") == [15, 14, 13, 12, 11]
    assert hours("--limit", "2", "--next", "0") == [12, 11]
    assert hours("--limit", "2", "--next", "1", "--oldest-first") == [11, 12, 13]
    since = ("--from", "2026-03-01T03:00:00Z")
    assert hours(*since, "--limit", "2") == [23, 22]
    assert hours(*since, "--to", "2026-03-01T05:00:00Z", "--oldest-first") == [3, 4]


@pytest.mark.parametrize(
    ("words", "count", "told"),
    [
        ((), 10_000, "note: only the last 10,000 rows of the range are shown; --limit shows more"),
        (("--limit", "2"), 2, "note: only the last 2 rows of the range are shown; there are more"),
        (("--limit", "2", "--oldest-first"), 2, "note: only the first 2 rows of the range"),
        (("--limit", "10003"), 10_003, ""),
    ],
)
def test_a_range_of_slots_is_shown_as_a_whole_or_said_to_be_cut(
    tickrail: Tickrail, api: StubApi, words: tuple[str, ...], count: int, told: str
) -> None:
    rows = [{"at": f"row {i}", "state": "launched"} for i in range(10_003)]

    def some(asked: Asked) -> Answer:
        start = int(asked.query.get("cursor", ["0"])[0])
        end = start + int(asked.query["limit"][0])
        after = str(end) if end < len(rows) else None
        return Answer(body={"items": rows[start:end], "next_cursor": after})

    api.on("GET", NIGHTLY, Answer(body=JOB))
    api.on("GET", f"{NIGHTLY}/slots", some)
    said = tickrail(
        "slots", "nightly", "--from", "2026-03-01T03:00:00Z", *words, "--output", "json"
    )
    assert said.json() == {"items": rows[:count]}
    assert said.err.startswith(told)
    assert bool(said.err) is bool(told)


def test_upcoming_shows_the_notes(tickrail: Tickrail, api: StubApi) -> None:
    slot = {
        "at": "2026-03-29T01:00:00Z",
        "local": "2026-03-29T03:00:00+02:00",
        "notes": ["moved_by_gap", "excluded:weekend"],
    }
    api.on("GET", NIGHTLY, Answer(body=JOB))
    api.on("GET", f"{NIGHTLY}/upcoming", Answer(body={"items": [slot]}))
    said = tickrail("jobs", "upcoming", "nightly", "-n", "1", "--from", "2026-03-28T00:00:00Z")
    assert dict(api.asked[-1].query) == {"n": ["1"], "after": ["2026-03-28T00:00:00Z"]}
    assert "2026-03-29T03:00:00+02:00" in said.out
    assert "moved by gap, excluded:weekend" in said.out
    assert tickrail("jobs", "upcoming", "nightly", "--output", "json").json() == {"items": [slot]}


@pytest.mark.parametrize(
    ("given", "asked", "told"),
    [
        ((), 1, "nightly leaves out its next slot."),
        (("3",), 3, "nightly leaves out its next 3 slots."),
        (("0",), 0, "nightly leaves out no slot."),
    ],
)
def test_skip_next_says_how_many_are_left_out(
    tickrail: Tickrail, api: StubApi, given: tuple[str, ...], asked: int, told: str
) -> None:
    api.on("POST", f"{NIGHTLY}/skip-next", Answer(body={**JOB, "skip_next": asked}))
    said = tickrail("jobs", "skip-next", "nightly", *given)
    assert api.asked[0].body == {"n": asked}
    assert told in said.out


def test_calendars_and_what_is_left_out_are_on_the_card(tickrail: Tickrail, api: StubApi) -> None:
    use = {"exclude": ["holidays", "audits"], "include": [], "on_excluded": "skip"}
    api.on("GET", NIGHTLY, Answer(body={**JOB, "calendars": use, "skip_next": 2}))
    said = tickrail("jobs", "get", "nightly")
    assert "exclude holidays, audits; on excluded skip" in said.out
    assert "the next 2" in said.out


def test_create_names_calendars(tickrail: Tickrail, api: StubApi) -> None:
    api.on("POST", "/v1/jobs", Answer(201, JOB))
    tickrail("jobs", "create", "--name", "a", "--every", "1h", "--exclude", "x", "--exclude", "y")
    assert api.asked[0].body["calendars"] == {"exclude": ["x", "y"]}

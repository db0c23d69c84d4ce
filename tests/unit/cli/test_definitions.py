"""What documents are, what differs, and what of an answer is worth writing down: decided."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import pytest

from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId
from tickrail_cli.apply import set_of
from tickrail_cli.definition_files import Source
from tickrail_cli.definitions import (
    Change,
    calendar_is_unchanged,
    counts,
    diff_lines,
    is_unchanged,
    items_of,
    minimal_calendar,
    minimal_job,
    minimal_limits,
)

ID = "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEBHOOK = {"webhook": {"url": "https://example.org/hook"}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "bare": {"name": "a", "target": WEBHOOK},
    "cron": {"name": "a", "schedule": {"cron": "0 2 * * *"}, "target": WEBHOOK},
    "hash": {"name": "a", "schedule": {"cron": "H H * * *"}, "target": WEBHOOK},
    "zone": {
        "name": "a",
        "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin", "fold": "both"},
        "target": WEBHOOK,
    },
    "interval": {
        "name": "a",
        "schedule": {"every": "15m", "anchor": "2026-01-01T00:00:00Z"},
        "target": WEBHOOK,
    },
    "at the epoch": {
        "name": "a",
        "schedule": {"every": "15m", "anchor": "1970-01-01T00:00:00Z"},
        "target": WEBHOOK,
    },
    "several": {
        "name": "a",
        "schedule": {"any_of": [{"cron": "0 2 * * *"}, {"at": "2020-01-01T00:00:00Z"}]},
        "target": WEBHOOK,
    },
    "much": {
        "name": "a",
        "description": "b",
        "tags": {"team": "x", "empty": ""},
        "misfire": {"policy": "fire_all", "max_count": 3},
        "overlap": "allow",
        "target": {
            "webhook": {"url": "https://example.org/hook", "method": "GET", "headers": {"A": "b"}}
        },
        "payload": {"a": None, "b": {"c": []}},
        "concurrency": {"key": "k"},
        "timeout": "5m",
        "retry": {"max_attempts": 1, "not_on": ["http_4xx"]},
    },
    "command": {"name": "a", "target": {"command": {"shell": "date"}}, "priority": "low"},
    "calendars": {
        "name": "a",
        "schedule": {"cron": "0 2 * * *"},
        "calendars": {"exclude": ["days"]},
        "target": WEBHOOK,
    },
}


def answer(document: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As the API would answer it."""
    whole = parse_definition(document, job=JobId(UUID(ID)), now=NOW).document()
    others = {"version": 3, "state": "active", "paused": None, "next_run_at": None, "error": None}
    return {"id": ID, **whole, **others, **more}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_answer_is_written_down_as_its_document_was(name: str) -> None:
    assert minimal_job(answer(DOCUMENTS[name])) == DOCUMENTS[name]


def test_what_an_interval_is_measured_from_is_written_down() -> None:
    found = minimal_job(answer({"name": "a", "schedule": {"every": "1h"}, "target": WEBHOOK}))
    assert found["schedule"] == {"every": "1h", "anchor": "2026-03-01T12:00:00Z"}


def test_of_what_a_newer_version_answers_nothing_is_left_out() -> None:
    found = minimal_job(answer(DOCUMENTS["bare"], colour={"hue": "blue"}))
    assert (found["colour"], found["overlap"]) == ({"hue": "blue"}, "skip")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_of_a_job_changes_nothing(name: str) -> None:
    assert is_unchanged(DOCUMENTS[name], answer(DOCUMENTS[name]))
    assert is_unchanged(DOCUMENTS[name] | {"paused": True}, answer(DOCUMENTS[name]))
    assert not is_unchanged(DOCUMENTS[name] | {"timeout": "7m"}, answer(DOCUMENTS[name]))


def test_an_interval_without_its_anchor_changes_nothing() -> None:
    document = {"name": "a", "schedule": {"every": "1h"}, "target": WEBHOOK}
    assert is_unchanged(document, answer(document))


def test_what_is_not_known_here_is_left_to_the_api() -> None:
    assert not is_unchanged({**DOCUMENTS["bare"], "colour": "blue"}, answer(DOCUMENTS["bare"]))
    assert not is_unchanged(DOCUMENTS["bare"], answer(DOCUMENTS["bare"], colour="blue"))


def test_calendars_are_written_down_and_compared() -> None:
    document = {"name": "days", "yearly": ["12-25"]}
    there = {
        "name": "days", "version": 2, "description": "", "time_zone": "UTC", "dates": [],
        "yearly": ["12-25"], "weekdays": [], "windows": [], "events": [],
        "created_at": "2026-03-01T12:00:00Z", "updated_at": "2026-03-01T12:00:00Z",
    }  # fmt: skip
    assert minimal_calendar(there) == document
    assert calendar_is_unchanged(document, there)
    assert not calendar_is_unchanged({**document, "weekdays": ["sun"]}, there)
    assert not calendar_is_unchanged({**document, "colour": "blue"}, there)


def refusals(*documents: Any, set_name: str | None = "s") -> list[str]:
    sources = [Source("f", d, i + 1) for i, d in enumerate(documents)]
    return [str(refusal) for refusal in items_of(sources, set_name)[1]]


def test_documents_are_sorted_by_what_needs_what() -> None:
    documents: list[Any] = [
        {"name": "b"},
        {"kind": "job", "name": "a", "tags": {"x": "y"}, "$schema": "job.json"},
        {"kind": "queue-limits", "name": "mail", "max_running": 1},
        {"kind": "calendar", "name": "days"},
    ]
    items, wrong = items_of([Source("f", d) for d in documents], "s")
    assert wrong == []
    assert [(i.kind, i.name, dict(i.document)) for i in items] == [
        ("calendar", "days", {"name": "days"}),
        ("queue-limits", "mail", {"name": "mail", "max_running": 1}),
        ("job", "b", {"name": "b", "tags": {"set": "s"}}),
        ("job", "a", {"name": "a", "tags": {"x": "y", "set": "s"}}),
    ]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (5, "f:1: is a number (an object: a job, a calendar, queue-limits)"),
        ({}, "f:1: /name: is missing (1 to 128 of"),
        ({"name": "A"}, "f:1: A: /name: is 'A' (1 to 128 of"),
        ({"name": "a", "kind": "jop"}, "f:1: a: /kind: is 'jop' (did you mean 'job'?)"),
        ({"name": "a", "kind": None}, "f:1: a: /kind: is 'None'"),
        ({"name": "a", "tags": {"set": "t"}}, "/tags/set: is 't', and the set is 's'"),
    ],
)
def test_what_is_no_definition_is_told(document: Any, said: str) -> None:
    [refusal] = refusals(document)
    assert said in refusal


def test_two_documents_for_one_job_are_refused() -> None:
    assert refusals({"name": "a"}, {"kind": "calendar", "name": "a"}) == []
    [refusal] = refusals({"name": "a"}, {"kind": "job", "name": "a"})
    assert refusal == "f:2: a: /name: another document for this job is at f:1 (one of them)"


def test_a_set_of_its_own_stays_where_none_is_given() -> None:
    items, wrong = items_of([Source("f", {"name": "a", "tags": {"set": "t"}})], None)
    assert (wrong, items[0].document["tags"]) == ([], {"set": "t"})


@pytest.mark.parametrize(
    ("files", "given", "found"),
    [
        (("jobs/",), {}, "jobs"),
        (("a/b.yaml",), {}, "b.yaml"),
        (("-",), {}, "stdin"),
        (("a", "b"), {"set_name": "s"}, "s"),
        (("a", "b"), {"no_set": True}, None),
    ],
)
def test_a_set_is_named_after_what_it_is_read_from(
    files: tuple[str, ...], given: dict[str, Any], found: str | None
) -> None:
    assert set_of(files, **{"set_name": None, "no_set": False, "prune": False} | given) == found


@pytest.mark.parametrize(
    "given",
    [
        {"files": ("a", "b")},
        {"no_set": True, "set_name": "s"},
        {"no_set": True, "prune": True},
        {"set_name": ""},
    ],
)
def test_a_set_that_is_not_clear_is_refused(given: dict[str, Any]) -> None:
    usual = {"files": ("a",), "set_name": None, "no_set": False, "prune": False}
    with pytest.raises(click.UsageError):
        set_of(**usual | given)


def test_a_difference_is_shown_in_lines_and_order_is_none() -> None:
    before = {"name": "a", "payload": {"b": 1, "a": 2}, "overlap": "allow", "timeout": "5m"}
    after = {"name": "a", "payload": {"a": 2, "b": 3}, "timeout": "5m"}
    assert diff_lines(Change("job", "a", "changed", before, after)) == [
        " payload:",
        "   a: 2",
        "-  b: 1",
        "+  b: 3",
        " timeout: 5m",
        "-overlap: allow",
    ]
    limits = minimal_limits("mail", {"max_running": 5, "rate": None})
    assert diff_lines(Change("queue-limits", "mail", "created", None, limits)) == [
        "+kind: queue-limits",
        "+name: mail",
        "+max_running: 5",
    ]


def test_changes_are_counted() -> None:
    changes = [Change("job", "a", "created"), Change("job", "b", "created")]
    assert counts(changes) == {"created": 2, "changed": 0, "unchanged": 0, "deleted": 0}

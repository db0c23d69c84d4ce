"""The schema of documents, made from the API's own document; names that a shell completes."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from tests.support.stub_api import Answer, Asked, StubApi, problem
from tests.unit.cli.conftest import Tickrail

from tickrail_cli.main import cli
from tickrail_cli.schema import schema_of

LIMITS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["kinds"],
    "properties": {
        "kinds": {"type": "array"},
        "rate": {"anyOf": [{"$ref": "#/components/schemas/Rate"}, {"type": "null"}]},
    },
}
OPENAPI: dict[str, Any] = {
    "components": {
        "schemas": {
            "NewJob": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "target"],
                "properties": {
                    "name": {"type": "string"},
                    "target": {"type": "object"},
                    "retry": {"$ref": "#/components/schemas/Retry", "default": {}},
                },
            },
            "Retry": {
                "type": "object",
                "properties": {"max_attempts": {"type": "integer"}},
                "additionalProperties": False,
            },
            "NewCalendar": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"dry_run": {"type": "boolean"}, "dates": {"type": "array"}},
            },
            "NewQueue": LIMITS,
            "Rate": {"properties": {"inner": {"$ref": "#/components/schemas/Rate"}}},
        }
    }
}


@pytest.mark.parametrize(
    ("kind", "document", "valid"),
    [
        ("job", {"name": "a", "target": {}}, True),
        ("job", {"$schema": "job.json", "kind": "job", "name": "a", "target": {}}, True),
        ("job", {"kind": "calendar", "name": "a", "target": {}}, False),
        ("job", {"name": "A", "target": {}}, True),
        ("job", {"name": "a", "target": {}, "retry": {"max_attempts": "x"}}, False),
        ("job", {"name": "a", "target": {}, "colour": 1}, False),
        ("calendar", {"kind": "calendar", "name": "days", "dates": []}, True),
        ("calendar", {"name": "days"}, False),
        ("calendar", {"kind": "calendar", "name": "days", "dry_run": True}, False),
        ("queue-limits", {"kind": "queue-limits", "name": "mail", "rate": {"inner": {}}}, True),
        ("queue-limits", {"kind": "queue-limits", "name": "mail", "kinds": []}, False),
        ("any", {"name": "a", "target": {}}, True),
        ("any", {"name": "a"}, False),
        ("any", {"kind": "calendar", "name": "days", "dates": []}, True),
        ("any", {"kind": "calendar", "name": "days", "target": {}}, False),
        ("any", {"kind": "queue-limits", "name": "mail", "rate": None}, True),
        ("any", {"kind": "other", "name": "a", "target": {}}, False),
    ],
)
def test_a_schema_stands_for_itself(kind: str, document: Any, valid: bool) -> None:
    made = schema_of(OPENAPI, kind)
    Draft202012Validator.check_schema(made)
    assert Draft202012Validator(made).is_valid(document) is valid


def test_it_is_printed_without_a_key(
    tickrail: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TICKRAIL_API_KEY")
    api.on("GET", "/openapi.json", Answer(body=OPENAPI))
    assert tickrail("schema", "job").json() == schema_of(OPENAPI, "job")
    assert tickrail("schema").json() == schema_of(OPENAPI, "any")


def completed(api: StubApi, words: str, **environ: str) -> list[str]:
    variables = {
        "_TICKRAIL_COMPLETE": "bash_complete",
        "COMP_WORDS": f"tickrail {words}",
        "COMP_CWORD": str(len(f"tickrail {words}".split(" ")) - 1),
        "TICKRAIL_API_URL": api.url,
        "TICKRAIL_API_KEY": "trk_a_b",
    }
    done = CliRunner().invoke(cli, [], prog_name="tickrail", env=variables | environ)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if "," in line]


def test_names_of_jobs_are_completed(api: StubApi) -> None:
    def page(asked: Asked) -> Answer:
        assert asked.query["name_prefix"] == ["ni"]
        assert int(asked.query["limit"][0]) <= 100
        items = [{"name": name} for name in ("nightly", "nine", "other")]
        return Answer(body={"items": items, "next_cursor": "x"})

    api.on("GET", "/v1/jobs", page)
    assert completed(api, "jobs pause ni") == ["nightly", "nine"]
    assert completed(api, f"--url {api.url} slots ni", TICKRAIL_API_URL="") == ["nightly", "nine"]
    assert completed(api, "launches list --job ni") == ["nightly", "nine"]


def test_names_of_others_are_completed(api: StubApi) -> None:
    for path in ("queues", "calendars", "secrets", "tenants"):
        items = [{"name": f"{path}-a"}, {"name": "b"}]
        api.on("GET", f"/v1/{path}", Answer(body={"items": items, "next_cursor": None}))
        assert completed(api, f"{path} {'set' if path == 'tenants' else 'delete'} {path[0]}") == [
            f"{path}-a"
        ]


def test_nothing_is_said_where_something_is_wrong(api: StubApi) -> None:
    api.on("GET", "/v1/jobs", problem(401, "unauthenticated", "The key is not valid."))
    assert completed(api, "jobs pause ") == []
    assert completed(api, "jobs pause ", TICKRAIL_NONSENSE="1") == []
    assert completed(api, "jobs pause ", TICKRAIL_PROFILE="gone") == []

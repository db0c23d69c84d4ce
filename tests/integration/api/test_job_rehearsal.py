"""`PUT /v1/jobs/{job}?dry_run=true`: what would come of it, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Caller, webhook
from tests.support.database import Database

pytestmark = pytest.mark.integration
NIGHTLY = "/v1/jobs/name:nightly"
COUNTED = ("jobs", "job_versions", "audit_log")


def counts(database: Database) -> list[Any]:
    return [database.rows(f"select count(*) from {table}") for table in COUNTED]


def put(caller: Caller, document: Any, expect: int, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return caller.call(
        "PUT", NIGHTLY, document, headers=named, params={"dry_run": "true"}, expect=expect
    ).json()


def test_a_new_job_is_answered_and_not_made(acme: Caller, database: Database) -> None:
    before = counts(database)
    said = put(acme, webhook("nightly", schedule={"cron": "0 2 * * *"}), 200)
    assert (said["version"], said["schedule"]["gap"]) == (1, "after")
    assert counts(database) == before
    acme.get(NIGHTLY, expect=404)


def test_a_change_is_answered_and_not_made(acme: Caller, database: Database) -> None:
    made = acme.create("nightly", overlap="allow")
    before = counts(database)
    said = put(acme, webhook("nightly", overlap="skip"), 200, If_Match='"1"')
    assert (said["id"], said["version"], said["overlap"]) == (made["id"], 2, "skip")
    assert put(acme, webhook("nightly", overlap="allow"), 200)["version"] == 1
    assert counts(database) == before
    assert acme.get(NIGHTLY)["overlap"] == "allow"


def test_the_errors_are_those_of_the_real_thing(acme: Caller) -> None:
    missing = webhook("nightly", target={"webhook": {"url": "https://x.example/{{ nothing }}"}})
    assert put(acme, missing, 422)["errors"]
    [problem] = put(acme, webhook("nightly", queue="nowhere"), 422)["errors"]
    assert problem["pointer"] == "/queue"
    acme.create("nightly")
    assert put(acme, webhook("nightly"), 412, If_None_Match="*")["code"] == "precondition_failed"
    assert put(acme, webhook("nightly"), 412, If_Match='"7"')["code"] == "precondition_failed"

"""Many jobs by one request: each has its own result, all that are right are stored together."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import World, webhook

pytestmark = pytest.mark.integration
BATCH = "/v1/jobs/batch"


def names(world: World) -> list[str]:
    return sorted(j["name"] for j in world.acme.every("/v1/jobs"))


def test_each_job_gets_a_result_of_its_own_in_order(world: World) -> None:
    world.acme.create("taken")
    world.acme.put("/v1/calendars/holidays", {"weekdays": ["sun"]}, expect=201)
    world.acme.put("/v1/secrets/token", {"value": "hunter2"}, expect=201)
    signed = webhook("signed", tags={"team": "x", "tier": "1"})
    signed["target"]["webhook"]["headers"] = {"Authorization": {"secret": "token"}}
    unsigned = webhook("unsigned")
    unsigned["target"]["webhook"]["headers"] = {"Authorization": {"secret": "nothing"}}
    hourly: dict[str, Any] = {"every": "1h"}
    given = [
        signed,
        webhook("taken"),
        webhook("Not A Name"),
        webhook("closed", schedule=hourly, calendars={"exclude": ["holidays"]}),
        webhook("signed"),
        unsigned,
        webhook("nowhere", queue="nowhere"),
        webhook("never", schedule={"cron": "0 0 31 2 *"}),
        webhook("lost", schedule=hourly, calendars={"exclude": ["nothing"]}),
        webhook("quiet", paused=True, schedule=hourly),
        [],
    ]
    answer = world.acme.post(BATCH, {"jobs": given}, expect=200)
    items = answer["items"]
    assert [i["status"] for i in items] == [201, 409, 422, 201, 409, 422, 422, 422, 422, 201, 422]
    assert (answer["created"], answer["failed"], answer["dry_run"]) == (3, 8, False)
    assert [i["error"] and i["error"]["errors"][0]["pointer"] for i in items] == [
        None, "/jobs/1/name", "/jobs/2/name", None, "/jobs/4/name",
        "/jobs/5/target/webhook/headers/Authorization/secret", "/jobs/6/queue",
        "/jobs/7/schedule/cron",
        "/jobs/8/calendars/exclude/0", None, "/jobs/10",
    ]  # fmt: skip
    assert names(world) == ["closed", "quiet", "signed", "taken"]
    for n in (0, 3, 9):
        made = items[n]["job"]
        assert world.acme.get(f"/v1/jobs/{made['id']}") == made
    assert items[9]["job"]["state"] == "paused"
    assert [j["name"] for j in world.acme.get("/v1/jobs", tag="team:x")["items"]] == ["signed"]
    # What a calendar moves, it moves here too: the jobs are noted as its users.
    world.acme.call("DELETE", "/v1/calendars/holidays", expect=409)


def test_every_job_made_is_in_the_audit_log_and_no_other(world: World) -> None:
    answer = world.acme.post(
        BATCH, {"jobs": [webhook("a"), webhook("a"), webhook("b")]}, expect=200
    )
    made = {f"job:{i['job']['id']}": i["job"]["name"] for i in answer["items"] if i["job"]}
    rows = world.database.rows(
        "select subject, after ->> 'name', actor, address from audit_log"
        " where action = 'job.create'"
    )
    who = f"key:{world.keys['acme'].key_id}"
    assert sorted(rows) == sorted((s, n, who, "127.0.0.1") for s, n in made.items())


def test_a_dry_run_says_the_same_and_stores_nothing(world: World) -> None:
    world.acme.create("taken")
    given = [webhook("a"), webhook("taken"), webhook("a"), {"name": "b"}]
    before = world.database.rows("select count(*) from audit_log")
    dry = world.acme.post(BATCH, {"jobs": given, "dry_run": True}, expect=200)
    assert dry["dry_run"]
    assert names(world) == ["taken"]
    assert world.database.rows("select count(*) from audit_log") == before
    real = world.acme.post(BATCH, {"jobs": given}, expect=200)
    assert [i["status"] for i in dry["items"]] == [200, 409, 409, 422]
    assert [i["status"] for i in real["items"]] == [201, 409, 409, 422]
    assert [i["error"] for i in dry["items"]] == [i["error"] for i in real["items"]]
    assert (dry["created"], dry["failed"]) == (0, 3)
    assert (real["created"], real["failed"]) == (1, 3)
    assert dry["items"][0]["job"]["name"] == "a"


def test_the_whole_is_made_once_under_its_key(world: World) -> None:
    headers = {"Idempotency-Key": "one-batch"}
    given = {"jobs": [webhook(f"j{n}") for n in range(100)]}
    first = world.acme.call("POST", BATCH, given, headers=headers)
    again = world.acme.call("POST", BATCH, given, headers=headers)
    assert again.headers["Idempotent-Replay"] == "true"
    assert again.json() == first.json()
    assert first.json()["created"] == 100
    assert world.database.rows("select count(*) from jobs") == [(100,)]
    given["jobs"].pop()
    world.acme.call("POST", BATCH, given, headers=headers, expect=422)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/jobs"),
        ({"jobs": []}, "/jobs"),
        ({"jobs": {"name": "a"}}, "/jobs"),
        ({"jobs": [{}] * 1001}, "/jobs"),
        ({"jobs": [{}], "dry_run": 1}, "/dry_run"),
        ({"jobs": [{}], "dryrun": True}, "/dryrun"),
    ],
)
def test_a_request_that_is_no_batch_is_refused(world: World, document: Any, pointer: str) -> None:
    refused = world.acme.post(BATCH, document, expect=422)
    assert [e["pointer"] for e in refused["errors"]] == [pointer]


def test_a_batch_may_be_larger_than_other_bodies(world: World) -> None:
    large = [webhook(f"j{n}", payload="x" * 240_000) for n in range(40)]
    assert world.acme.post(BATCH, {"jobs": large}, expect=200)["created"] == 40
    refused = world.acme.post(BATCH, {"jobs": [*large, *large]}, expect=413)
    assert refused["detail"] == "The body is larger than 16777216 bytes."

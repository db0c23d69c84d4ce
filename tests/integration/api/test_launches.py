"""Launches by hand: trigger and its overlap policy, cancel, attempts; and their payloads."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.support.api import Caller, World, unused_id

from tickrail.core.ids import LaunchId, scheduled_at_of

pytestmark = pytest.mark.integration
PATH = "/v1/jobs/name:a/trigger"


def end(world: World, launch: str, state: str = "succeeded", **fields: object) -> None:
    phase = 2 if state in ("queued", "running") else 3
    world.database.run(
        "update launches set state = %s, phase = %s where id = %s", state, phase, launch
    )
    for name, value in fields.items():
        world.database.run(f"update launches set {name} = %s where id = %s", value, launch)


def test_a_trigger_is_a_launch_of_this_second(world: World, acme: Caller) -> None:
    job = acme.create("a", retry={"max_attempts": 3}, priority="low", visibility_timeout="45s")
    made = acme.call("POST", PATH, expect=201)
    launch = made.json()
    assert made.headers["location"] == f"/v1/launches/{launch['id']}"
    assert acme.get(made.headers["location"]) == launch
    assert UUID(launch["id"]).version == 8
    at = datetime.fromisoformat(launch["scheduled_at"])
    assert at.microsecond == 0
    assert scheduled_at_of(LaunchId(UUID(launch["id"]))) == at.timestamp()
    assert launch["job"] == {"id": job["id"], "name": "a", "version": 1}
    assert (launch["origin"], launch["state"], launch["priority"]) == ("manual", "due", "low")
    assert launch["max_attempts"] == 3
    [row] = world.database.rows(
        "select origin ~ '^manual:', partition, epoch, visibility, phase, payload from launches"
    )
    assert row == (True, job["partition"], 0, 45.0, 1, None)
    assert acme.get("/v1/jobs/name:a")["last_launch"]["id"] == launch["id"]


def test_a_trigger_wakes_the_schedulers_when_it_is_committed(world: World, acme: Caller) -> None:
    acme.create("a")
    with psycopg.connect(world.database.engine_url, autocommit=True) as conn:
        conn.execute("listen tickrail_wake")
        acme.post(PATH, expect=201)
        heard = next(conn.notifies(timeout=10))
    assert heard.channel == "tickrail_wake"


def test_a_trigger_may_say_what_differs(world: World, acme: Caller) -> None:
    acme.create("a", payload={"from": "job"})
    launch = acme.post(PATH, {"payload": None, "priority": "high", "overlap": "allow"}, expect=201)
    assert launch["priority"] == "high"
    acme.post(PATH, {"payload": {"n": 2}, "overlap": "allow"}, expect=201)
    rows = world.database.rows("select payload, payload is null from launches order by id")
    assert sorted(rows, key=str) == [(None, False), ({"n": 2}, False)]


def test_a_copy_runs_with_the_payload_of_its_model(world: World, acme: Caller) -> None:
    acme.create("a", payload={"from": "v1"})
    acme.create("b")
    model = acme.post(PATH, expect=201)["id"]
    assert acme.post(PATH, {"copy_of": model}, expect=422)["errors"][0]["pointer"] == "/copy_of"
    end(world, model)
    acme.patch("/v1/jobs/name:a", {"payload": {"from": "v2"}})
    copied = acme.post(PATH, {"copy_of": model}, expect=201)
    [(payload,)] = world.database.rows("select payload from launches where id = %s", copied["id"])
    assert payload == {"from": "v1"}
    acme.post("/v1/jobs/name:b/trigger", {"copy_of": model}, expect=422)
    acme.post(PATH, {"copy_of": model, "payload": 1}, expect=422)
    acme.post(PATH, {"copy_of": "x"}, expect=422)
    acme.post(PATH, {"copy_of": unused_id()}, expect=422)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"payloads": 1}, "/payloads"),
        ({"priority": "urgent"}, "/priority"),
        ({"overlap": "queue"}, "/overlap"),
        ({"payload": {"k": "a\x00"}}, "/payload/k"),
        ([], ""),
    ],
)
def test_a_trigger_that_is_wrong(acme: Caller, document: Any, pointer: str) -> None:
    acme.create("a")
    refused = acme.post(PATH, document, expect=422)
    assert [e["pointer"] for e in refused["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("overlap", "second", "third", "first_then"),
    [
        ("allow", "due", "due", "running"),
        ("skip", 409, 409, "running"),
        ("buffer_one", "held", 409, "running"),
        ("buffer_all", "held", "held", "running"),
        ("cancel_other", "held", "held", "running"),
        ("terminate_other", "due", "due", "cancelled"),
    ],
)
def test_overlap(
    world: World, acme: Caller, overlap: str, second: str | int, third: str | int, first_then: str
) -> None:
    acme.create("a", overlap=overlap)
    first = acme.post(PATH, expect=201)["id"]
    end(world, first, "running", claim=7)
    for wanted in (second, third):
        answer = acme.call("POST", PATH)
        if isinstance(wanted, int):
            assert (answer.status_code, answer.json()["code"]) == (wanted, "overlap")
        else:
            assert answer.json()["state"] == wanted
    there = acme.get(f"/v1/launches/{first}")
    assert there["state"] == first_then
    assert there["cancel_requested"] is (overlap in ("cancel_other", "terminate_other"))
    if overlap == "cancel_other":
        states = world.database.rows("select state from launches order by state")
        assert states == [("cancelled",), ("held",), ("running",)]


def test_a_trigger_ignores_a_pause(acme: Caller) -> None:
    acme.create("a", paused=True)
    assert acme.post(PATH, expect=201)["state"] == "due"


def test_a_trigger_on_a_slot_is_another_launch(world: World, acme: Caller) -> None:
    """Slots and triggers of one second have different keys, whatever a caller sends."""
    acme.create("a", overlap="allow")
    ids = {
        acme.post(PATH, expect=201, Idempotency_Key=key)["id"]
        for key in ("schedule", "2026-01-01T00:00:00Z", "manual:1")
    }
    assert len(ids) == 3
    origins = world.database.rows("select distinct split_part(origin, ':', 1) from launches")
    assert origins == [("manual",)]


def test_cancel(world: World, acme: Caller) -> None:
    acme.create("a", overlap="allow")
    waiting, running, done = (acme.post(PATH, expect=201)["id"] for _ in range(3))
    end(world, running, "running", claim=9)
    end(world, done)
    gone = acme.post(f"/v1/launches/{waiting}/cancel", expect=202)
    assert (gone["state"], gone["finished_at"] is not None) == ("cancelled", True)
    assert acme.post(f"/v1/launches/{waiting}/cancel", expect=202) == gone
    asked = acme.post(f"/v1/launches/{running}/cancel", expect=202)
    assert (asked["state"], asked["cancel_requested"]) == ("running", True)
    assert acme.post(f"/v1/launches/{done}/cancel", expect=409)["code"] == "conflict"


def test_attempts_of_a_launch(world: World, acme: Caller) -> None:
    acme.create("a")
    launch = acme.post(PATH, expect=201)["id"]
    path = f"/v1/launches/{launch}/attempts"
    assert acme.get(path)["items"] == []
    for n in (1, 2):
        world.database.run(
            "insert into attempts (launch_id, scheduled_at, tenant_id, attempt, claim, worker,"
            " started_at, outcome, certain, code, message, body)"
            " select id, scheduled_at, tenant_id, %s, %s, 'w-1', now(), 'http_500', true, 500,"
            " 'no', 'b' from launches",
            n,
            40 + n,
        )
    end(world, launch, "running", attempt=3, claim=43, worker="w-2")
    found = acme.every(path, limit=1)
    assert [(a["attempt"], a["outcome"], a["claim"]) for a in found] == [
        (1, "http_500", 41),
        (2, "http_500", 42),
        (3, None, 43),
    ]
    result = '{"outcome": "succeeded", "code": 200, "message": "", "body": "ok"}'
    end(world, launch, "succeeded", result=result)
    last = acme.get(path)["items"][-1]
    assert (last["outcome"], last["code"], last["body"]) == ("succeeded", 200, "ok")
    acme.get(path, cursor="WzFd", expect=422)

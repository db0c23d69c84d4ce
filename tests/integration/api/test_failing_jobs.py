"""What a job wants when its launches fail, through the API: made, changed, paused, resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.support.api import URL, Caller, World, api_world
from tests.support.database import Database
from tests.support.store_bed import PostgresBed, claim_one, end_of, verdict

from tickrail.core.ids import LaunchId
from tickrail.core.states import State
from tickrail.store.cipher import SecretCipher, new_key

WANTED = {"pause_after": 2, "notify": ["webhook:ops"]}


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with api_world(database, cipher=SecretCipher([new_key()])) as made:
        yield made


@pytest.fixture
def bed(world: World) -> Iterator[PostgresBed]:
    made = PostgresBed(world.database)
    yield made
    made.close()


@pytest.fixture
def acme(world: World) -> Caller:
    world.acme.put("/v1/secrets/ops", {"value": "https://hooks.example.org/T0"}, expect=201)
    return world.acme


def job(name: str, on_failures: Any, **more: Any) -> dict[str, Any]:
    target = {"webhook": {"url": URL}}
    return {"name": name, "target": target, "schedule": {"every": "1h"},
            "overlap": "allow", "on_failures": on_failures, **more}  # fmt: skip


def give_up(bed: PostgresBed, acme: Caller, name: str) -> str:
    launch = acme.post(f"/v1/jobs/name:{name}/trigger", None, expect=201)["id"]
    worker = bed.worker()
    claimed = claim_one(bed, worker, LaunchId(UUID(launch)))
    worker.finish([end_of(claimed, verdict(claimed, State.DEAD))])
    worker.close()
    return str(launch)


def test_a_job_says_what_it_wants_and_a_warning_says_what_is_odd(acme: Caller) -> None:
    acme.post("/v1/jobs", job("b", None), expect=201)
    made = acme.post("/v1/jobs", job("a", WANTED), expect=201)
    whole = {**WANTED, "expect_success_every": None}
    assert (made["on_failures"], made["lint"]) == (whole, [])
    silent = acme.patch("/v1/jobs/name:a", {"on_failures": {"notify": None}})
    assert silent["on_failures"] == {**whole, "notify": []}
    assert [w["code"] for w in silent["lint"]] == ["untold"]
    waits = acme.patch("/v1/jobs/name:b", {"on_failures": {"expect_success_every": "26h"}})
    assert [w["pointer"] for w in waits["lint"]] == ["/on_failures/expect_success_every"]
    none = acme.patch("/v1/jobs/name:a", {"on_failures": None})
    assert (none["on_failures"], none["version"]) == (None, 3)
    assert acme.put("/v1/jobs/name:a", job("a", {}))["version"] == 3


def test_a_job_of_a_version_without_it_is_as_it_was(world: World, acme: Caller) -> None:
    acme.post("/v1/jobs", job("a", None), expect=201)
    world.database.run("update job_versions set definition = definition - 'on_failures'")
    assert acme.get("/v1/jobs/name:a")["on_failures"] is None
    assert acme.put("/v1/jobs/name:a", job("a", None))["version"] == 1
    acme.post("/v1/jobs", job("c", WANTED), expect=201)
    world.database.run(
        "update job_versions set definition = definition #- '{on_failures,expect_success_every}'"
        " where jsonb_typeof(definition -> 'on_failures') = 'object'"
    )
    assert acme.put("/v1/jobs/name:c", job("c", WANTED))["version"] == 1
    assert acme.patch("/v1/jobs/name:a", {"on_failures": WANTED})["version"] == 2


def test_a_secret_that_a_channel_names_stays(acme: Caller) -> None:
    acme.post("/v1/jobs", job("a", WANTED), expect=201)
    refused = acme.call("DELETE", "/v1/secrets/ops", expect=409).json()
    assert "a" in refused["detail"]
    acme.call("DELETE", "/v1/jobs/name:a", expect=204)
    acme.call("DELETE", "/v1/secrets/ops", expect=204)
    wrong = acme.call("POST", "/v1/jobs", job("b", WANTED), expect=422).json()
    assert [e["pointer"] for e in wrong["errors"]] == ["/on_failures/notify/0"]


def test_another_tenant_s_secret_is_none(world: World, acme: Caller) -> None:
    del acme
    wrong = world.beta.call("POST", "/v1/jobs", job("b", WANTED), expect=422).json()
    assert [e["pointer"] for e in wrong["errors"]] == ["/on_failures/notify/0"]


def test_it_pauses_itself_and_begins_anew_when_it_is_resumed(
    world: World, bed: PostgresBed, acme: Caller
) -> None:
    acme.post("/v1/jobs", job("a", WANTED), expect=201)
    give_up(bed, acme, "a")
    assert acme.get("/v1/jobs/name:a")["state"] == "active"
    last = give_up(bed, acme, "a")
    shown = acme.get("/v1/jobs/name:a")
    assert (shown["state"], shown["next_run_at"] is None) == ("paused", False)
    note = shown["paused"]
    assert (note["by"], note["launch"], note["until"]) == ("system", last, None)
    entries = world.database.rows(
        "select actor, action, after ->> 'launch' from audit_log where actor = 'system'"
    )
    assert entries == [("system", "job.pause", last)]
    assert acme.post("/v1/jobs/name:a/resume", {}, expect=200)["paused"] is None
    give_up(bed, acme, "a")
    assert acme.get("/v1/jobs/name:a")["state"] == "active"
    give_up(bed, acme, "a")
    assert acme.get("/v1/jobs/name:a")["state"] == "paused"
    # Somebody else's pause takes its place.
    acme.post("/v1/jobs/name:a/pause", {"reason": "looked at"}, expect=200)
    assert acme.get("/v1/jobs/name:a")["paused"]["by"] != "system"
    told = world.database.rows("select kind, count(*) from notices group by kind order by kind")
    assert told == [("job.paused", 2), ("launch.dead", 4)]


def test_a_pause_by_hand_begins_anew_too(world: World, bed: PostgresBed, acme: Caller) -> None:
    del world
    acme.post("/v1/jobs", job("a", WANTED), expect=201)
    give_up(bed, acme, "a")
    acme.post("/v1/jobs/name:a/pause", {}, expect=200)
    acme.post("/v1/jobs/name:a/resume", {}, expect=200)
    give_up(bed, acme, "a")
    assert acme.get("/v1/jobs/name:a")["state"] == "active"
    give_up(bed, acme, "a")
    assert acme.get("/v1/jobs/name:a")["state"] == "paused"

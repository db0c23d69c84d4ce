"""Tenants over HTTP: made, suspended, deleted; what that does to their keys and their work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from tests.support.api import World
from tests.support.database import PARTITIONS
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import Epoch, Partition
from tickrail.engine.tick import JobPlanner
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration

TENANTS = "/v1/tenants"
OWNED = {Partition(p): Epoch(0) for p in range(PARTITIONS)}


@contextmanager
def scheduler(world: World) -> Iterator[PostgresOwnerStore]:
    """The store of an owner of all partitions."""
    store = PostgresOwnerStore(DatabaseSettings(world.database.engine_url), SystemClock())
    try:
        yield store
    finally:
        store.close()


def status(world: World) -> int:
    """What a request with acme's key is answered."""
    return world.acme.call("GET", "/v1/jobs").status_code


def test_an_operator_makes_a_tenant_and_its_first_key(world: World) -> None:
    made = world.operator.call(
        "POST", TENANTS, {"name": "gamma", "weight": 3, "max_running": 5}, expect=201
    )
    tenant = made.json()
    assert made.headers["Location"] == f"{TENANTS}/{tenant['id']}"
    assert (tenant["state"], tenant["weight"], tenant["max_running"]) == ("active", 3, 5)
    assert world.operator.get(f"{TENANTS}/gamma") == tenant
    key = world.caller(world.operator.token, "gamma").post(
        "/v1/api-keys", {"name": "first", "scopes": ["admin", "read"]}, expect=201
    )
    first = world.caller(key["token"])
    assert first.get("/v1/jobs")["items"] == []
    for caller in (first, world.acme):
        caller.post(TENANTS, {"name": "delta"}, expect=403)
        caller.get(TENANTS, expect=403)
    taken = world.operator.post(TENANTS, {"name": "gamma"}, expect=409)
    assert taken["code"] == "name_taken"
    for name in ("", "Gamma", "a b", tenant["id"], 7, None):
        answer = world.operator.post(TENANTS, {"name": name}, expect=422)
        assert answer["errors"][0]["pointer"] == "/name"
    answer = world.operator.post(TENANTS, {"name": "d", "state": "suspended"}, expect=422)
    assert answer["errors"][0]["pointer"] == "/state"
    world.caller(world.operator.token, "acme").post(TENANTS, {"name": "d"}, expect=403)
    entries = world.database.rows(
        "select action, actor, after ->> 'name' from audit_log where tenant_id is null"
    )
    assert entries == [("tenant.create", f"operator:{world.keys['operator'].key_id}", "gamma")]


def test_a_repeated_request_makes_one_tenant(world: World) -> None:
    first = world.operator.post(TENANTS, {"name": "gamma"}, expect=201, Idempotency_Key="t-1")
    again = world.operator.post(TENANTS, {"name": "gamma"}, expect=201, Idempotency_Key="t-1")
    assert again == first


def test_a_suspended_tenants_keys_are_refused_and_its_slots_are_skipped_as_paused(
    world: World,
) -> None:
    job = world.acme.create("a", schedule={"every": "1s"}, overlap="allow")
    path = f"{TENANTS}/acme"
    seen = world.operator.post(f"{path}/suspend", {"reason": "unpaid"}, expect=200)
    assert (seen["state"], seen["state_reason"]) == ("suspended", "unpaid")
    assert world.operator.post(f"{path}/suspend", {"reason": "unpaid"}, expect=200) == seen
    assert until(lambda: status(world) == 403) < 2
    assert world.acme.get("/v1/jobs", expect=403)["detail"] == "The tenant is suspended."
    world.beta.get("/v1/jobs")
    assert [t["name"] for t in world.operator.get(TENANTS, state="suspended")["items"]] == ["acme"]
    with scheduler(world) as store:
        late = "select next_run_at + interval '2 s' < now() from jobs where id = %s"
        until(lambda: world.database.rows(late, job["id"]) == [(True,)])
        assert store.tick(OWNED, 10, JobPlanner()).jobs == 0
        back = world.operator.post(f"{path}/resume", {"reason": "paid"}, expect=200)
        assert (back["state"], back["state_reason"]) == ("active", "paid")
        ticked = store.tick(OWNED, 10, JobPlanner())
    assert ticked.skipped["paused"] >= 2
    assert list(ticked.inserted) == []
    as_acme = world.caller(world.operator.token, "acme")
    slots = as_acme.get(f"/v1/jobs/{job['id']}/slots")["items"]
    assert {s["reason"] for s in slots if s["state"] == "skipped"} == {"paused"}
    assert until(lambda: status(world) == 200) < 2
    actions = world.database.rows(
        "select action, before ->> 'state', after ->> 'reason' from audit_log"
        " where action like 'tenant.%%' order by id"
    )
    assert actions == [
        ("tenant.suspend", "active", "unpaid"),
        ("tenant.resume", "suspended", "paid"),
    ]


def test_what_is_published_of_a_suspended_tenant_does_not_start(world: World) -> None:
    """Its own limit is paused: the claim gives it back."""
    world.operator.post(f"{TENANTS}/acme/suspend", expect=200)
    [paused] = world.database.rows(
        "select paused from limits where scope = 'tenant' and tenant_id = %s",
        world.tenant_id("acme"),
    )
    assert paused == (True,)
    world.operator.post(f"{TENANTS}/acme/resume", expect=200)
    [paused] = world.database.rows(
        "select paused from limits where scope = 'tenant' and tenant_id = %s",
        world.tenant_id("acme"),
    )
    assert paused == (False,)


def test_another_state_is_another_version(world: World) -> None:
    path = f"{TENANTS}/acme"
    active = world.operator.call("GET", path, expect=200).headers["ETag"]
    world.operator.post(f"{path}/suspend", {"reason": "unpaid"}, expect=200)
    suspended = world.operator.call("GET", path, expect=200).headers["ETag"]
    assert suspended != active
    stale, fresh = {"If-Match": active}, {"If-Match": suspended}
    world.operator.call("PATCH", path, {"weight": 7}, headers=stale, expect=412)
    world.operator.call("PATCH", path, {"weight": 7}, headers=fresh, expect=200)


def test_a_deleted_tenant_is_gone_for_its_keys_and_can_be_brought_back(world: World) -> None:
    world.operator.delete(f"{TENANTS}/acme")
    world.operator.delete(f"{TENANTS}/acme")
    assert world.operator.get(f"{TENANTS}/acme")["state"] == "deleted"
    until(lambda: status(world) == 401)
    world.caller(world.operator.token, "acme").get("/v1/jobs", expect=404)
    world.operator.post(f"{TENANTS}/acme/suspend", expect=409)
    world.operator.post(f"{TENANTS}/acme/resume", expect=200)
    until(lambda: status(world) == 200)
    assert world.operator.post(TENANTS, {"name": "acme"}, expect=409)["code"] == "name_taken"
    for path in (f"{TENANTS}/nobody", f"{TENANTS}/acme%00b"):
        world.operator.get(path, expect=404)
        world.operator.call("DELETE", path, expect=404)
        for verb in ("suspend", "resume"):
            world.operator.post(f"{path}/{verb}", expect=404)


def test_a_new_tenant_takes_the_name_of_a_deleted_one(world: World) -> None:
    old = world.operator.get(f"{TENANTS}/acme")
    job = world.acme.create("a")
    world.operator.delete(f"{TENANTS}/acme")
    new = world.operator.post(TENANTS, {"name": "acme", "weight": 7}, expect=201)
    assert new["id"] != old["id"]
    assert world.operator.get(f"{TENANTS}/acme") == new
    former = world.operator.get(f"{TENANTS}/{old['id']}")
    called = f"acme.deleted-{old['id'][-12:]}"
    assert (former["name"], former["state"]) == (called, "deleted")
    assert former["version"] > old["version"]
    assert [t["name"] for t in world.operator.get(TENANTS)["items"]] == ["acme", called, "beta"]
    subject = f"tenant:{old['id']}"
    [last, *_] = world.operator.get("/v1/audit-log", subject=subject, sort="-at")["items"]
    assert (last["action"], last["before"], last["after"]) == (
        "tenant.change", {"name": "acme"}, {"name": called},
    )  # fmt: skip
    until(lambda: status(world) == 401)
    world.operator.delete(f"{TENANTS}/{called}")  # once more; the new one stays
    assert world.operator.get(f"{TENANTS}/acme")["state"] == "active"
    back = world.operator.post(f"{TENANTS}/{called}/resume", expect=200)
    assert (back["id"], back["name"]) == (old["id"], called)
    until(lambda: status(world) == 200)
    assert world.acme.get(f"/v1/jobs/{job['id']}")["name"] == "a"
    world.operator.post(TENANTS, {"name": "acme"}, expect=409)


def test_the_longest_name_can_be_taken_too(world: World) -> None:
    name = "x" * 128
    for _ in range(3):
        world.operator.post(TENANTS, {"name": name}, expect=201)
        world.operator.delete(f"{TENANTS}/{name}")
    names = [str(t["name"]) for t in world.operator.get(TENANTS, state="deleted")["items"]]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 128
    for called in names:
        world.operator.post(f"{TENANTS}/{called}/resume", expect=200)


def test_what_has_not_begun_of_a_deleted_tenant_is_cancelled(world: World) -> None:
    job = world.acme.create("a", overlap="buffer_all")
    theirs = world.beta.create("b")
    first, second = (
        world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)["id"] for _ in range(2)
    )
    other = world.beta.post(f"/v1/jobs/{theirs['id']}/trigger", expect=201)["id"]
    world.operator.delete(f"{TENANTS}/acme")
    with scheduler(world) as store:
        assert store.sweep(OWNED, timedelta(minutes=5), 10).moved == {"cancelled": 2}
        assert store.sweep(OWNED, timedelta(minutes=5), 10).moved == {}
    world.operator.post(f"{TENANTS}/acme/resume", expect=200)
    until(lambda: status(world) == 200)
    for launch in (first, second):
        assert world.acme.get(f"/v1/launches/{launch}")["state"] == "cancelled"
    assert world.beta.get(f"/v1/launches/{other}")["state"] == "due"


def test_no_first_key_of_a_deleted_tenant_is_made(world: World) -> None:
    world.operator.delete(f"{TENANTS}/acme")
    with pytest.raises(InvalidInputError) as refused:
        world.key("acme")
    [problem] = refused.value.problems
    assert problem.pointer == "/tenant"
    assert "is deleted" in problem.message

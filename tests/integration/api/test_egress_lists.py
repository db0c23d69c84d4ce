"""Egress lists at a job's creation: the installation's, and those of one tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.support.api import Caller, World, api_world
from tests.support.database import Database

from tickrail.store.cipher import SecretCipher
from tickrail.store.session import DatabaseSettings
from tickrail.store.target_facts import PostgresTargetFacts


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with api_world(database) as made:
        yield made


def narrow(world: World, tenant: str, lists: Any) -> None:
    world.database.run(
        "update tenants set egress = %s where id = %s", Jsonb(lists), world.tenant_id(tenant)
    )


def make(caller: Caller, name: str, host: str, expect: int) -> Any:
    target = {"webhook": {"url": f"http://{host}/"}}
    return caller.post("/v1/jobs", {"name": name, "target": target}, expect=expect)


def test_lists_of_one_tenant(world: World) -> None:
    narrow(world, "acme", {"allow": ["10.1.2.3:8080"], "deny": ["127.0.0.9"]})
    narrow(world, "beta", {"only": ["partner.example"]})
    make(world.acme, "a", "10.1.2.3:8080", 201)
    (error,) = make(world.acme, "b", "10.1.2.3", 422)["errors"]
    assert error["pointer"] == "/target/webhook/url"
    make(world.beta, "a", "10.1.2.3:8080", 422)
    make(world.acme, "c", "127.0.0.9:9000", 422)
    make(world.acme, "c", "127.0.0.8:9000", 201)
    make(world.beta, "b", "127.0.0.8:9000", 422)
    # The same when a job is changed, or put under its name.
    change = {"target": {"webhook": {"url": "http://127.0.0.9:9000/"}}}
    world.acme.patch("/v1/jobs/name:a", change, expect=422)
    world.acme.put("/v1/jobs/name:new", change, expect=422)
    world.acme.put("/v1/jobs/name:new", {"target": {"webhook": {"url": "http://10.1.2.3:8080"}}},
                   expect=201)  # fmt: skip


def test_lists_that_changed_since_the_process_saw_them(world: World) -> None:
    """It checks by those that it knows; what it would store or refuse by old ones is done again."""
    make(world.acme, "a", "127.0.0.9", 201)
    narrow(world, "acme", {"deny": ["127.0.0.9"]})
    make(world.acme, "b", "127.0.0.9", 422)
    make(world.acme, "c", "127.0.0.8", 201)
    make(world.acme, "d", "127.0.0.9", 422)
    narrow(world, "acme", None)
    make(world.acme, "e", "127.0.0.9", 201)
    make(world.acme, "f", "127.0.0.9", 201)
    names = [name for (name,) in world.database.rows("select name from jobs order by name")]
    assert names == ["a", "c", "e", "f"]


def test_lists_that_cannot_be_read_shut_everything(world: World) -> None:
    narrow(world, "acme", {"allow": ["10.0.0.0/99"]})
    (error,) = make(world.acme, "a", "127.0.0.8", 422)["errors"]
    assert "cannot be checked" in error["message"]


def test_a_worker_reads_the_same_lists(world: World) -> None:
    lists = {"deny": ["127.0.0.9"]}
    narrow(world, "acme", lists)
    database = DatabaseSettings(world.database.engine_url)
    facts = PostgresTargetFacts(database, SecretCipher(()))
    tenants = {t: world.keys[t].tenant for t in ("acme", "beta")}
    try:
        assert {t: facts.egress(i) for t, i in tenants.items() if i is not None} == {
            "acme": lists,
            "beta": None,
        }
    finally:
        facts.close()


def test_a_restart_of_the_database_costs_a_worker_no_look_at_a_tenant(world: World) -> None:
    """Each connection of the pool is dead then, and nothing has been done yet."""
    named = DatabaseSettings(world.database.engine_url, name="facts-in-a-test")
    facts = PostgresTargetFacts(named, SecretCipher(()))
    tenant = world.keys["acme"].tenant
    assert tenant is not None
    try:
        assert facts.egress(tenant) is None
        killed = world.database.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s",
            "facts-in-a-test",
        )
        assert killed == [(True,)]
        assert facts.egress(tenant) is None
    finally:
        facts.close()

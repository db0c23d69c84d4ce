"""Secrets through the API: written, named by jobs, never read back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.support.api import URL, Caller, World, api_world
from tests.support.database import Database
from tests.support.until import until

from tickrail.core.errors import SetupError
from tickrail.store.cipher import SecretCipher, new_key
from tickrail.store.rekey import rekey_secrets
from tickrail.store.session import DatabaseSettings
from tickrail.store.target_facts import PostgresTargetFacts

HUSH = "hush-hush-7f3a"
OLD_KEY, NEW_KEY = new_key(), new_key()


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    with api_world(database, cipher=SecretCipher([OLD_KEY])) as made:
        yield made


@pytest.fixture
def acme(world: World) -> Caller:
    return world.acme


def values(database: Database, tenant: str, *keys: str, names: list[str]) -> dict[str, bytes]:
    """What a worker with these keys reads."""
    facts = PostgresTargetFacts(DatabaseSettings(database.engine_url), SecretCipher(keys))
    try:
        return dict(facts.get(UUID(tenant), names))
    finally:
        facts.close()


def signed(name: str, secret: str) -> dict[str, Any]:
    signature = {"secrets": [{"secret": secret}]}
    return {"name": name, "target": {"webhook": {"url": URL, "signature": signature}}}


def test_a_value_goes_in_and_only_a_worker_reads_it(world: World, acme: Caller) -> None:
    made = acme.call("PUT", "/v1/secrets/token", {"value": HUSH}, expect=201)
    assert made.headers["Location"] == "/v1/secrets/token"
    assert made.json().keys() == {"name", "updated_at"}
    assert acme.put("/v1/secrets/token", {"value": HUSH + "2"})["name"] == "token"
    assert [s["name"] for s in acme.every("/v1/secrets", limit=1)] == ["token"]
    assert acme.get("/v1/secrets/token")["name"] == "token"
    tenant = world.tenant_id("acme")
    found = values(world.database, tenant, OLD_KEY, names=["token", "other"])
    assert found == {"token": (HUSH + "2").encode()}
    [(stored,)] = world.database.rows("select ciphertext from secrets")
    assert isinstance(stored, bytes)
    assert HUSH.encode() not in stored


def test_a_value_is_nowhere_but_in_its_row(world: World, acme: Caller) -> None:
    acme.put("/v1/secrets/token", {"value": HUSH}, expect=201)
    acme.post("/v1/jobs", signed("a", "token"), expect=201)
    rows = world.database.rows("select to_jsonb(a)::text from audit_log a")
    actions = world.database.rows("select action from audit_log where subject = 'secret:token'")
    assert actions == [("secret.create",)]
    everything = str(rows) + str(acme.every("/v1/jobs"))
    assert HUSH not in everything


WRONG: list[tuple[str, Any, str]] = [
    ("Token", {"value": "x"}, "/name"),
    ("t", None, ""),
    ("t", [], ""),
    ("t", {}, "/value"),
    ("t", {"value": ""}, "/value"),
    ("t", {"value": 7}, "/value"),
    ("t", {"value": {"secret": HUSH}}, "/value"),
    ("t", {"value": HUSH + "\x00"}, "/value"),
    ("t", {"value": "é" * 32769}, "/value"),
    ("t", {"value": "x", "valeu": HUSH}, "/valeu"),
    ("t", {"value": "x", "name": "u"}, "/name"),
]


def test_what_is_wrong_is_named_and_not_repeated(acme: Caller) -> None:
    for name, document, pointer in WRONG:
        answer = acme.call("PUT", f"/v1/secrets/{name}", document, expect=422)
        assert pointer in {e["pointer"] for e in answer.json()["errors"]}
        assert HUSH not in answer.text
    acme.get("/v1/secrets/t", expect=404)


def test_64_kib_fit(world: World, acme: Caller) -> None:
    acme.put("/v1/secrets/large", {"value": "é" * 32768}, expect=201)
    found = values(world.database, world.tenant_id("acme"), OLD_KEY, names=["large"])
    assert len(found["large"]) == 65536


def test_create_only(acme: Caller) -> None:
    for expect in (201, 412):
        acme.call(
            "PUT", "/v1/secrets/a", {"value": "x"}, headers={"If-None-Match": "*"}, expect=expect
        )
    acme.call("PUT", "/v1/secrets/b", {"value": "x"}, headers={"If-Match": "*"}, expect=412)
    acme.call("PUT", "/v1/secrets/a", {"value": "x"}, headers={"If-Match": '"1"'}, expect=412)


def test_only_administrators_and_only_their_own(world: World, acme: Caller) -> None:
    acme.put("/v1/secrets/token", {"value": HUSH}, expect=201)
    world.beta.get("/v1/secrets/token", expect=404)
    world.beta.delete("/v1/secrets/token")
    assert world.beta.every("/v1/secrets") == []
    world.beta.post("/v1/jobs", signed("a", "token"), expect=422)
    acme.get("/v1/secrets/token")
    writer = world.caller(world.key("acme", "read", "run", "write").token)
    for method in ("GET", "PUT", "DELETE"):
        document = {"value": "x"} if method == "PUT" else None
        writer.call(method, "/v1/secrets/token", document, expect=403)
    writer.get("/v1/secrets", expect=403)
    # Whoever may write jobs may use a secret, though not read it.
    writer.post("/v1/jobs", signed("b", "token"), expect=201)


def test_a_job_names_secrets_that_are_there(acme: Caller) -> None:
    refused = acme.post("/v1/jobs", signed("a", "token"), expect=422)
    (error,) = refused["errors"]
    assert error["pointer"] == "/target/webhook/signature/secrets/0/secret"
    acme.create("a")
    headers = {"target": {"webhook": {"headers": {"X": {"secret": "token"}}}}}
    (error,) = acme.patch("/v1/jobs/name:a", headers, expect=422)["errors"]
    assert error["pointer"] == "/target/webhook/headers/X/secret"
    acme.put("/v1/secrets/token", {"value": HUSH}, expect=201)
    changed = acme.patch("/v1/jobs/name:a", headers)
    assert changed["target"]["webhook"]["headers"] == {"X": {"secret": "token"}}


def test_a_secret_in_use_stays(acme: Caller) -> None:
    acme.put("/v1/secrets/token", {"value": HUSH}, expect=201)
    acme.post("/v1/jobs", signed("user", "token"), expect=201)
    # What only looks like a reference is none.
    alike = {"webhook": {"url": URL, "body": {"secret": "token"}}}
    acme.post("/v1/jobs", {"name": "alike", "target": alike}, expect=201)
    refused = acme.call("DELETE", "/v1/secrets/token", expect=409).json()
    assert [e["message"] for e in refused["errors"]] == ["the job 'user' names it"]
    acme.delete("/v1/jobs/name:user")
    acme.delete("/v1/secrets/token")
    acme.delete("/v1/secrets/token")
    acme.get("/v1/secrets/token", expect=404)


def test_a_job_made_while_its_secret_is_deleted(world: World, acme: Caller) -> None:
    """Either the job is refused or the deletion is: no job is left without its secret."""
    acme.put("/v1/secrets/token", {"value": HUSH}, expect=201)
    with world.database.admin() as held:
        held.autocommit = False
        held.execute("select from secrets for key share")
        answers: list[int] = []

        def delete() -> None:
            answers.append(acme.call("DELETE", "/v1/secrets/token").status_code)

        thread = threading.Thread(target=delete)
        thread.start()
        until(
            lambda: world.database.rows(
                "select pid from pg_stat_activity"
                " where wait_event_type = 'Lock' and datname = current_database()"
            )
        )
        acme.post("/v1/jobs", signed("a", "token"), expect=201)
        held.rollback()
        thread.join(30)
    assert answers == [409]


def test_keys_are_changed_one_after_another(world: World, acme: Caller) -> None:
    acme.put("/v1/secrets/a", {"value": HUSH}, expect=201)
    database, tenant = world.database, world.tenant_id("acme")
    with pytest.raises(SetupError, match="'a' is encrypted with a key"):
        values(database, tenant, NEW_KEY, names=["a"])
    with pytest.raises(SetupError, match="TICKRAIL_SECRET_KEYS"):
        values(database, tenant, names=["a"])
    both = SecretCipher([NEW_KEY, OLD_KEY])
    assert rekey_secrets(database.owner_url, both) == (1, 0)
    assert rekey_secrets(database.owner_url, both) == (0, 1)
    assert values(database, tenant, NEW_KEY, names=["a"]) == {"a": HUSH.encode()}


def test_a_ciphertext_in_another_row_is_refused(world: World, acme: Caller) -> None:
    acme.put("/v1/secrets/a", {"value": HUSH}, expect=201)
    world.beta.put("/v1/secrets/a", {"value": "theirs"}, expect=201)
    world.database.run(
        "update secrets set ciphertext = (select ciphertext from secrets where tenant_id = %s)",
        world.tenant_id("acme"),
    )
    with pytest.raises(SetupError, match="another secret's"):
        values(world.database, world.tenant_id("beta"), OLD_KEY, names=["a"])
    acme.put("/v1/secrets/b", {"value": "another of theirs"}, expect=201)
    world.database.run("delete from secrets where name = 'a'")
    world.database.run("update secrets set name = 'a'")
    with pytest.raises(SetupError, match="another secret's"):
        values(world.database, world.tenant_id("acme"), OLD_KEY, names=["a"])


def test_without_keys_nothing_is_kept(database: Database) -> None:
    with api_world(database, cipher=SecretCipher(())) as world:
        answer = world.acme.call("PUT", "/v1/secrets/a", {"value": HUSH}, expect=503).json()
        assert "TICKRAIL_SECRET_KEYS" in answer["detail"]
        assert world.acme.every("/v1/secrets") == []

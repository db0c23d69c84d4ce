"""API keys over HTTP: made, told once, listed, rotated, revoked, and who may do so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.api import World

from tickrail.core.keys import MAX_LIVE, TOKEN

pytestmark = pytest.mark.integration

KEYS = "/v1/api-keys"
NEW = {"name": "deploy", "scopes": ["write", "read"], "description": "of the pipeline"}


def test_a_key_is_made_told_once_and_works(world: World) -> None:
    made = world.acme.post(KEYS, NEW | {"requests_per_second": 20}, expect=201)
    token = made.pop("token")
    assert re.fullmatch(TOKEN, token)
    assert token.startswith(f"{made['prefix']}_")
    assert made["scopes"] == ["read", "write"]
    assert (made["state"], made["requests_per_second"]) == ("active", 20)
    assert made["created_by"] == f"key:{world.keys['acme'].key_id}"
    assert world.acme.get(f"{KEYS}/{made['id']}") == made
    assert world.acme.get(KEYS)["items"][0] == made
    key = world.caller(token)
    key.get("/v1/jobs")
    key.get(KEYS, expect=403)
    [(kept,)] = world.database.rows("select api_keys::text from api_keys where id = %s", made["id"])
    assert token.rpartition("_")[2] not in kept
    [entry] = world.database.rows(
        "select actor, after::text from audit_log where action = 'key.create' and subject = %s",
        f"key:{made['id']}",
    )
    assert entry[0] == made["created_by"]
    assert token not in entry[1]


def test_a_repeated_request_makes_no_second_key_and_does_not_tell_the_first_again(
    world: World,
) -> None:
    for caller in (world.acme, world.operator):
        first = caller.post(KEYS, NEW, expect=201, Idempotency_Key="k-1")
        again = caller.call("POST", KEYS, NEW, headers={"Idempotency-Key": "k-1"}, expect=201)
        assert again.headers["Idempotent-Replay"] == "true"
        assert again.json() == first | {"token": None}
        caller.post(KEYS, NEW | {"name": "x"}, expect=422, Idempotency_Key="k-1")
        for table in ("idempotency_keys", "operator_answers"):
            rows = world.database.rows(f"select {table}::text from {table}")
            assert not any(first["token"].rpartition("_")[2] in str(row) for row in rows)
        assert len([k for k in caller.every(KEYS) if k["name"] == "deploy"]) == 1


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/name"),
        ({"name": " ", "scopes": ["read"]}, "/name"),
        ({"name": "a" * 129, "scopes": ["read"]}, "/name"),
        ({"name": "a"}, "/scopes"),
        ({"name": "a", "scopes": []}, "/scopes"),
        ({"name": "a", "scopes": ["read", "root"]}, "/scopes/1"),
        ({"name": "a", "scopes": ["read"], "requests_per_second": 0}, "/requests_per_second"),
        ({"name": "a", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"name": "a", "scopes": ["read"], "expires_in": "5s"}, "/expires_in"),
        ({"name": "a", "scopes": ["read"], "scope": 1}, "/scope"),
        (
            {"name": "a", "scopes": ["read"], "expires_in": "5m", "expires_at": "2030-01-01T00Z"},
            "/expires_in",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_key_is_named(
    world: World, document: dict[str, Any], pointer: str
) -> None:
    answer = world.acme.post(KEYS, document, expect=422)
    assert pointer in [e["pointer"] for e in answer["errors"]]


def test_a_key_hands_out_no_scope_that_it_lacks(world: World) -> None:
    admin = world.caller(world.key("acme", "admin").token)
    refused = admin.post(KEYS, NEW, expect=403)
    assert "read, write" in refused["detail"]
    admin.post(f"{KEYS}/{world.keys['acme'].key_id}/rotate", expect=403)
    made = admin.post(KEYS, {"name": "a", "scopes": ["admin"]}, expect=201)
    assert made["scopes"] == ["admin"]
    reader = world.caller(world.key("acme", "read").token)
    for method, path in (("GET", KEYS), ("POST", KEYS), ("DELETE", f"{KEYS}/{made['id']}")):
        reader.call(method, path, NEW if method == "POST" else None, expect=403)


def test_a_key_hands_out_no_higher_rate_and_no_later_end_than_its_own(world: World) -> None:
    bounds = {"requests_per_second": 50, "expires_in": "1h"}
    made = world.acme.post(KEYS, {"name": "a", "scopes": ["admin"], **bounds}, expect=201)
    admin = world.caller(made["token"])
    less = {"name": "b", "scopes": ["admin"], "requests_per_second": 50, "expires_in": "30m"}
    fine = admin.post(KEYS, less, expect=201)
    for more in ({"requests_per_second": 51}, {"requests_per_second": None}):
        assert "50 at most" in admin.post(KEYS, less | more, expect=403)["detail"]
    for more in ({"expires_in": "2h"}, {"expires_in": None}):
        assert made["expires_at"] in admin.post(KEYS, less | more, expect=403)["detail"]
    admin.post(f"{KEYS}/{fine['id']}/rotate", expect=201)
    other = world.acme.post(KEYS, {"name": "c", "scopes": ["admin"]}, expect=201)
    admin.post(f"{KEYS}/{other['id']}/rotate", expect=403)
    own = admin.post(f"{KEYS}/{made['id']}/rotate", expect=201)
    assert own["requests_per_second"] == 50


def test_an_operator_s_key_gives_a_tenant_s_no_more_than_its_own(world: World) -> None:
    bounds = {"requests_per_second": 50, "expires_in": "1h"}
    made = world.operator.post(KEYS, {"name": "a", "scopes": ["admin"], **bounds}, expect=201)
    for_acme = world.caller(made["token"], "acme")
    for_acme.post(KEYS, {"name": "b", "scopes": ["read"], **bounds}, expect=403)
    fine = {"name": "b", "scopes": ["admin"], "requests_per_second": 50, "expires_in": "30m"}
    mine = for_acme.post(KEYS, fine, expect=201)
    for more in ({"requests_per_second": 51}, {"requests_per_second": None}):
        assert "50 at most" in for_acme.post(KEYS, fine | more, expect=403)["detail"]
    for more in ({"expires_in": "2h"}, {"expires_in": None}):
        assert made["expires_at"] in for_acme.post(KEYS, fine | more, expect=403)["detail"]
    for_acme.post(f"{KEYS}/{world.keys['acme'].key_id}/rotate", expect=403)
    for_acme.post(f"{KEYS}/{mine['id']}/rotate", expect=201)


def test_a_rotation_leaves_the_old_key_for_its_grace(world: World) -> None:
    old = world.acme.post(KEYS, NEW | {"expires_in": "30d"}, expect=201)
    new = world.acme.post(f"{KEYS}/{old['id']}/rotate", {"grace": "2h"}, expect=201)
    assert new["id"] != old["id"]
    assert {k: new[k] for k in ("name", "scopes", "description")} == {
        k: old[k] for k in ("name", "scopes", "description")
    }
    for token in (old["token"], new["token"]):
        world.caller(token).get("/v1/jobs")
    seen = world.acme.get(f"{KEYS}/{old['id']}")
    assert (seen["replaced_by"], seen["state"]) == (new["id"], "active")
    [(hours, days)] = world.database.rows(
        "select extract(epoch from a.expires_at - now()) / 3600,"
        " extract(epoch from b.expires_at - now()) / 86400"
        " from api_keys a, api_keys b where a.id = %s and b.id = %s",
        old["id"], new["id"],
    )  # fmt: skip
    assert 1.9 < hours <= 2
    assert 29.9 < days <= 30
    world.acme.post(f"{KEYS}/{old['id']}/rotate", expect=409)
    world.acme.post(f"{KEYS}/{old['id']}/rotate", {"grace": "31d"}, expect=422)
    third = world.acme.post(f"{KEYS}/{new['id']}/rotate", {"grace": "0s"}, expect=201)
    assert world.acme.get(f"{KEYS}/{new['id']}")["state"] == "expired"
    world.acme.post(f"{KEYS}/{new['id']}/rotate", expect=409)
    world.caller(third["token"]).get("/v1/jobs")


def test_a_revoked_key_stays_revoked_and_a_key_may_revoke_itself(world: World) -> None:
    made = world.acme.post(KEYS, {"name": "a", "scopes": ["read"]}, expect=201)
    key = world.caller(made["token"])
    key.delete(f"{KEYS}/{made['id']}")
    first = world.acme.get(f"{KEYS}/{made['id']}")
    assert first["state"] == "revoked"
    world.acme.delete(f"{KEYS}/{made['id']}")
    assert world.acme.get(f"{KEYS}/{made['id']}") == first
    assert [k["id"] for k in world.acme.get(KEYS, state="revoked")["items"]] == [made["id"]]
    assert made["id"] not in [k["id"] for k in world.acme.every(KEYS, state="active", limit=1)]
    [(count,)] = world.database.rows("select count(*) from audit_log where action = 'key.revoke'")
    assert count == 1


def test_keys_of_others_are_as_absent_as_none(world: World) -> None:
    for key_id in (world.keys["beta"].key_id, world.keys["operator"].key_id, "aaaaaaaaaaaaaaaa"):
        for method, path in (
            ("GET", f"{KEYS}/{key_id}"),
            ("DELETE", f"{KEYS}/{key_id}"),
            ("POST", f"{KEYS}/{key_id}/rotate"),
        ):
            answer = world.acme.call(method, path, expect=404).json()
            assert answer["detail"] == f"There is no API key with the id {key_id}."
    world.beta.get("/v1/jobs")
    assert {k["id"] for k in world.acme.every(KEYS)} == {world.keys["acme"].key_id}


def test_operators_have_keys_of_their_own_and_see_a_tenants_when_they_name_it(
    world: World,
) -> None:
    mine = {k["id"] for k in world.operator.every(KEYS)}
    assert world.keys["operator"].key_id in mine
    assert not mine & {world.keys["acme"].key_id, world.keys["beta"].key_id}
    made = world.operator.post(KEYS, NEW, expect=201)
    assert made["created_by"] == f"operator:{world.keys['operator'].key_id}"
    world.caller(made["token"]).get("/v1/tenants")
    new = world.operator.post(f"{KEYS}/{made['id']}/rotate", {"grace": "0s"}, expect=201)
    world.operator.delete(f"{KEYS}/{new['id']}")
    for_acme = world.caller(world.operator.token, "acme")
    assert {k["id"] for k in for_acme.every(KEYS)} == {world.keys["acme"].key_id}
    theirs = for_acme.post(KEYS, NEW, expect=201)
    assert theirs["id"] in {k["id"] for k in world.acme.every(KEYS)}
    actions = world.database.rows(
        "select action from audit_log where tenant_id is null order by id"
    )
    assert [a for (a,) in actions] == ["key.create", "key.rotate", "key.revoke"]


def test_there_are_so_many_valid_keys_at_most(world: World) -> None:
    world.database.run(
        "insert into api_keys (id, tenant_id, secret_hash, scopes)"
        " select 'filler' || lpad(i::text, 5, '0'), id, '', array['read']"
        " from tenants, generate_series(2, %s) i where name = 'acme'",
        MAX_LIVE,
    )
    refused = world.acme.post(KEYS, NEW, expect=409)
    assert str(MAX_LIVE) in refused["detail"]
    world.acme.delete(f"{KEYS}/filler00007")
    world.acme.post(KEYS, NEW, expect=201)
    assert len(world.acme.every(KEYS, limit=500)) == MAX_LIVE + 1
    world.beta.post(KEYS, NEW, expect=201)

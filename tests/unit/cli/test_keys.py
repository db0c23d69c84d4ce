"""`tickrail keys`, and tenants made with their first key."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stub_api import Answer, Asked, StubApi
from tests.unit.cli.conftest import Tickrail

KEYS = "/v1/api-keys"
ID = "45s3mqrpn44coxpe"
KEY: dict[str, Any] = {
    "id": ID, "prefix": f"trk_{ID}", "name": "deploy", "description": "of the pipeline",
    "scopes": ["read", "write"], "requests_per_second": 20, "state": "active",
    "created_at": "2026-03-01T12:00:00Z", "created_by": "key:aaaaaaaaaaaaaaaa",
    "expires_at": "2026-06-01T12:00:00Z", "revoked_at": None, "last_used_at": None,
    "replaced_by": None,
}  # fmt: skip
MADE = KEY | {"token": f"trk_{ID}_secret"}
TENANT: dict[str, Any] = {
    "id": "0195a3f0-0000-7000-8000-000000000001", "name": "acme", "state": "suspended",
    "state_reason": "unpaid", "state_at": "2026-03-02T12:00:00Z", "weight": 3, "max_running": 200,
    "egress": None, "kafka_topics": ["acme.*"], "version": 2, "created_at": "2026-03-01T12:00:00Z",
}  # fmt: skip
NOT_FOUND = Answer(404, {"code": "not_found", "title": "t", "detail": "none", "status": 404})


def page(*items: Any) -> Answer:
    return Answer(body={"items": list(items), "next_cursor": None})


def test_keys_are_shown(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", KEYS, page(KEY))
    api.on("GET", f"{KEYS}/{ID}", Answer(body=KEY))
    table = tickrail("keys", "list").out
    for word in (ID, "deploy", "read, write", "active"):
        assert word in table
    for written in (ID, f"trk_{ID}", f"trk_{ID}_secret"):
        card = tickrail("keys", "get", written).out
        assert "of the pipeline" in card
    assert tickrail("keys", "list", "--output", "json").json() == {"items": [KEY]}


def test_a_key_is_made_and_shown_once(tickrail: Tickrail, api: StubApi) -> None:
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(201, MADE)

    api.on("POST", KEYS, answer)
    said = tickrail(
        "keys", "create", "deploy", "--scope", "write", "--scope", "read", "--expires-in", "90d",
        "--rate", "20",
    )  # fmt: skip
    assert said.out.splitlines()[-1] == MADE["token"]
    assert tickrail("keys", "create", "root", "--scope", "all", "--output", "json").json() == MADE
    assert [call.body for call in asked] == [
        {"name": "deploy", "scopes": ["read", "write"], "expires_in": "90d",
         "requests_per_second": 20},
        {"name": "root", "scopes": ["read", "run", "write", "admin"]},
    ]  # fmt: skip
    api.on("POST", KEYS, Answer(201, MADE | {"token": None}))
    lost = tickrail("keys", "create", "deploy", "--scope", "read").out
    assert f"tickrail keys rotate {ID}" in lost.replace("\n", " ")


@pytest.mark.parametrize("words", [["deploy"], ["deploy", "--scope", "root"], []])
def test_wrong_use(tickrail: Tickrail, words: list[str]) -> None:
    assert tickrail("keys", "create", *words).code == 2


def test_a_key_is_found_by_its_name(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", f"{KEYS}/deployment", NOT_FOUND)
    api.on("GET", KEYS, page(KEY | {"name": "deployment"}, KEY | {"name": "twice"},
                             KEY | {"name": "twice", "id": "bbbbbbbbbbbbbbbb"}))  # fmt: skip
    assert ID in tickrail("keys", "get", "deployment").out
    twice = tickrail("keys", "get", "twice")
    assert (twice.code, "bbbbbbbbbbbbbbbb" in twice.err) == (1, True)
    none = tickrail("keys", "get", "no such")
    assert (none.code, "keys list" in none.err) == (1, True)


def test_a_rotation_is_of_the_key_in_use_unless_another_is_named(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("GET", f"{KEYS}/{ID}", Answer(body=KEY))
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(201, MADE | {"id": "bbbbbbbbbbbbbbbb"})

    api.on("POST", f"{KEYS}/{ID}/rotate", answer)
    named = tickrail("keys", "rotate", ID, "--grace", "2h")
    assert MADE["token"] in named.out
    assert "login" not in named.out
    own = tickrail("--key", f"trk_{ID}_secret", "keys", "rotate")
    assert "login" in own.out
    assert [call.body for call in asked] == [{"grace": "2h"}, {}]
    assert tickrail("keys", "rotate").code == 2, "the key of these tests has no id"


def test_a_revocation_is_asked_for(tickrail: Tickrail, api: StubApi) -> None:
    api.on("GET", f"{KEYS}/{ID}", Answer(body=KEY))
    refused = tickrail("keys", "revoke", ID)
    assert (refused.code, f"deploy ({ID})" in refused.err) == (2, True)
    api.on("DELETE", f"{KEYS}/{ID}", Answer(204))
    assert "Revoked deploy" in tickrail("keys", "revoke", ID, "--yes").out


def test_a_tenant_is_made_with_its_first_key(tickrail: Tickrail, api: StubApi) -> None:
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(201, TENANT if call.path == "/v1/tenants" else MADE)

    api.on("POST", "/v1/tenants", answer)
    api.on("POST", KEYS, answer)
    said = tickrail("tenants", "create", "acme", "--weight", "3", "--with-key")
    assert said.out.splitlines()[-1] == MADE["token"]
    assert asked[0].body == {"name": "acme", "weight": 3}
    assert asked[1].body["scopes"] == ["read", "run", "write", "admin"]
    assert asked[1].headers["tickrail-tenant"] == TENANT["id"]
    without = tickrail("tenants", "create", "acme").out
    assert "keys create" in without.replace("\n", " ")


def test_tenants_are_suspended_and_deleted(tickrail: Tickrail, api: StubApi) -> None:
    asked: list[Asked] = []

    def answer(call: Asked) -> Answer:
        asked.append(call)
        return Answer(body=TENANT)

    api.on("GET", "/v1/tenants/acme", Answer(body=TENANT))
    for verb in ("suspend", "resume"):
        api.on("POST", f"/v1/tenants/acme/{verb}", answer)
    assert (
        "Suspended acme"
        in tickrail("tenants", "suspend", "--yes", "acme", "--reason", "unpaid").out
    )
    assert "Resumed acme" in tickrail("tenants", "resume", "acme").out
    assert [call.body for call in asked] == [{"reason": "unpaid"}, {"reason": ""}]
    assert "unpaid" in tickrail("tenants", "get", "acme").out
    asks = tickrail("tenants", "delete", "acme")
    back = f"`tickrail tenants resume {TENANT['id']}` brings it back"
    assert (asks.code, back in asks.err) == (2, True)
    api.on("DELETE", f"/v1/tenants/{TENANT['id']}", Answer(204))
    assert tickrail("tenants", "delete", "acme", "--yes").out == f"Deleted acme; {back}.\n"


def test_to_resume_an_active_tenant_names_the_deleted_one_of_its_name(
    tickrail: Tickrail, api: StubApi
) -> None:
    api.on("GET", "/v1/tenants/acme", Answer(body=TENANT | {"state": "active"}))
    others = ({"name": f"{name}.deleted-7bf58f1b6af8"} for name in ("acme", "acm", "acme2"))
    api.on("GET", "/v1/tenants", page(*others))
    said = tickrail("tenants", "resume", "acme")
    first, *notes = said.out.splitlines()
    assert (said.code, first) == (0, "acme is active already: nothing was changed.")
    assert [n.partition("`")[2].partition("`")[0] for n in notes] == [
        "tickrail tenants resume acme.deleted-7bf58f1b6af8"
    ]
    assert api.asked[-1].query["state"] == ["deleted"]
    assert {a.method for a in api.asked} == {"GET"}
    assert "no tenant 'none'" in tickrail("tenants", "resume", "none").err


def test_a_deleted_tenant_with_a_long_name_is_found_too(tickrail: Tickrail, api: StubApi) -> None:
    name = "a" * 128
    api.on("GET", f"/v1/tenants/{name}", Answer(body=TENANT | {"state": "active", "name": name}))
    former = f"{name[: 128 - len('.deleted-') - 12]}.deleted-7bf58f1b6af8"
    api.on("GET", "/v1/tenants", page({"name": former}))
    assert f"resume {former}" in tickrail("tenants", "resume", name).out

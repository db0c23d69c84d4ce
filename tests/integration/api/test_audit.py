"""The audit log: who changed what, found, exported, kept as it was written."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from tests.support.api import Caller, World, webhook

from tickrail.core.errors import TickrailError
from tickrail.core.ids import TenantId
from tickrail.store.tenancy import Caller as Who
from tickrail.store.tenancy import installation_transaction, tenant_transaction

pytestmark = pytest.mark.integration
LOG = "/v1/audit-log"
NDJSON = {"Accept": "application/x-ndjson"}


def lines(caller: Caller, **params: Any) -> list[Any]:
    answer = caller.call("GET", LOG, headers=NDJSON, params=params, expect=200)
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_entry_says_who_did_what_to_what_from_where(world: World) -> None:
    job = world.acme.create("a")
    answer = world.acme.call(
        "PATCH", f"/v1/jobs/{job['id']}", {"description": "b"}, headers={"X-Request-ID": "r-1"}
    )
    assert answer.status_code == 200
    newest, first = world.acme.get(LOG)["items"]
    assert (first["action"], first["before"]) == ("job.create", None)
    assert newest.pop("before")["description"] == ""
    assert newest.pop("after")["description"] == "b"
    at = newest.pop("at")
    recent = "select %s::timestamptz between now() - interval '1 minute' and now()"
    assert world.database.rows(recent, at) == [(True,)]
    assert newest.pop("id")
    assert newest == {
        "actor": f"key:{world.keys['acme'].key_id}",
        "action": "job.change",
        "subject": f"job:{job['id']}",
        "request_id": "r-1",
        "address": "127.0.0.1",
    }


def test_entries_are_found_by_each_of_what_they_say(world: World) -> None:
    other = world.caller(world.key("acme").token)
    a = world.acme.create("a")
    other.create("b")
    world.acme.call("POST", f"/v1/jobs/{a['id']}/pause", headers={"X-Request-ID": "r-7"})
    everything = world.acme.get(LOG)["items"]
    assert [e["action"] for e in everything] == ["job.pause", "job.create", "job.create"]
    for filters, numbers in (
        ({"action": "job.create"}, [1, 2]),
        ({"subject": f"job:{a['id']}"}, [0, 2]),
        ({"actor": everything[1]["actor"]}, [1]),
        ({"request_id": "r-7"}, [0]),
        ({"from": everything[1]["at"]}, [0, 1]),
        ({"to": everything[1]["at"]}, [2]),
        ({"from": everything[1]["at"], "to": everything[0]["at"]}, [1]),
        ({"action": "job.pause", "subject": f"job:{a['id']}", "actor": "nobody"}, []),
        ({"sort": "at"}, [2, 1, 0]),
    ):
        wanted = [everything[n] for n in numbers]
        assert world.acme.every(LOG, **filters, limit=1) == wanted
        assert lines(world.acme, **filters) == wanted
    for wrong in ({"from": "now"}, {"actor": ""}, {"sort": "actor"}, {"who": "me"}):
        world.acme.get(LOG, **wrong, expect=422)
    later, earlier = everything[0]["at"], everything[1]["at"]
    refused = world.acme.get(LOG, **{"from": later, "to": earlier}, expect=422)
    assert refused["errors"][0]["pointer"] == "?to"


def test_a_stream_holds_each_entry_once_whatever_comes_meanwhile(world: World) -> None:
    """More than two of its pages, all written at the same instant."""
    for tenant, count in (("acme", 2500), ("beta", 10)):
        world.database.run(
            "insert into audit_log (id, tenant_id, at, actor, action, subject)"
            " select gen_random_uuid(), %s, '2026-11-01T00:00:00Z', 'key:1', 'job.pause', 'job:1'"
            " from generate_series(1, %s)",
            world.tenant_id(tenant),
            count,
        )
    found = lines(world.acme, limit=1)
    assert len(found) == len({e["id"] for e in found}) == 2500
    assert [e["id"] for e in found] == sorted((e["id"] for e in found), reverse=True)
    assert [e["id"] for e in lines(world.acme, sort="at")] == [e["id"] for e in reversed(found)]
    cursor = world.acme.get(LOG, limit=500)["next_cursor"]
    assert lines(world.acme, cursor=cursor) == found[500:]


def test_tenants_see_their_own_and_operators_the_installations(world: World) -> None:
    world.acme.create("a")
    world.beta.create("b")
    world.operator.put("/v1/queues/fast", {"kinds": ["webhook"]}, expect=201)
    own = world.operator.get(LOG)["items"]
    assert [e["action"] for e in own] == ["queue.put"]
    assert lines(world.operator, action="queue.put") == own
    assert [e["action"] for e in world.acme.get(LOG)["items"]] == ["job.create"]
    # An operator's look at a tenant's is an entry of that tenant, a stream one alone.
    named = world.caller(world.operator.token, "beta")
    assert [e["action"] for e in lines(named)] == ["job.create"]
    assert [e["action"] for e in world.beta.get(LOG)["items"]] == ["operator.read", "job.create"]
    assert [e["action"] for e in world.operator.get(LOG)["items"]] == ["queue.put"]
    reader = world.caller(world.key("acme", "read", "write", "run").token)
    reader.get(LOG, expect=403)


def test_a_cursor_of_a_tenants_log_is_none_of_the_installations(world: World) -> None:
    world.acme.create("a")
    world.acme.create("b")
    cursor = world.acme.get(LOG, limit=1)["next_cursor"]
    world.operator.get(LOG, cursor=cursor, expect=422)


@pytest.mark.parametrize(
    "statement",
    [
        "update audit_log set actor = 'nobody'",
        "delete from audit_log",
        "truncate audit_log",
        "delete from installation_audit",
        "select purge_audit('ffffffff-ffff-ffff-ffff-ffffffffffff', 10)",
    ],
)
def test_the_api_can_add_and_nothing_else(world: World, statement: str) -> None:
    world.acme.create("a")
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("acme")))
    with (
        pytest.raises(TickrailError, match="permission denied"),
        tenant_transaction(engine, tenant, Who("t")) as tx,
    ):
        tx.execute(text(statement))
    with (
        pytest.raises(TickrailError, match="permission denied"),
        installation_transaction(engine, operator=True) as base,
    ):
        base.execute(text(statement))
    assert len(world.acme.get(LOG)["items"]) == 1


def test_a_tenant_cannot_write_an_entry_of_another_or_of_nobody(world: World) -> None:
    engine = world.app.state.parts.database.engine
    mine, theirs = (TenantId(UUID(world.tenant_id(n))) for n in ("acme", "beta"))
    statement = text(
        "insert into audit_log (id, tenant_id, actor, action, subject)"
        " values (gen_random_uuid(), cast(:tenant as uuid), 'a', 'b', 'c')"
    )
    with (
        pytest.raises(TickrailError, match="row-level security"),
        tenant_transaction(engine, mine, Who("t")) as tx,
    ):
        tx.execute(statement, {"tenant": theirs})
    # The view of the installation's shows nothing to who is no operator.
    world.operator.put("/v1/queues/fast", {"kinds": ["webhook"]}, expect=201)
    with tenant_transaction(engine, mine, Who("t")) as tx:
        assert tx.execute(text("select count(*) from installation_audit")).scalar_one() == 0


def test_credentials_are_masked_and_names_of_secrets_are_not(world: World) -> None:
    world.acme.put("/v1/secrets/token", {"value": "hunter2"}, expect=201)
    document = webhook("a", payload={"password": "hunter3"})
    document["target"]["webhook"]["headers"] = {
        "Authorization": {"secret": "token"},
        "X-Api-Key": "hunter4",
    }
    world.acme.post("/v1/jobs", document, expect=201)
    world.acme.post("/v1/jobs/batch", {"jobs": [{**document, "name": "b"}]}, expect=200)
    world.acme.patch("/v1/jobs/name:a", {"payload": {"password": "hunter5"}})
    found = world.acme.get(LOG, action="job.create")["items"]
    assert len(found) == 2
    for entry in found:
        headers = entry["after"]["target"]["webhook"]["headers"]
        assert headers == {"Authorization": {"secret": "token"}, "X-Api-Key": "***"}
    assert "hunter" not in "".join(json.dumps(e) for e in lines(world.acme))
    # The job itself is what its owner wrote.
    assert world.acme.get("/v1/jobs/name:b")["payload"] == {"password": "hunter3"}


def test_an_action_that_there_is_not_is_refused_with_those_that_there_are(world: World) -> None:
    answer = world.acme.get(LOG, action="job.craete", expect=422)
    [problem] = answer["errors"]
    assert problem["pointer"] == "?action"
    assert "job.create, " in problem["expected"]
    assert world.acme.get(LOG, action="job.create")["items"] == []


def test_what_is_wrong_with_a_filter_is_said(world: World) -> None:
    for value, said in (("", "is empty"), ("a\x00", "contains the character U+0000")):
        [problem] = world.acme.get(LOG, actor=value, expect=422)["errors"]
        assert (problem["pointer"], problem["message"]) == ("?actor", said)

"""/v1/queues and /v1/tenants on PostgreSQL: limits, pauses and shares, and who may set them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from tests.support.api import World

from tickrail.core.ids import TenantId
from tickrail.store.tenancy import Caller as Asks

pytestmark = pytest.mark.integration

MAIL, DEFAULT = "/v1/queues/mail", "/v1/queues/default"
NEW: dict[str, Any] = {
    "kinds": ["webhook", "task"], "max_running": 50, "rate": {"count": 600, "per": "1m"},
}  # fmt: skip
NONE_OPEN = {"due": 0, "later": 0, "queued": 0, "running": 0}


def limit_rows(world: World) -> list[Any]:
    return [
        tuple(row)
        for row in world.database.rows(
            "select scope, name, paused, max_running, rate_count, rate_seconds from limits"
            " order by 1, 2, tenant_id"
        )
    ]


def audited(world: World) -> list[str]:
    rows = world.database.rows("select action from audit_log order by id")
    return [row[0] for row in rows if not row[0].startswith("operator.")]


def test_an_operator_makes_changes_and_deletes_a_queue(world: World) -> None:
    made = world.operator.call("PUT", MAIL, NEW, expect=201)
    assert (made.headers["Location"], made.headers["ETag"]) == (MAIL, '"1"')
    document = made.json()
    assert document == {
        **NEW, "name": "mail", "kinds": ["task", "webhook"], "paused": False, "paused_reason": "",
        "version": 1, "created_at": document["created_at"], "tenant": None, "depth": NONE_OPEN,
    }  # fmt: skip
    # What was answered can be sent again, edited or not.
    again = world.operator.call("PUT", MAIL, document, expect=200)
    assert again.headers["ETag"] == '"1"'
    assert limit_rows(world) == [("queue", "mail", False, 50, 600, 60.0)]
    changed = world.operator.patch(MAIL, {"max_running": None, "rate": {"per": "1h"}})
    assert (changed["max_running"], changed["rate"], changed["version"]) == (
        None, {"count": 600, "per": "1h"}, 2,
    )  # fmt: skip
    assert [q["name"] for q in world.operator.every("/v1/queues", limit=1)] == ["default", "mail"]
    world.acme.create("letters", queue="mail")
    refused = world.operator.call("DELETE", MAIL, expect=409).json()
    assert "move or delete the jobs first" in refused["detail"]
    world.acme.delete("/v1/jobs/name:letters")
    world.operator.delete(MAIL)
    world.operator.delete(MAIL)
    world.operator.get(MAIL, expect=404)
    assert limit_rows(world) == []
    assert [a for a in audited(world) if a.startswith("queue.")] == [
        "queue.put", "queue.change", "queue.delete",
    ]  # fmt: skip


def test_a_change_of_a_queue_holds_to_what_its_caller_has_seen(world: World) -> None:
    world.operator.put(MAIL, NEW, expect=201)
    for headers in ({"If-None-Match": "*"}, {"If-Match": '"2"'}):
        world.operator.call("PUT", MAIL, {"kinds": ["task"]}, headers=headers, expect=412)
        world.operator.call("PATCH", MAIL, {"max_running": 1}, headers=headers, expect=412)
    world.operator.call("DELETE", MAIL, headers={"If-Match": '"2"'}, expect=412)
    world.operator.call("PATCH", MAIL, {"max_running": 1}, headers={"If-Match": '"1"'}, expect=200)
    other = "/v1/queues/other"
    world.operator.call("PUT", other, NEW, headers={"If-Match": "*"}, expect=412)
    world.operator.get(other, expect=404)


WRONG_QUEUES: list[tuple[Any, str]] = [
    ({}, "/kinds"),
    ({"kinds": []}, "/kinds"),
    ({"kinds": "webhook"}, "/kinds"),
    ({"kinds": ["webhok"]}, "/kinds/0"),
    ({"kinds": ["task"], "max_running": 0}, "/max_running"),
    ({"kinds": ["task"], "max_running": "all"}, "/max_running"),
    ({"kinds": ["task"], "rate": {"per": "1m"}}, "/rate/count"),
    ({"kinds": ["task"], "rate": {"count": 1, "per": "10ms"}}, "/rate/per"),
    ({"kinds": ["task"], "rate": 7}, "/rate"),
    ({"kinds": ["task"], "max_runing": 7}, "/max_runing"),
    (["task"], ""),
]


def test_what_is_wrong_with_a_queue_is_named(world: World) -> None:
    for document, pointer in WRONG_QUEUES:
        answer = world.operator.put(MAIL, document, expect=422)
        assert [e["pointer"] for e in answer["errors"]] == [pointer]
        assert answer["errors"][0]["expected"]
    answer = world.operator.put("/v1/queues/Mail%20box", NEW, expect=422)
    assert [e["pointer"] for e in answer["errors"]] == ["/name"]


def test_a_tenant_sets_its_own_part_alone(world: World) -> None:
    before = world.acme.get(DEFAULT)
    assert before["tenant"] == {
        "max_running": None, "rate": None, "paused": False, "paused_reason": "", "version": 1,
    }  # fmt: skip
    done = world.acme.call("PATCH", DEFAULT, {"max_running": 3}, expect=200)
    assert done.headers["ETag"] == '"2"'
    assert done.json()["tenant"]["max_running"] == 3
    assert done.json()["max_running"] is None
    world.acme.call("PATCH", DEFAULT, {}, headers={"If-Match": '"1"'}, expect=412)
    rate = {"count": 10, "per": "1s"}
    assert world.acme.patch(DEFAULT, {"rate": rate})["tenant"]["rate"] == rate
    assert world.beta.get(DEFAULT)["tenant"] == before["tenant"]
    assert world.operator.get(DEFAULT)["max_running"] is None
    named = world.caller(world.operator.token, "acme")
    assert named.get(DEFAULT)["tenant"]["rate"] == rate
    named.patch(DEFAULT, {"rate": None})
    assert limit_rows(world) == [("queue", "default", False, 3, None, None)]
    wrong = world.acme.patch(DEFAULT, {"kinds": ["task"], "weight": 2}, expect=422)
    assert [e["pointer"] for e in wrong["errors"]] == ["/kinds", "/weight"]
    for method, path in (("PUT", DEFAULT), ("DELETE", DEFAULT)):
        world.acme.call(method, path, NEW if method == "PUT" else None, expect=403)
    world.acme.patch("/v1/queues/none", {"max_running": 1}, expect=404)
    assert audited(world) == ["queue.limits"] * 3


READ_ONLY: list[tuple[Any, str]] = [
    ({"paused": True}, "/paused"),
    ({"paused_reason": "moving"}, "/paused_reason"),
    ({"name": "other"}, "/name"),
    ({"created_at": "2020-01-01T00:00:00Z"}, "/created_at"),
    ({"tenant": {"max_running": 3}}, "/tenant"),
]


def test_what_cannot_be_set_so_is_not_passed_over(world: World) -> None:
    """A caller that believes so to have paused a queue must hear that it has not."""
    world.operator.put(MAIL, NEW, expect=201)
    for document, pointer in READ_ONLY:
        for path, caller in ((DEFAULT, world.acme), (MAIL, world.operator)):
            answer = caller.patch(path, document, expect=422)
            assert [e["pointer"] for e in answer["errors"]] == [pointer]
        answer = world.operator.put(MAIL, NEW | document, expect=422)
        assert [e["pointer"] for e in answer["errors"]] == [pointer]
    answer = world.operator.put("/v1/queues/fresh", NEW | {"paused": True}, expect=422)
    assert [e["pointer"] for e in answer["errors"]] == ["/paused"]
    assert "pause" in answer["errors"][0]["expected"]
    world.acme.patch(DEFAULT, {"kinds": ["webhook"]}, expect=422)
    # What was read can be sent back, by whoever read it.
    world.acme.post(f"{DEFAULT}/pause", expect=200)
    world.acme.patch(DEFAULT, {"max_running": 4})
    for path, caller in ((DEFAULT, world.acme), (MAIL, world.operator)):
        seen = caller.get(path)
        again = caller.patch(path, seen | {"max_running": 9, "version": 1, "depth": NONE_OPEN})
        assert (again["tenant"] or again)["max_running"] == 9
    for document, pointer in (({"name": "x"}, "/name"), ({"state": "suspended"}, "/state")):
        answer = world.operator.patch("/v1/tenants/acme", document, expect=422)
        assert [e["pointer"] for e in answer["errors"]] == [pointer]
    seen = world.operator.get("/v1/tenants/acme")
    assert world.operator.patch("/v1/tenants/acme", seen | {"weight": 2})["weight"] == 2


def test_pauses_of_everybody_and_of_a_tenant(world: World) -> None:
    job = world.acme.create("a")
    mine = world.acme.post(f"{DEFAULT}/pause", {"reason": "moving"}, expect=200)
    assert (mine["tenant"]["paused"], mine["tenant"]["paused_reason"]) == (True, "moving")
    assert mine["paused"] is False
    world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    assert world.acme.get(DEFAULT)["depth"] == {**NONE_OPEN, "due": 1}
    assert world.beta.get(DEFAULT)["depth"] == NONE_OPEN
    assert world.operator.get(DEFAULT)["depth"] == {**NONE_OPEN, "due": 1}
    assert world.beta.get(DEFAULT)["tenant"]["paused"] is False
    assert world.acme.post(f"{DEFAULT}/resume", expect=200)["tenant"]["paused"] is False
    assert world.operator.post(f"{DEFAULT}/pause", expect=200)["paused"] is True
    assert world.beta.get(DEFAULT)["paused"] is True
    assert world.operator.post(f"{DEFAULT}/resume", expect=200)["paused"] is False
    wrong = world.operator.post(f"{DEFAULT}/pause", {"reasons": "x"}, expect=422)
    assert [e["pointer"] for e in wrong["errors"]] == ["/reasons"]
    assert [a for a in audited(world) if a.startswith("queue.")] == [
        "queue.pause", "queue.resume", "queue.pause", "queue.resume",
    ]  # fmt: skip


def test_who_may(world: World) -> None:
    reader = world.caller(world.key("acme", "read", "run", "write").token)
    reader.get(DEFAULT)
    reader.patch(DEFAULT, {"max_running": 1}, expect=403)
    reader.post(f"{DEFAULT}/pause", expect=403)
    watcher = world.caller(world.key(None, "read").token)
    watcher.get(DEFAULT)
    watcher.get("/v1/tenants")
    for path in (MAIL, "/v1/tenants/acme"):
        watcher.call("PATCH", path, {}, expect=403)
    world.caller(world.operator.token, "acme").put(MAIL, NEW, expect=403)
    for call in (("GET", "/v1/tenants"), ("GET", "/v1/tenants/acme"),
                 ("PATCH", "/v1/tenants/acme")):  # fmt: skip
        world.acme.call(*call, expect=403)


def test_an_operator_sets_what_a_tenant_may(world: World) -> None:
    path = "/v1/tenants/acme"
    before = world.operator.get(path)
    assert (before["weight"], before["max_running"], before["egress"], before["kafka_topics"]) == (
        1, None, None, [],
    )  # fmt: skip
    change = {
        "weight": 3, "max_running": 200, "egress": {"allow": ["10.0.0.0/8"]},
        "kafka_topics": ["acme.*"],
    }  # fmt: skip
    done = world.operator.call("PATCH", path, change, expect=200)
    assert done.headers["ETag"] == '"2"'
    assert done.json() == before | change | {"version": 2}
    assert world.operator.get(f"/v1/tenants/{world.tenant_id('acme')}") == done.json()
    assert limit_rows(world) == [("tenant", "", False, 200, None, None)]
    world.operator.call("PATCH", path, {"weight": 4}, headers={"If-Match": '"1"'}, expect=412)
    assert world.operator.patch(path, {"max_running": None})["max_running"] is None
    names = [t["name"] for t in world.operator.every("/v1/tenants", limit=1)]
    assert names == ["acme", "beta"]
    world.operator.get("/v1/tenants/nobody", expect=404)
    assert audited(world) == ["tenant.change"] * 2


WRONG_TENANTS: list[tuple[Any, str]] = [
    ({"weight": 0}, "/weight"),
    ({"weight": 101}, "/weight"),
    ({"egress": {"alow": []}}, "/egress/alow"),
    ({"egress": {"allow": ["not an address!"]}}, "/egress/allow/0"),
    ({"kafka_topics": ["a b"]}, "/kafka_topics/0"),
    ({"kafka_topics": "a"}, "/kafka_topics"),
    ({"weigth": 2}, "/weigth"),
    ([], ""),
]


def test_what_is_wrong_with_a_tenant_is_named(world: World) -> None:
    for document, pointer in WRONG_TENANTS:
        answer = world.operator.patch("/v1/tenants/acme", document, expect=422)
        assert [e["pointer"] for e in answer["errors"]] == [pointer]


def test_no_transaction_of_a_tenant_is_an_operators(world: World) -> None:
    """What shows every tenant's rows is set by operators' calls alone, and ends with them."""
    database = world.app.state.parts.database
    world.operator.get("/v1/tenants")
    world.beta.patch(DEFAULT, {"max_running": 9})
    asks = text("select is_operator(), (select count(*) from tenants)")
    acme = TenantId(UUID(world.tenant_id("acme")))
    with database.tenant(acme, Asks("key:test")) as tx:
        assert tuple(tx.base.execute(asks).one()) == (False, 1)
        assert tx.base.execute(text("select count(*) from limits")).scalar_one() == 0
        used = text("select queue_is_used('default'), (queue_depth('default')).due")
        assert tuple(tx.base.execute(used).one()) == (False, 0)
    with database.installation() as base:
        assert base.execute(text("select is_operator()")).scalar_one() is False
    with database.installation(operator=True) as base:
        assert tuple(base.execute(asks).one()) == (True, 2)

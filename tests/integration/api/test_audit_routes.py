"""Every route that changes something is in the audit log, with what it was and what it is.

A route that is added and not tried here fails the last test of this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.api import Caller, World, webhook
from tests.support.dead_api import dead_launch
from tests.support.memory_coord import MemoryCoordinator

from tickrail.core.ports_ownership import Member

pytestmark = pytest.mark.integration

CREATES, CHANGES, REMOVES = (False, True), (True, True), (True, False)
"""Whether an entry tells what was before, and what is after."""
CHANGES_NOTHING = {("POST", "/v1/schedules/preview")}
HOURLY = {"every": "1h"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Walk:
    """Requests, each of which must leave its entry."""

    world: World
    tried: set[tuple[str, str]] = field(default_factory=set)

    def step(
        self,
        caller: Caller,
        request: str,
        document: Any = None,
        *,
        tells: tuple[bool, bool],
        **ids: str,
    ) -> Any:
        """One request (method and template) that must succeed; its answer's document."""
        method, template = request.split()
        answer = caller.call(method, template.format(**ids), document)
        assert answer.status_code < 300, answer.text
        self.tried.add((method, template))
        rows = self.world.database.rows(
            "select before is not null, after is not null, actor, address, action from audit_log"
            " where request_id = %s and action not like 'operator.%%'",
            answer.headers["X-Request-ID"],
        )
        assert rows, f"{request} left no entry"
        for before, after, actor, address, action in rows:
            assert (before, after) == tells, f"{request}: {action}"
            assert str(actor).split(":")[0] in {"key", "operator"}
            assert address == "127.0.0.1"
        return answer.json() if answer.content else None


def jobs(walk: Walk) -> None:
    acme, step = walk.world.acme, walk.step
    a = step(acme, "POST /v1/jobs", webhook("a", schedule=HOURLY), tells=CREATES)["id"]
    step(acme, "PUT /v1/jobs/{job}", webhook("b"), tells=CREATES, job="name:b")
    step(acme, "PUT /v1/jobs/{job}", webhook("b", priority="low"), tells=CHANGES, job="name:b")
    step(acme, "PATCH /v1/jobs/{job}", {"description": "x"}, tells=CHANGES, job=a)
    step(acme, "POST /v1/jobs/batch", {"jobs": [webhook("c"), webhook("d")]}, tells=CREATES)
    step(acme, "POST /v1/jobs/{job}/pause", tells=CHANGES, job=a)
    step(acme, "POST /v1/jobs/{job}/resume", tells=CHANGES, job=a)
    step(acme, "POST /v1/jobs/{job}/skip-next", {"n": 2}, tells=CHANGES, job=a)
    versions = "POST /v1/jobs/{job}/versions/{version}/restore"
    step(acme, versions, tells=CHANGES, job=a, version="1")
    launch = step(acme, "POST /v1/jobs/{job}/trigger", tells=CREATES, job=a)["id"]
    step(acme, "POST /v1/launches/{launch}/cancel", tells=CHANGES, launch=launch)
    step(acme, "DELETE /v1/jobs/{job}", tells=REMOVES, job=a)
    step(acme, "POST /v1/jobs/{job}/undelete", tells=CREATES, job=a)


def work(walk: Walk) -> None:
    acme, step = walk.world.acme, walk.step
    week = walk.world.past_week()
    acme.create("w", schedule=HOURLY)
    filled = step(acme, "POST /v1/jobs/{job}/backfills", week, tells=CREATES, job="name:w")["id"]
    step(acme, "POST /v1/backfills/{backfill}/cancel", tells=CHANGES, backfill=filled)
    step(acme, "POST /v1/jobs/resume", {"filter": {}}, tells=CREATES)
    asked = step(acme, "POST /v1/jobs/pause", {"filter": {}}, tells=CREATES)["id"]
    step(acme, "POST /v1/operations/{operation}/cancel", tells=CHANGES, operation=asked)
    died = dead_launch(walk.world, acme, "dead")["id"]
    step(acme, "POST /v1/launches/{launch}/redrive", tells=CHANGES, launch=died)
    for verb in ("redrive", "purge"):
        dead_launch(walk.world, acme, "dead")
        step(acme, f"POST /v1/dead-letters/{verb}", {"filter": {}}, tells=CREATES)


def named(walk: Walk) -> None:
    acme, step = walk.world.acme, walk.step
    for tells in (CREATES, CHANGES):
        days = {"weekdays": ["sat" if tells is CREATES else "sun"]}
        step(acme, "PUT /v1/calendars/{name}", days, tells=tells, name="free")
        step(acme, "PUT /v1/secrets/{name}", {"value": "hunter2"}, tells=tells, name="free")
    step(acme, "PATCH /v1/calendars/{name}", {"weekdays": ["mon"]}, tells=CHANGES, name="free")
    step(acme, "DELETE /v1/calendars/{name}", tells=REMOVES, name="free")
    step(acme, "DELETE /v1/secrets/{name}", tells=REMOVES, name="free")
    acme.put("/v1/secrets/ops", {"value": "https://hooks.example.org/T0"}, expect=201)
    notify = {"notify": ["webhook:ops"]}
    step(acme, "PUT /v1/quotas/notify", notify, tells=CHANGES)
    new = {"name": "ci", "scopes": ["read"]}
    key = step(acme, "POST /v1/api-keys", new, tells=CREATES)["id"]
    step(acme, "POST /v1/api-keys/{id}/rotate", tells=CHANGES, id=key)
    step(acme, "DELETE /v1/api-keys/{id}", tells=REMOVES, id=key)


def installation(walk: Walk) -> None:
    world, operator, step = walk.world, walk.world.operator, walk.step
    kinds = {"kinds": ["webhook"]}
    step(operator, "PUT /v1/queues/{name}", kinds, tells=CREATES, name="mail")
    step(operator, "PATCH /v1/queues/{name}", {"max_running": 5}, tells=CHANGES, name="mail")
    for caller, name in ((operator, "mail"), (world.acme, "default")):
        step(caller, "POST /v1/queues/{name}/pause", tells=CHANGES, name=name)
        step(caller, "POST /v1/queues/{name}/resume", tells=CHANGES, name=name)
    step(operator, "DELETE /v1/queues/{name}", tells=REMOVES, name="mail")
    step(operator, "PATCH /v1/quotas", {"jobs": 5000}, tells=CHANGES)
    new = step(operator, "POST /v1/tenants", {"name": "gamma"}, tells=CREATES)["id"]
    step(operator, "PATCH /v1/tenants/{tenant}", {"weight": 3}, tells=CHANGES, tenant=new)
    step(operator, "POST /v1/tenants/{tenant}/suspend", tells=CHANGES, tenant=new)
    step(operator, "POST /v1/tenants/{tenant}/resume", tells=CHANGES, tenant=new)
    step(operator, "DELETE /v1/tenants/{tenant}", tells=CHANGES, tenant=new)
    etcd = MemoryCoordinator(world.etcd)
    etcd.put_member(Member("s-1-0000000a", "s-1", 1.0, since=NOON), etcd.grant(60).id)
    drain = "/v1/system/members/{member}/drain"
    step(operator, f"POST {drain}", tells=CHANGES, member="s-1")
    step(operator, f"DELETE {drain}", tells=CHANGES, member="s-1")


def test_every_route_that_changes_something_leaves_its_entry(world: World) -> None:
    walk = Walk(world)
    for part in (jobs, work, named, installation):
        part(walk)
    served = {
        (verb.upper(), path)
        for path, operations in world.answers.document["paths"].items()
        for verb in operations
        if verb != "get"
    }
    assert walk.tried == served - CHANGES_NOTHING
    [(before,)] = world.database.rows("select count(*) from audit_log")
    world.acme.post("/v1/schedules/preview", {"schedule": HOURLY}, expect=200)
    assert world.database.rows("select count(*) from audit_log") == [(before,)]


def test_what_is_refused_or_changes_nothing_leaves_none(world: World) -> None:
    job = world.acme.create("a")
    [(before,)] = world.database.rows("select count(*) from audit_log")
    world.acme.post("/v1/jobs", webhook("a"), expect=409)
    world.acme.post("/v1/jobs", {"name": "b"}, expect=422)
    world.acme.patch(f"/v1/jobs/{job['id']}", {"description": ""})
    world.acme.post(f"/v1/jobs/{job['id']}/undelete", expect=409)
    world.acme.delete("/v1/secrets/nothing")
    assert world.database.rows("select count(*) from audit_log") == [(before,)]

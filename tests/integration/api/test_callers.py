"""Every route, asked by everybody: a table made from the OpenAPI document, held to the real API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.support.api import Caller, World, unused_id, webhook

from tickrail.core.keys import SCOPES

pytestmark = pytest.mark.integration
OPERATOR_ALONE = {
    "/v1/queues", "/v1/queues/{name}", "/v1/queues/{name}/pause", "/v1/queues/{name}/resume",
    "/v1/dead-letters", "/v1/dead-letters/purge",
    "/v1/api-keys", "/v1/api-keys/{id}", "/v1/api-keys/{id}/rotate",
    "/v1/audit-log", "/v1/schedules/preview", "/v1/quotas",
}  # fmt: skip
"""Paths besides operators' own where an operator's key that names no tenant is not refused: what
is the installation's, or nobody's."""
REFUSED, NO_KEY = 403, 401


class Route(NamedTuple):
    """An operation of the document."""

    verb: str
    template: str
    scope: str | None
    operators: bool
    example: Any

    def __str__(self) -> str:
        """As a message names it."""
        return f"{self.verb} {self.template}"


def routes(document: Any) -> list[Route]:
    """Every operation that needs a key; one that says not which is an error here."""
    return [
        Route(
            verb.upper(),
            path,
            operation["x-tickrail-scope"],
            operation["x-tickrail-operators"],
            next(examples(operation), None),
        )
        for path, item in document["paths"].items()
        for verb, operation in item.items()
        if operation["security"]
    ]


def examples(operation: Any) -> Iterator[Any]:
    """The bodies that an operation shows."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if "json" in kind:
            yield from (e["value"] for e in content.get("examples", {}).values())


def theirs(world: World) -> dict[str, str]:
    """What acme has, by the names of parameters in paths."""
    job = world.acme.create("only-acmes", schedule={"every": "1h"}, description="only-acmes")
    launch = world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    backfill = world.acme.post(f"/v1/jobs/{job['id']}/backfills", world.past_week(), expect=202)
    operation = world.acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    world.acme.put("/v1/calendars/only-acmes", {"weekdays": ["sun"]}, expect=201)
    world.acme.put("/v1/secrets/only-acmes", {"value": "mine"}, expect=201)
    return {
        "job": job["id"], "launch": launch["id"], "backfill": backfill["id"], "version": "1",
        "operation": operation["id"], "name": "only-acmes", "id": world.keys["acme"].key_id,
        "tenant": unused_id(), "member": "s-1", "topic": "tickrail.default.due",
        "partition": "0", "offset": "0",
    }  # fmt: skip


def path_of(route: Route, ids: dict[str, str]) -> str:
    """The path, each parameter filled in; an unknown one fails."""
    return route.template.format(**ids)


def test_nobody_gets_in_without_a_good_key(world: World) -> None:
    ids = theirs(world)
    secret = world.acme.token.rsplit("_", 1)[0] + "_" + "x" * 43
    bad = {"wrong": secret, "no key": "x"}
    for column in ("revoked_at", "expires_at"):
        key = world.key("acme")
        world.database.run(
            f"update api_keys set {column} = now() - interval '1 s' where id = %s", key.key_id
        )
        bad[column] = key.token
    for route in routes(world.answers.document):
        for why, token in bad.items():
            answer = world.caller(token).call(route.verb, path_of(route, ids), route.example)
            assert answer.status_code == NO_KEY, f"{route}: {why}"
        answer = world.client.request(route.verb, path_of(route, ids))
        assert answer.status_code == NO_KEY, str(route)


def test_a_key_without_the_scope_is_refused_everywhere(world: World) -> None:
    ids = theirs(world)
    less = {s: world.caller(world.key("acme", *(set(SCOPES) - {s})).token) for s in SCOPES}
    reads = world.caller(world.key("acme", "read").token)
    few = {s: world.caller(world.key(None, *(set(SCOPES) - {s})).token) for s in SCOPES}
    for route in routes(world.answers.document):
        # A route that looks itself has more than one scope that will do; reading is not one.
        caller = less[route.scope] if route.scope is not None else reads
        status = caller.call(route.verb, path_of(route, ids), route.example).status_code
        assert status == REFUSED, str(route)
        if route.operators and route.scope is not None:
            operator = few[route.scope]
            status = operator.call(route.verb, path_of(route, ids), route.example).status_code
            assert status == REFUSED, f"{route}: an operator without the scope"


def test_what_is_operators_is_refused_to_tenants_and_the_other_way_round(world: World) -> None:
    ids = theirs(world)
    nothing = dict.fromkeys(ids, unused_id()) | {"name": "nothing", "version": "1"}
    for route in routes(world.answers.document):
        alone = world.operator.call(route.verb, path_of(route, nothing), route.example)
        if route.operators:
            tenants = world.acme.call(route.verb, path_of(route, ids), route.example)
            assert tenants.status_code == REFUSED, f"{route}: a tenant's key"
            assert alone.status_code not in {NO_KEY, REFUSED}, f"{route}: an operator's key"
        elif route.template in OPERATOR_ALONE:
            assert alone.status_code != NO_KEY, f"{route}: an operator's key"
        else:
            assert alone.status_code == REFUSED, f"{route}: an operator's key without a tenant"
            named = world.caller(world.operator.token, "beta")
            status = named.call(route.verb, path_of(route, nothing), route.example).status_code
            assert status not in {NO_KEY, REFUSED}, f"{route}: an operator's key for a tenant"


def test_nothing_of_another_tenant_is_seen_or_changed(world: World) -> None:
    ids = theirs(world)
    mine = before(world.acme, ids)
    told = {ids[p] for p in ("job", "launch", "backfill", "operation", "id")} | {"mine"}
    for route in routes(world.answers.document):
        if route.operators:
            continue
        example = world.past_week() if route.template.endswith("/backfills") else route.example
        if isinstance(example, dict) and "target" in example:
            example = webhook("theirs")
        answer = world.beta.call(route.verb, path_of(route, ids), example)
        asked = set(re.findall(r"{(\w+)}", route.template))
        if asked & {"job", "launch", "backfill", "operation", "id"}:
            assert answer.status_code == 404, f"{route}: {answer.text}"
        elif answer.status_code < 300:
            assert not [t for t in told if t in answer.text], f"{route}: {answer.text}"
    assert before(world.acme, ids) == mine


def before(acme: Caller, ids: dict[str, str]) -> list[Any]:
    """What acme has."""
    return [
        acme.get(path)
        for path in (
            f"/v1/jobs/{ids['job']}", f"/v1/launches/{ids['launch']}",
            f"/v1/backfills/{ids['backfill']}", f"/v1/operations/{ids['operation']}",
            "/v1/calendars/only-acmes", "/v1/secrets/only-acmes", f"/v1/api-keys/{ids['id']}",
        )
    ]  # fmt: skip

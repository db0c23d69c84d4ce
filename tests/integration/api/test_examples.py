"""Each example of the OpenAPI document is accepted by the server, and answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.api import World, webhook

pytestmark = pytest.mark.integration

OPERATORS = ("/v1/queues/", "/v1/tenants/")
"""What operators set."""


def examples(document: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Verb, path, content type and value of each example of a request."""
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                for example in content.get("examples", {}).values():
                    yield verb.upper(), path, kind, example["value"]


def begun(world: World, path: str, past: dict[str, str]) -> dict[str, str]:
    """What a path is about that goes on for a while."""
    if "{backfill}" in path:
        made = world.acme.post("/v1/jobs/name:subject/backfills", past, expect=202)
        return {"backfill": made["id"]}
    if path.endswith("/redrive"):
        world.database.run(
            "update launches set state = 'dead', phase = 3, finished_at = now(), dead_at = now()"
            " where state = 'due'"
        )
    if path.startswith("/v1/api-keys/"):
        made = world.acme.post("/v1/api-keys", {"name": "ci", "scopes": ["read"]}, expect=201)
        return {"id": made["id"]}
    if "{operation}" in path:
        made = world.acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
        return {"operation": made["id"]}
    return {}


def test_each_example_is_accepted(world: World) -> None:
    # The example's name is public; what is checked here is the document, not a name server.
    world.acme.put("/v1/secrets/ops", {"value": "https://chat.example.com/hook"}, expect=201)
    launch = ""
    accepted = 0
    for verb, path, kind, value in examples(world.answers.document):
        for job in world.acme.get("/v1/jobs")["items"]:
            world.acme.delete(f"/v1/jobs/{job['id']}")
        made = world.acme.create("subject", overlap="allow", schedule={"cron": "0 2 * * *"})
        launch = world.acme.post("/v1/jobs/name:subject/trigger", expect=201)["id"]
        document = value
        if isinstance(value, dict) and "target" in value:
            document = value | {"target": webhook("x")["target"]}
        if path == "/v1/tenants":
            document = value | {"name": "another"}  # the example's is there
        past = world.past_week()
        if isinstance(value, dict) and "until" in value and "from" in value:
            document = value | past
        ids = {"job": made["id"], "launch": launch, "name": "no-deployments", "tenant": "beta"}
        operators = world.answers.document["paths"][path][verb.lower()]["x-tickrail-operators"]
        caller = world.operator if operators or path.startswith(OPERATORS) else world.acme
        answer = caller.call(
            verb,
            path.format(**ids, **begun(world, path, past)),
            document,
            raw=value.encode() if kind == "text/calendar" else None,
            headers={"Content-Type": kind},
        )
        assert answer.status_code < 300, f"{verb} {path}: {answer.text}"
        accepted += 1
    assert accepted >= 8

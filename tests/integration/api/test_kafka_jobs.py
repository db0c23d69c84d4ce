"""Jobs with a kafka target over HTTP: which topics a tenant may use."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Caller, World

pytestmark = pytest.mark.integration


def kafka(topic: str, **fields: Any) -> dict[str, Any]:
    return {"name": "k", "target": {"kafka": {"topic": topic, **fields}}}


def allow(world: World, tenant: str, *patterns: str) -> None:
    world.operator.patch(f"/v1/tenants/{tenant}", {"kafka_topics": list(patterns)})


def told(answer: Any) -> tuple[str, str, str]:
    (problem,) = answer["errors"]
    return problem["pointer"], problem["message"], problem["expected"]


def test_without_an_operators_word_no_topic_may_be_used(acme: Caller) -> None:
    refused = acme.post("/v1/jobs", kafka("orders.paid"), expect=422)
    assert told(refused) == (
        "/target/kafka/topic",
        "topic orders.paid is not among those that this tenant may use",
        "a topic that an operator allowed",
    )
    assert acme.get("/v1/jobs")["items"] == []


def test_a_topic_that_is_allowed_may_be_used_by_that_tenant_alone(
    world: World, acme: Caller, beta: Caller
) -> None:
    allow(world, "acme", "orders.*", "audit")
    made = acme.post(
        "/v1/jobs", kafka("orders.paid", key="{{ payload.id }}", partition=3), expect=201
    )
    assert made["target"] == {
        "kafka": {
            "topic": "orders.paid",
            "headers": {},
            "key": "{{ payload.id }}",
            "partition": 3,
        }
    }
    beta.post("/v1/jobs", kafka("orders.paid"), expect=422)
    refused = acme.post("/v1/jobs", kafka("payments") | {"name": "p"}, expect=422)
    assert told(refused)[2] == "one of orders.*, audit"


def test_a_change_is_held_to_it_too_and_what_was_allowed_can_be_taken_back(
    world: World, acme: Caller
) -> None:
    allow(world, "acme", "orders.*")
    acme.post("/v1/jobs", kafka("orders.paid"), expect=201)
    change = {"target": {"kafka": {"topic": "payments"}}}
    refused = acme.call("PATCH", "/v1/jobs/name:k", change, expect=422).json()
    assert told(refused)[0] == "/target/kafka/topic"
    allow(world, "acme")
    # What does not touch the target may change; the worker refuses the message.
    acme.call("PATCH", "/v1/jobs/name:k", {"description": "x"}, expect=200)
    acme.call("PATCH", "/v1/jobs/name:k", {"target": {"kafka": {"key": "a"}}}, expect=422)


@pytest.mark.parametrize("topic", ["tickrail.launch.default.high", "__consumer_offsets"])
def test_topics_for_inside_use_are_refused_whatever_is_allowed(
    world: World, acme: Caller, topic: str
) -> None:
    allow(world, "acme", "*")
    refused = acme.post("/v1/jobs", kafka(topic), expect=422)
    assert told(refused)[0] == "/target/kafka/topic"


def test_what_is_wrong_with_a_target_is_named_at_once(acme: Caller) -> None:
    wrong = kafka("a b", partition=-1, headers={"Fencing-Token": "1"}, value="{{ nothing }}")
    refused = acme.post("/v1/jobs", wrong, expect=422)
    assert {e["pointer"] for e in refused["errors"]} == {
        f"/target/kafka/{name}" for name in ("topic", "partition", "headers/Fencing-Token", "value")
    }

"""The kafka target's document, and which topics a tenant may use."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.target_kafka import Kafka, topic_allowed, topic_refusal
from tickrail.core.targets import parse_target, target_document


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ({"topic": "orders.paid"}, Kafka("orders.paid")),
        (
            {
                "topic": "a_B-9",
                "key": "",
                "headers": {"team": "ä", "Team": ""},
                "value": {"a": [1, None, "{{ payload.x }}"]},
                "partition": 0,
            },
            Kafka("a_B-9", "", (("team", "ä"), ("Team", "")),
                  {"a": [1, None, "{{ payload.x }}"]}, 0),
        ),
        ({"topic": "t", "value": "text", "key": None, "partition": None}, Kafka("t", value="text")),
        ({"topic": "t", "value": False}, Kafka("t", value=False)),
    ],
)  # fmt: skip
def test_documents_are_read_and_written_back(fields: dict[str, object], target: Kafka) -> None:
    assert parse_target({"kafka": fields}) == target
    assert parse_target(target_document(target)) == target


@pytest.mark.parametrize(
    ("fields", "pointer", "hint"),
    [
        ({}, "topic", "the name of a topic"),
        ({"topic": 7}, "topic", "the name of a topic"),
        ({"topic": "a b"}, "topic", "1 to 249 letters"),
        ({"topic": "x" * 250}, "topic", "1 to 249 letters"),
        ({"topic": ".."}, "topic", "not . or .."),
        ({"topic": "{{ payload.topic }}"}, "topic", "1 to 249 letters"),
        ({"topic": "__consumer_offsets"}, "topic", "does not begin with __"),
        ({"topic": "t", "topics": "u"}, "topics", "did you mean topic?"),
        ({"topic": "t", "key": 1}, "key", "a text"),
        ({"topic": "t", "key": "x" * 5000}, "key", "at most 4096 bytes"),
        ({"topic": "t", "key": "{{ job.nam }}"}, "key", "job.name"),
        ({"topic": "t", "headers": {"a": 1}}, "headers/a", "a string"),
        ({"topic": "t", "headers": {"": "x"}}, "headers/", "1 to 200"),
        ({"topic": "t", "headers": {"fencing-token": "x"}}, "headers/fencing-token", "another"),
        ({"topic": "t", "headers": {"TICKRAIL-x": "x"}}, "headers/TICKRAIL-x", "another"),
        ({"topic": "t", "headers": {"a": "{{ x"}}, "headers/a", "placeholder"),
        ({"topic": "t", "headers": {str(n): "" for n in range(51)}}, "headers", "at most 50"),
        ({"topic": "t", "value": {"a": ["\ud800"]}}, "value/a/0", "UTF-8"),
        ({"topic": "t", "value": {"a": "{{ nothing }}"}}, "value", "payload"),
        ({"topic": "t", "partition": -1}, "partition", "0 to 100000"),
        ({"topic": "t", "partition": True}, "partition", "0 to 100000"),
        ({"topic": "t", "partition": "1"}, "partition", "0 to 100000"),
    ],
)
def test_what_is_wrong_is_named(fields: Any, pointer: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_target({"kafka": fields})
    found = {p.pointer: p for p in refused.value.problems}
    assert f"/target/kafka/{pointer}" in found
    assert hint in found[f"/target/kafka/{pointer}"].expected


@pytest.mark.parametrize(
    ("topic", "patterns", "allowed"),
    [
        ("orders", ["orders"], True),
        ("orders", [], False),
        ("orders.paid", ["orders"], False),
        ("orders.paid", ["orders.*"], True),
        ("orders", ["orders.*"], False),
        ("ordersXpaid", ["orders.paid"], False),
        ("my.orders", ["orders", "*.orders"], True),
        ("a.b.c", ["a.*.c"], True),
        ("anything", ["*"], True),
        ("orders.paid", ["ORDERS.*"], False),
    ],
)
def test_a_star_stands_for_any_characters(topic: str, patterns: list[str], allowed: bool) -> None:
    assert topic_allowed(topic, patterns) is allowed


@pytest.mark.parametrize("topic", ["rail", "rail.launch.default.high", "__consumer_offsets"])
def test_no_pattern_opens_topics_for_inside_use(topic: str) -> None:
    assert "inside use" in (topic_refusal(topic, ["*", topic], "rail") or "")


def test_a_topic_of_a_name_that_only_looks_like_the_prefix_is_a_users() -> None:
    assert topic_refusal("railway", ["railway"], "rail") is None

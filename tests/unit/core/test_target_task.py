"""The document of a task target: its shape, and what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.target_task import TaskCall
from tickrail.core.targets import parse_target, target_document, target_kind
from tickrail_api.schemas.job import TASK_JOB


def test_a_task_has_a_name_and_arguments() -> None:
    found = parse_target({"task": {"name": "shop.report", "args": {"day": "mon", "n": [1, None]}}})
    assert found == TaskCall("shop.report", {"day": "mon", "n": [1, None]})
    assert target_kind(found) == "task"
    assert target_document(found) == {
        "task": {"name": "shop.report", "args": {"day": "mon", "n": [1, None]}}
    }
    assert target_document(parse_target({"task": {"name": "x"}})) == {
        "task": {"name": "x", "args": {}}
    }


@pytest.mark.parametrize(
    ("fields", "pointer", "message"),
    [
        ({}, "/target/task/name", "is missing"),
        ({"name": ""}, "/target/task/name", "is ''"),
        ({"name": "1st"}, "/target/task/name", "is '1st'"),
        ({"name": "a b"}, "/target/task/name", "is 'a b'"),
        ({"name": "a" * 201}, "/target/task/name", "is '" + "a" * 100 + "'"),
        ({"name": 5}, "/target/task/name", "is not a string"),
        ({"name": "x", "arg": {}}, "/target/task/arg", "unknown field"),
        ({"name": "x", "args": [1]}, "/target/task/args", "is an array"),
        ({"name": "x", "args": {"a-b": 1}}, "/target/task/args/a-b", "is not the name"),
        ({"name": "x", "args": {"class": 1}}, "/target/task/args/class", "is not the name"),
        ({"name": "x", "args": {"context": 1}}, "/target/task/args/context", "is given by"),
        ({"name": "x", "args": {"a": ["\x00"]}}, "/target/task/args/a/0", "contains the character"),
        ({"name": "x", "args": {"a": "y" * 70_000}}, "/target/task/args", "has 70008 bytes"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_target({"task": fields})
    (problem,) = caught.value.problems
    assert problem.pointer == pointer
    assert problem.message.startswith(message)
    assert problem.expected


def test_the_example_of_the_api_is_one() -> None:
    assert parse_target(TASK_JOB["target"]) == TaskCall(
        "import_orders", {"shop": "north", "limit": 500}
    )

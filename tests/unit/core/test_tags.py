"""Tags of a job's document."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tickrail.core.definition import parse_definition
from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId


def test_too_many_tags_are_one_problem() -> None:
    """And not one for each, of bodies of a megabyte."""
    document = {"name": "a", "target": {"noop": {}}, "tags": {f"!{n}": 1 for n in range(1000)}}
    with pytest.raises(InvalidInputError) as refused:
        parse_definition(document, job=JobId(uuid4()), now=datetime(2026, 3, 2, tzinfo=UTC))
    assert [(p.pointer, p.message) for p in refused.value.problems] == [
        ("/tags", "has 1000 entries")
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a\x00b", "contains the character U+0000"),
        ("x" * 257, "has 257 characters"),
        (5, "is a number"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(value: object, said: str) -> None:
    document = {"name": "a", "target": {"noop": {}}, "tags": {"team": value}}
    with pytest.raises(InvalidInputError) as refused:
        parse_definition(document, job=JobId(uuid4()), now=datetime(2026, 3, 2, tzinfo=UTC))
    [problem] = refused.value.problems
    assert (problem.pointer, problem.message) == ("/tags/team", said)
    assert "256" in problem.expected

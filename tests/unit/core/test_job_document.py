"""What is said of a job's document that is not one."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tickrail.core.definition import parse_definition
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.ids import JobId
from tickrail.core.targets import readable_kinds


def problems_of(document: object) -> list[Problem]:
    with pytest.raises(InvalidInputError) as refused:
        parse_definition(document, job=JobId(uuid4()), now=datetime(2026, 3, 2, tzinfo=UTC))
    return list(refused.value.problems)


@pytest.mark.parametrize(("document", "said"), [(None, "is null"), (5, "is a number")])
def test_nothing_is_missing_in_what_is_no_object(document: object, said: str) -> None:
    assert problems_of(document) == [Problem("", said, "an object")]


def test_who_leaves_the_target_out_is_told_of_every_kind() -> None:
    [problem] = problems_of({"name": "a"})
    assert (problem.pointer, problem.message) == ("/target", "is missing")
    assert readable_kinds() in problem.expected
    for kind in ("webhook", "kafka", "command", "task", "noop"):
        assert kind in problem.expected


def test_an_interval_that_is_too_long_is_told_how_long_it_may_be() -> None:
    document = {"name": "a", "target": {"noop": {}}, "schedule": {"every": "100000000h"}}
    [problem] = problems_of(document)
    assert problem.pointer == "/schedule/every"
    assert "from 1s to 100 years" in problem.expected

"""The member `concurrency` of a job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from tickrail.core.definition import Definition, parse_definition, parse_plan
from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId
from tickrail.core.policies import Concurrency

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = JobId(UUID(int=7))


def parse(concurrency: object) -> Definition:
    document = {"name": "a", "target": {"noop": {}}, "concurrency": concurrency}
    return parse_definition(document, job=JOB, now=NOW)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        ({"key": "customer-7"}, Concurrency("customer-7", 1)),
        ({"key": "ü" * 200, "limit": 100_000}, Concurrency("ü" * 200, 100_000)),
    ],
)
def test_it_is_kept_and_planned_by(given: object, wanted: Concurrency | None) -> None:
    found = parse(given)
    assert found.plan.concurrency == wanted
    stored: dict[str, Any] = found.plan_document()
    assert parse_plan(stored, job=JOB, now=NOW).concurrency == wanted
    assert parse(found.document()["concurrency"]).document() == found.document()
    # What was stored by a version that had no such member.
    del stored["concurrency"]
    assert parse_plan(stored, job=JOB, now=NOW).concurrency is None


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ("customer-7", "/concurrency"),
        ({}, "/concurrency/key"),
        ({"limit": 2}, "/concurrency/key"),
        ({"key": ""}, "/concurrency/key"),
        ({"key": 7}, "/concurrency/key"),
        ({"key": "x" * 201}, "/concurrency/key"),
        ({"key": "a\x00b"}, "/concurrency/key"),
        ({"key": "a", "limit": 0}, "/concurrency/limit"),
        ({"key": "a", "limit": True}, "/concurrency/limit"),
        ({"key": "a", "most": 2}, "/concurrency/most"),
    ],
)
def test_what_is_wrong_is_named(given: object, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(given)
    assert [p.pointer for p in caught.value.problems] == [pointer]

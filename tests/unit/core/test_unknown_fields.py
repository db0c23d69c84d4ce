"""Fields that nobody knows are named, however many there are, in bounded time."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from tickrail.core.definition import parse_definition
from tickrail.core.documents import MAX_UNKNOWN
from tickrail.core.errors import InvalidInputError
from tickrail.core.ids import JobId

MANY = {f"k{i}": 1 for i in range(2000)}


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        pytest.param({"name": "a", "target": {"noop": {}}, **MANY}, "/k", id="job"),
        pytest.param({"name": "a", "target": {"noop": MANY}}, "/target/noop/k", id="target"),
        pytest.param(
            {"name": "a", "target": {"noop": {}}, "schedule": {"every": "5m", **MANY}},
            "/schedule/k",
            id="schedule",
        ),
    ],
)
def test_only_the_first_of_many_unknown_fields_are_named(
    document: dict[str, object], pointer: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_definition(document, job=JobId(UUID(int=1)), now=datetime(2026, 1, 1, tzinfo=UTC))
    named = [p for p in caught.value.problems if p.pointer.startswith(pointer)]
    assert len(named) == MAX_UNKNOWN

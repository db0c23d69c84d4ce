"""The retry policy comes back from a definition's canonical document as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from tickrail.core.definition import parse_definition, parse_retry
from tickrail.core.ids import JobId
from tickrail.core.policies import Retry


def test_a_retry_policy_is_read_back_as_it_was_written() -> None:
    written = {"max_attempts": 3, "initial": "1s", "multiplier": 3, "max": "1m", "jitter": 0.5}
    definition = parse_definition(
        {"name": "a", "target": {"noop": {}}, "retry": written},
        job=JobId(UUID(int=1)),
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    assert definition.retry == Retry(3, second, 3.0, minute, 0.5)
    assert parse_retry(definition.document()["retry"]) == definition.retry

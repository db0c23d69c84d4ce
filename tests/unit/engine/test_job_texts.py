"""What a worker keeps of definitions is bounded, in number and in bytes."""

from __future__ import annotations

import json
from uuid import UUID

from tests.support.stepped import TENANT, Stepped

from tickrail.core.ids import Claim, JobId, LaunchId, Partition
from tickrail.core.ports_worker import Claimed
from tickrail.engine.job_texts import JobTexts

NOW = Stepped().clock.now()


def claimed(number: int, size: int = 0) -> Claimed:
    definition = json.dumps(
        {
            "name": f"job-{number}",
            "target": {"noop": {}},
            "payload": "x" * size,
            "timeout": "5s",
            "retry": {},
            "overlap": "skip",
            "schedule": None,
        }
    )
    return Claimed(
        LaunchId(UUID(int=number)), NOW, JobId(UUID(int=number)), 1, TENANT, Partition(0), "q", 1,
        0, 5, True, 30.0, NOW, Claim(7), definition, None, 0,
    )  # fmt: skip


def test_those_used_last_are_kept() -> None:
    texts = JobTexts(most=2)
    first = texts.of(claimed(1))
    assert (first.name, first.timeout, first.wakes) == ("job-1", 5.0, True)
    texts.of(claimed(2))
    assert texts.of(claimed(1)) is first
    texts.of(claimed(3))
    assert texts.of(claimed(1)) is first
    assert [job.int for job, _ in texts._known] == [3, 1]


def test_large_ones_push_others_out() -> None:
    texts = JobTexts(most_bytes=100_000)
    for number in range(50):
        texts.of(claimed(number, 30_000))
        assert texts._bytes == sum(size for _, size in texts._known.values()) <= 100_000
    assert [job.int for job, _ in texts._known] == [47, 48, 49]


def test_one_that_is_larger_than_all_may_be_is_used_and_not_kept() -> None:
    texts = JobTexts(most_bytes=1000)
    assert texts.of(claimed(1, 5000)).name == "job-1"
    assert (len(texts._known), texts._bytes) == (0, 0)

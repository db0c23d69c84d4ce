"""Launch ids and tokens: fixed by vectors, so that a slot has the same id for ever."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.support.clock import FakeClock

from tickrail.core.ids import JobId, epoch_of, launch_id, scheduled_at_of, uuid7

JOB = JobId(UUID("0190a0f4-6f3c-7c31-9f5b-2f4f3a6a9c11"))
SLOT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("slot", "origin", "expected"),
    [
        (SLOT, "schedule", "019b76da-a800-8c50-aacb-2aec52950cb4"),
        (SLOT, "manual:1", "019b76da-a800-8464-8480-0fc5d45a286f"),
        (SLOT + timedelta(seconds=1), "schedule", "019b76da-abe8-86e0-aef9-85c8108b5d09"),
        (
            datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
            "schedule",
            "ffffffff-fc18-87e4-b8e0-edcbee0abdb9",
        ),
    ],
)
def test_a_launch_id_is_made_as_documented(slot: datetime, origin: str, expected: str) -> None:
    assert str(launch_id(JOB, slot, origin)) == expected
    seconds = int(slot.timestamp())
    digest = hashlib.sha256(JOB.bytes + seconds.to_bytes(8, "big", signed=True) + origin.encode())
    tail = int.from_bytes(digest.digest(), "big") >> (256 - 74)
    made = launch_id(JOB, slot, origin)
    assert made.version == 8
    assert made.variant == "specified in RFC 4122"
    assert made.int >> 80 == seconds * 1000 & (1 << 48) - 1
    assert (made.int >> 64 & 0xFFF) << 62 | made.int & (1 << 62) - 1 == tail


def test_a_launch_id_is_fixed_by_vectors() -> None:
    one = JobId(UUID(int=1))
    assert str(launch_id(one, SLOT, "schedule")) == "019b76da-a800-8d67-aa56-3c3472b92d71"


def test_the_same_instant_in_another_zone_is_the_same_launch() -> None:
    tokyo = SLOT.astimezone(__import__("zoneinfo").ZoneInfo("Asia/Tokyo"))
    assert launch_id(JOB, tokyo, "schedule") == launch_id(JOB, SLOT, "schedule")
    assert scheduled_at_of(launch_id(JOB, SLOT, "schedule")) == SLOT.timestamp()


def test_a_job_id_is_ordered_by_time() -> None:
    clock = FakeClock()
    ids = []
    for _ in range(20):
        ids.append(uuid7(clock))
        clock.advance(0.001)
    assert ids == sorted(ids)
    assert {i.version for i in ids} == {7}


def test_an_epoch_carries_the_generation_above_the_revision() -> None:
    assert epoch_of(0, 5) == 5
    assert epoch_of(1, 1) > epoch_of(0, 2**48 - 1)
    assert epoch_of(31, 2**48 - 1) < 2**53
    for generation, revision in ((32, 1), (-1, 1), (0, 0), (0, 2**48)):
        with pytest.raises(ValueError, match="outside"):
            epoch_of(generation, revision)

"""Names of things: tenants, jobs, launches, epochs, claims.

A launch id is a UUIDv8 made of (job, scheduled instant, origin), so the same slot has the same id
for ever, also when the database lost the record (docs/protocols.md 2). A job id is a UUIDv7.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from typing import NewType
from uuid import UUID

from tickrail.core.clock import Clock

TenantId = NewType("TenantId", UUID)
JobId = NewType("JobId", UUID)
LaunchId = NewType("LaunchId", UUID)
Partition = NewType("Partition", int)
Epoch = NewType("Epoch", int)
"""The fencing token of a partition's owner: the installation's generation in the high bits, the
create_revision of the owner key below (`epoch_of`)."""
Claim = NewType("Claim", int)
"""The fencing token of a worker's hold on one attempt; higher at each later start of a launch."""

ORIGIN_SCHEDULE = "schedule"
ORIGIN_BACKFILL = "backfill:"
"""Before the id of the backfill that a launch belongs to."""

GENERATION_SHIFT = 48
"""Both tokens carry the generation above this bit; the whole stays below 2^53, so that a receiver
that knows only IEEE doubles compares tokens right."""
MAX_GENERATION = 31

_VERSION_7 = 0x7
_VERSION_8 = 0x8
_VARIANT = 0b10


def epoch_of(generation: int, create_revision: int) -> Epoch:
    """The epoch of an owner key created at this etcd revision.

    Raises:
        ValueError: generation or revision out of range.
    """
    if not 0 <= generation <= MAX_GENERATION:
        raise ValueError(f"generation {generation} is outside 0..{MAX_GENERATION}")
    if not 0 < create_revision < 1 << GENERATION_SHIFT:
        raise ValueError(f"revision {create_revision} is outside 1..2^{GENERATION_SHIFT}-1")
    return Epoch(generation << GENERATION_SHIFT | create_revision)


def uuid7(clock: Clock) -> UUID:
    """A new time-ordered UUIDv7 (RFC 9562 section 5.7): milliseconds, then 74 random bits."""
    millis = int(clock.now().timestamp() * 1000)
    rand = int.from_bytes(os.urandom(10), "big") & (1 << 74) - 1
    return _compose(millis, _VERSION_7, rand)


def launch_id(job: JobId, scheduled_at: datetime, origin: str) -> LaunchId:
    """The id of the launch of one slot (UUIDv8, RFC 9562 section 5.8).

    48 bits Unix milliseconds of the scheduled instant, version and variant, 74 bits of SHA-256 of
    the job id's 16 bytes, the Unix seconds as a big-endian signed 64-bit integer, and the origin
    in UTF-8. `tests/unit/core/test_ids.py` fixes it by vectors.

    Args:
        job: the job.
        scheduled_at: aware, a whole second.
        origin: `schedule`, `manual:<request>` or `backfill:<id>`.
    """
    seconds = int(scheduled_at.timestamp())
    digest = hashlib.sha256(
        job.bytes + seconds.to_bytes(8, "big", signed=True) + origin.encode()
    ).digest()
    tail = int.from_bytes(digest[:10], "big") >> 6
    return LaunchId(_compose(seconds * 1000, _VERSION_8, tail))


def scheduled_at_of(launch: UUID) -> float:
    """The scheduled instant inside a launch id, as Unix seconds."""
    return (launch.int >> 80) / 1000


def _compose(millis: int, version: int, tail74: int) -> UUID:
    """Place 48 bits of time and 74 bits of the rest round the version and the variant."""
    high12, low62 = tail74 >> 62, tail74 & (1 << 62) - 1
    return UUID(
        int=(millis & (1 << 48) - 1) << 80 | version << 76 | high12 << 64 | _VARIANT << 62 | low62
    )

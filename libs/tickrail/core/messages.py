"""What goes over the wire: launch messages and dead letters, as values.

A launch message is a nudge: it names (launch, attempt) and nothing is decided by what else it says;
target and payload are read when the launch is claimed (docs/protocols.md 3). It may be lost,
doubled, early or late. The encoding is JSON with the major version under `v`. A reader ignores
fields that it does not know and refuses a newer major version (`bus/codec.py` reads and writes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

WIRE_VERSION = 1
"""The major version written. A change that an old reader would misread raises it."""

HISTORY_BYTES = 16 * 1024
"""How much of a dead letter its history of attempts may take; the middle is left out first."""


class UndecodableError(ValueError):
    """A message that cannot be read; `str()` says why, in one line."""


@dataclass(slots=True, frozen=True)
class LaunchMessage:
    """Says that an attempt of a launch is due.

    Attributes:
        launch: the launch.
        scheduled_at: its slot, aware, in UTC.
        job: the job.
        tenant: the tenant.
        attempt: counted from 1.
        epoch: the publisher's fencing token, for the record.
        partition: the schedule partition of the job.
        trace: a W3C traceparent, or None.
    """

    launch: UUID
    scheduled_at: datetime
    job: UUID
    tenant: UUID
    attempt: int
    epoch: int
    partition: int
    trace: str | None = None


@dataclass(slots=True, frozen=True)
class FailedAttempt:
    """One line of a dead letter's history: an attempt that did not succeed."""

    attempt: int
    outcome: str
    message: str
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None = None


class DeadLetterId(NamedTuple):
    """What makes a dead letter one: a second record with the same id is the same letter."""

    launch: UUID
    attempt: int


@dataclass(slots=True, frozen=True)
class DeadLetter:
    """A launch that ended as dead or abandoned.

    Attributes:
        launch: the launch.
        attempt: the last attempt.
        job: the job.
        job_name: its name when the launch died.
        tenant: the tenant.
        queue: the queue it ran in.
        scheduled_at: its slot, aware, in UTC.
        died_at: when it ended.
        reason: the class: `attempts_exhausted`, `not_retryable`, `worker_lost`, `too_large`, ...
        error: a summary of the last failure.
        failures: failed attempts since the last redrive.
        redrive_count: how often it was redriven.
        history: earlier attempts, oldest first.
    """

    launch: UUID
    attempt: int
    job: UUID
    job_name: str
    tenant: UUID
    queue: str
    scheduled_at: datetime
    died_at: datetime
    reason: str
    error: str
    failures: int
    redrive_count: int = 0
    history: Sequence[FailedAttempt] = field(default=())

    @property
    def id(self) -> DeadLetterId:
        """The letter's identity."""
        return DeadLetterId(self.launch, self.attempt)


@dataclass(slots=True, frozen=True)
class UndecodableLetter:
    """A message that could not be read, kept as it came, with where it stood."""

    topic: str
    partition: int
    offset: int
    raw: bytes
    error: str

    @property
    def id(self) -> str:
        """The letter's identity: topic, partition and offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def check_version(version: object) -> int:
    """The major version of a message, if this program can read it.

    Raises:
        UndecodableError: not a version, or newer than WIRE_VERSION.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UndecodableError("field v is not a version number")
    if version > WIRE_VERSION:
        raise UndecodableError(
            f"written in version {version}; this program reads up to version {WIRE_VERSION}"
        )
    return version

"""The states of jobs, and which jobs a list or an operation is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class JobState(StrEnum):
    """The state of a job."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs. Without states: all but deleted ones. Tags: key, and value or None for any.

    `since <= created_at < until`, and the same of `updated_at`.
    """

    states: Sequence[JobState] = ()
    tags: Sequence[tuple[str, str | None]] = ()
    name_prefix: str | None = None
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    updated_since: datetime | None = None
    updated_until: datetime | None = None

"""Launches as the API's ports answer them, and pages of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from tickrail.core.ids import JobId, LaunchId
from tickrail.core.states import State

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch as it stands.

    `job_name` is the job's present name; `progress` is what its last run told of how far it is.
    """

    id: LaunchId
    job: JobId
    job_name: str
    job_version: int
    origin: str
    scheduled_at: datetime
    due_at: datetime
    state: State
    attempt: int
    failures: int
    max_attempts: int
    queue: str
    priority: int
    worker: str | None
    claim: int | None
    cancel_requested: bool
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    result: Mapping[str, Any] | None
    redrive_count: int
    progress: Any = None


class Position(NamedTuple):
    """Where a page ended: the sort key's value and the id of its last row."""

    value: datetime | str
    id: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page: sorted by `key`, ascending or not, `limit` rows after a position."""

    key: str
    ascending: bool
    limit: int
    after: Position | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows, and where the next page goes on; None: this was the last."""

    items: Sequence[T]
    after: Position | None = None

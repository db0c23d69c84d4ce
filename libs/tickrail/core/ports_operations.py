"""Operations: work on many rows that is done in batches, and its rows in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tickrail.core.ids import JobId
from tickrail.core.job_filter import JobFilter


class OperationState(StrEnum):
    """The state of an operation; failed: it could not go on, what it did stays done."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """An operation as it stands.

    `request` is what was asked for. `position` says where the next batch goes on: JSON that means
    something to who does the work, None before the first. `done` counts what was dealt with:
    `changed` by it, `failed` refused with one of `errors` (the first hundred), the rest as it was
    already.
    """

    id: UUID
    kind: str
    state: OperationState
    request: Mapping[str, Any]
    created_by: str
    created_at: datetime
    updated_at: datetime
    total: int = 0
    done: int = 0
    changed: int = 0
    failed: int = 0
    errors: Sequence[Mapping[str, Any]] = ()
    position: Any = None
    finished_at: datetime | None = None


class NamedJob(NamedTuple):
    """A job that an operation is about."""

    id: JobId
    name: str


class OperationRecords(Protocol):
    """Operations of the transaction's tenant."""

    def find(self, operation: UUID, *, lock: bool = False) -> OperationRecord | None:
        """The operation; `lock` holds its row until the transaction ends."""
        ...

    def insert(self, record: OperationRecord) -> None:
        """Insert a running one that nobody works at yet."""
        ...

    def update(self, record: OperationRecord, hold: timedelta) -> None:
        """Write how far it is; nobody else takes it for so long. The row is locked."""
        ...

    def page(self, after: UUID | None, limit: int) -> Sequence[OperationRecord]:
        """Operations, the newest first, those older than `after`."""
        ...

    def jobs(
        self, where: JobFilter, until: datetime, after: JobId | None, limit: int
    ) -> Sequence[NamedJob]:
        """Jobs of a filter that were made up to an instant, by id, those after `after`."""
        ...

    def count_jobs(self, where: JobFilter, until: datetime) -> int:
        """How many jobs of a filter were made up to an instant."""
        ...

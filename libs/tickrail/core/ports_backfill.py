"""Backfills in the database: the owner's side and the API's, and the rows that cross them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tickrail.core.backfill import (
    Backfill,
    BackfillSituation,
    BackfillState,
    BackfillStep,
    Upcoming,
)
from tickrail.core.definition import Plan
from tickrail.core.ids import JobId, Partition, TenantId
from tickrail.core.ports import Calendars, DueJob, FenceReport, NewLaunch, Owned, Publication
from tickrail.core.quotas import Reached


class DueBackfill(NamedTuple):
    """A running backfill whose turn it is, its job's row locked.

    `job_state` is the job's; `next_run_at` what the job waits for, None where it is not active.
    """

    backfill: Backfill
    job: DueJob
    job_state: str
    next_run_at: datetime | None


class Walk(NamedTuple):
    """The next slots of a backfill. `plan` None: its job has none to give, or `error` says why."""

    due: DueBackfill
    plan: Plan | None
    upcoming: Upcoming
    error: str | None = None


class Filled(NamedTuple):
    """What a pass wants written for one backfill."""

    due: DueBackfill
    step: BackfillStep
    launches: Sequence[NewLaunch]


class BackfillPlanner(Protocol):
    """Called inside the pass's transaction; must not block."""

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that the job's slots need."""
        ...

    def walk(self, due: DueBackfill, calendars: Calendars, now: datetime, limit: int) -> Walk:
        """The next slots of a backfill, at most `limit`."""
        ...

    def fill(self, walk: Walk, situation: BackfillSituation, now: datetime) -> Filled:
        """Decide on them."""
        ...


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What one pass did. `inserted` are the new launches; `more`: there is more to do now.

    `reached`: as in `Ticked`.
    """

    now: datetime
    inserted: Sequence[Publication] = ()
    left_alone: int = 0
    ended: int = 0
    more: bool = False
    fence: FenceReport = field(default_factory=FenceReport)
    reached: Sequence[tuple[TenantId, Reached]] = ()


class BackfillStore(Protocol):
    """What the owner of partitions does for backfills; one thread, one connection."""

    def backfill(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
        """Carry on up to `limit` running backfills of active tenants, in one transaction.

        Looks at `SLOTS_AT_ONCE` slots of all of them together. Locks their jobs (those locked
        elsewhere are left for the next pass), then the fence rows, then the backfills; inserts
        launches (a record that is there already is left as it is) and moves the cursors. A crash
        before the commit leaves everything as it was; after it, the launches are `due` and the
        cursor is behind them.
        """
        ...


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """A backfill as the API shows it. `launches` counts its launches by state, as far as read."""

    backfill: Backfill
    job: JobId
    job_name: str
    partition: Partition
    state: BackfillState
    reason: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    payload: Any = None
    has_payload: bool = False
    launches: Mapping[str, int] = field(default_factory=dict)


class BackfillRecords(Protocol):
    """Backfills of the transaction's tenant. Writers hold the lock of the job's row."""

    def find(self, backfill: UUID) -> BackfillRecord | None:
        """The backfill, its launches counted."""
        ...

    def insert(self, record: BackfillRecord) -> None:
        """Insert a running one."""
        ...

    def page(self, job: JobId, after: UUID | None, limit: int) -> Sequence[BackfillRecord]:
        """The backfills of a job, the newest first, those older than `after`; launches counted."""
        ...

    def running(self, job: JobId) -> int:
        """How many of a job's are running."""
        ...

    def cancel(self, record: BackfillRecord, *, running: bool) -> None:
        """Cancel it and its launches that have not started; running ones as asked."""
        ...

    def launched(
        self, job: JobId, slots: Sequence[datetime]
    ) -> Mapping[datetime, tuple[UUID, str]]:
        """The latest launch of each of these slots that has one: its id and state."""
        ...

"""The tables of the memory stores (`memory_store.py`).

A FakeClock is the database's clock. Tests switch the faults: `down`, `lose_reply`, and the rows
that somebody else has locked.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryFenceStore

from tickrail.core.backfill import Backfill
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import GENERATION_SHIFT, Claim, JobId, LaunchId, Partition, TenantId
from tickrail.core.limits import Limit, Scope
from tickrail.core.messages import UndecodableLetter
from tickrail.core.on_failures import Channel
from tickrail.core.ports import (
    CalendarText,
    FenceReport,
    OwedLetter,
    Owned,
    Publication,
)
from tickrail.core.ports_worker import Finish
from tickrail.core.quotas import Quota
from tickrail.core.states import OPEN, State
from tickrail.core.verdict import Verdict

HISTORY = timedelta(days=30)
CLAIMS_STEP = 1_000_000


@dataclass
class JobRow:
    """A row of `jobs`, its versions with it."""

    id: JobId
    tenant_id: TenantId
    name: str
    partition: Partition
    plan: str
    definitions: dict[int, str]
    next_run_at: datetime | None
    version: int = 1
    state: str = "active"
    last_slot_at: datetime | None = None
    launched: int = 0
    resume_at: datetime | None = None
    error: str | None = None
    skip_next: int = 0
    catch_up: Any = None
    awaits: bool = False
    paused: Any = None
    failures_from: datetime | None = None


@dataclass
class LaunchRow:
    """A row of `launches`."""

    id: LaunchId
    scheduled_at: datetime
    tenant_id: TenantId
    job_id: JobId
    job_version: int
    partition: Partition
    queue: str
    priority: int
    state: State
    max_attempts: int
    rerun: bool
    visibility: float
    due_at: datetime
    start_before: datetime | None = None
    attempt: int = 1
    failures: int = 0
    queued_at: datetime | None = None
    publications: int = 0
    claim: int | None = None
    claim_expires_at: datetime | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    redrive_count: int = 0
    dlq_owed: bool = False
    epoch: int = 0
    payload: Any = None
    result: Any = None
    origin: str = "manual:test"
    dead_at: datetime | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    trace: str | None = None


@dataclass
class BackfillRow:
    """A row of `backfills`."""

    backfill: Backfill
    job_id: JobId
    state: str = "running"
    payload: Any = None
    has_payload: bool = False


@dataclass
class HoldRow:
    """A row of `holds`: a place (with a claim), or a wait."""

    asked: int
    claim: int | None = None
    reason: str | None = None
    due_at: datetime | None = None
    attempt: int | None = None


@dataclass(frozen=True)
class SkipRow:
    """A row of `skips`."""

    job_id: JobId
    reason: str
    first: datetime
    last: datetime
    count: int


class MemoryDatabase:
    """The tables. Safe to use from several threads: one transaction at a time."""

    def __init__(self, clock: FakeClock, partitions: int = 4) -> None:
        self.clock = clock
        self.fence = MemoryFenceStore(clock, partitions)
        self.lock = threading.RLock()
        self.jobs: dict[JobId, JobRow] = {}
        self.launches: dict[LaunchId, LaunchRow] = {}
        self.skips: dict[tuple[JobId, datetime, str], SkipRow] = {}
        self.attempts: dict[tuple[LaunchId, int], dict[str, Any]] = {}
        self.calendars: dict[tuple[TenantId, str], CalendarText] = {}
        self.backfills: dict[UUID, BackfillRow] = {}
        self.undecodable: dict[str, UndecodableLetter] = {}
        self.suspended: set[TenantId] = set()
        self.deleted: set[TenantId] = set()
        """Some of those that are suspended."""
        self.went_on: dict[TenantId, datetime] = {}
        self.paused_queues: set[str] = set()
        self.locked_jobs: set[JobId] = set()
        self.locked_launches: set[LaunchId] = set()
        self.days: set[date] = set()
        self.down = False
        self.lose_reply: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.wakes = 0
        self.limits: dict[Scope, Limit] = {}
        self.holds: dict[tuple[Scope, LaunchId], HoldRow] = {}
        self.weights: dict[TenantId, int] = {}
        self.notices: list[Any] = []
        self.quotas: dict[TenantId, dict[Quota, float | None]] = {}
        self.quota_windows: dict[tuple[TenantId, Quota, datetime], tuple[int, int]] = {}
        self.quota_channels: dict[TenantId, tuple[Channel, ...]] = {}
        self.locked_quotas: set[TenantId] = set()
        self._claims = 0

    @contextmanager
    def transaction(self, name: str) -> Iterator[datetime]:
        """One call; fails before it did anything while `down`, after it when its reply is lost."""
        with self.lock:
            self.calls[name] += 1
            if self.down:
                raise UnavailableError("the database does not answer")
            yield self.clock.now()
            if name in self.lose_reply:
                self.lose_reply.remove(name)
                raise UnavailableError("the database did not answer in time")

    def suspended_until(self, job: JobRow) -> datetime | None:
        """When the suspension of its tenant ended during which a job became due."""
        ended = self.went_on.get(job.tenant_id)
        due = job.next_run_at
        return ended if ended is not None and due is not None and ended > due else None

    def next_claim(self) -> Claim:
        self._claims += 1
        lost = CLAIMS_STEP * self.fence.claims_advanced
        return Claim((self.fence.stored_generation << GENERATION_SHIFT) + lost + self._claims)

    def hold_fence(
        self, owned: Owned, wanted: Iterable[Partition]
    ) -> tuple[frozenset[Partition], FenceReport]:
        held, higher, lower = [], [], []
        for p in sorted(set(wanted) & owned.keys()):
            stored = self.fence.epochs[p]
            (held if stored == owned[p] else higher if stored > owned[p] else lower).append(p)
        return frozenset(held), FenceReport(tuple(higher), tuple(lower))

    def of_job(self, job: JobId, states: frozenset[State] = OPEN) -> list[LaunchRow]:
        found = [x for x in self.launches.values() if x.job_id == job and x.state in states]
        return sorted(found, key=lambda x: (x.scheduled_at, x.id))

    def cancel(self, row: LaunchRow, now: datetime) -> None:
        """What the API's cancel does to an open launch."""
        if row.state not in OPEN:
            return
        row.cancel_requested = True
        if row.state is not State.RUNNING:
            row.state, row.finished_at = State.CANCELLED, now

    def end_attempt(self, end: Finish | ReaperEnd, now: datetime) -> State | None:
        """`end_attempts`: the verdict, unless a cancel was asked for."""
        row = self.launches.get(end.id)
        if row is None or row.state is not State.RUNNING or row.claim != end.claim:
            return None
        if isinstance(end, ReaperEnd) and row.claim_expires_at != end.expires_at:
            return None
        verdict = end.verdict
        after = State.CANCELLED if row.cancel_requested else verdict.state
        self.attempts.setdefault(
            (row.id, row.attempt),
            {
                "attempt": row.attempt,
                "outcome": end.outcome,
                "message": end.message,
                "started_at": None if row.started_at is None else row.started_at.isoformat(),
                "finished_at": now.isoformat(),
                "worker": row.worker,
            },
        )
        row.state = after
        if after is State.DUE:
            row.attempt, row.due_at = verdict.attempt, now + verdict.delay
        else:
            row.finished_at = now
        if after is not State.CANCELLED:
            row.failures = verdict.failures
        row.dlq_owed = verdict.dlq_owed and after is not State.CANCELLED
        row.dead_at = now if after in (State.DEAD, State.ABANDONED) else None
        row.claim_expires_at = None
        row.result = json.loads(end.result)
        return after

    def letter(self, row: LaunchRow) -> OwedLetter:
        history = [a for (launch, _), a in sorted(self.attempts.items(), key=_number)
                   if launch == row.id]  # fmt: skip
        assert row.finished_at is not None
        return OwedLetter(
            row.id, row.scheduled_at, row.job_id, self.jobs[row.job_id].name, row.tenant_id,
            row.partition, row.queue, row.attempt, row.failures, row.redrive_count, row.state,
            row.result or {}, row.finished_at, history,
        )  # fmt: skip

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        count = 0
        for launch, _, attempt in letters:
            row = self.launches.get(launch)
            if row is not None and row.dlq_owed and row.attempt == attempt:
                row.dlq_owed = False
                count += 1
        return count


@dataclass(frozen=True)
class ReaperEnd:
    """The end of a claim that expired."""

    id: LaunchId
    claim: Claim
    expires_at: datetime
    verdict: Verdict
    message: str
    outcome: str = "worker_lost"
    result: str = '{"outcome":"worker_lost"}'


def publication(row: LaunchRow, weight: int = 1) -> Publication:
    """What the relay needs of a launch."""
    return Publication(
        row.id, row.scheduled_at, row.job_id, row.tenant_id, row.partition, row.queue,
        row.priority, row.attempt, row.due_at, weight, row.trace,
    )  # fmt: skip


def _number(item: tuple[tuple[LaunchId, int], object]) -> int:
    return item[0][1]

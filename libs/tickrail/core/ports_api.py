"""What the API's use cases need of the database: rows and ports.

A `Transaction` belongs to one tenant; the store's row security shows nothing else to it, so no
method here takes a tenant. What is of another tenant is absent, by the same statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tickrail.core.calendars import Calendar
from tickrail.core.definition import Definition, Plan
from tickrail.core.ids import JobId, LaunchId, Partition, TenantId
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.ports_backfill import BackfillRecords
from tickrail.core.ports_letters import LetterRecords
from tickrail.core.ports_operations import OperationRecords
from tickrail.core.ports_quotas import QuotaRecords
from tickrail.core.records import LaunchRecord, Page, PageRequest
from tickrail.core.secrets import SecretRecords
from tickrail.core.states import State

T = TypeVar("T")


JobRef = JobId | str
"""A job as a caller names it: its id, or the name of a live job."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it stands: its present definition and where it is in its schedule.

    `definition` is the canonical document of `version`, accepted at `defined_at`; `plan` is the
    part of it that the tick reads. `last_slot_at` is up to where slots are decided on; `launched`
    counts launches towards max_launches; `skip_next` slots are to be left out by hand; `catch_up`
    bounds what is launched of the slots of a pause (`core.catch_up`); `awaits`: the next run is
    measured from the end of the open launch. `paused` of a deleted job is how it was.
    `silent_since`: the job expects successes, and the last one, or what it was counted from, was
    then; None as long as it keeps to that.
    """

    id: JobId
    name: str
    partition: Partition
    version: int
    state: JobState
    next_run_at: datetime | None
    last_slot_at: datetime | None
    launched: int
    plan: Mapping[str, Any]
    definition: Mapping[str, Any]
    defined_at: datetime
    paused: Mapping[str, Any] | None
    error: str | None
    created_at: datetime
    updated_at: datetime
    last_launch: LaunchRecord | None = None
    skip_next: int = 0
    catch_up: Mapping[str, Any] | None = None
    awaits: bool = False
    deleted_at: datetime | None = None
    silent_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobVersion:
    """A saved definition: the canonical document, when it was accepted, and from whom."""

    version: int
    definition: Mapping[str, Any]
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt of a launch. `outcome` None: it is under way."""

    attempt: int
    outcome: str | None
    certain: bool | None
    code: int | None
    message: str
    body: str
    worker: str | None
    claim: int | None
    started_at: datetime | None
    finished_at: datetime | None
    stale_result: Mapping[str, Any] | None = None
    """What its worker told when its claim was over already; it changed nothing."""


@dataclass(frozen=True, slots=True)
class ManualLaunch:
    """A launch to insert by hand.

    `payload` is used where `has_payload`, else the definition's. `trace`: its traceparent, where it
    is traced.
    """

    id: LaunchId
    scheduled_at: datetime
    origin: str
    state: State
    version: int
    plan: Plan
    priority: int
    payload: Any = None
    has_payload: bool = False
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedRun:
    """Slots that were not launched, one after the other: first, last, how many, and why."""

    reason: str
    first: datetime
    last: datetime
    count: int


class AuditEntry(NamedTuple):
    """What was done to what, and what that was before and after."""

    action: str
    subject: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


class OpenLaunches(NamedTuple):
    """Open launches of a job, and how many of them are held."""

    open: int
    held: int


@dataclass(frozen=True, slots=True)
class LaunchFilter:
    """Which launches: `since <= scheduled_at < until`; states as shown (`retrying` too)."""

    job: JobId | None = None
    states: Sequence[str] = ()
    tags: Sequence[tuple[str, str | None]] = ()
    queue: str | None = None
    origin: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class JobRecords(Protocol):
    """Jobs of the transaction's tenant."""

    def find(self, ref: JobRef, *, lock: bool = False) -> JobRecord | None:
        """The job, deleted ones by id only; `lock` holds its row until the transaction ends."""
        ...

    def find_deleted(self, name: str, *, lock: bool = False) -> JobRecord | None:
        """The deleted job of this name that was deleted last; `lock` as for `find`."""
        ...

    def insert(self, job: JobRecord, definition: Definition, actor: str) -> bool:
        """Insert a job with its first version and tags; False: a live job has the name."""
        ...

    def taken(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that live jobs have."""
        ...

    def insert_many(
        self, made: Sequence[tuple[JobRecord, Definition]], actor: str
    ) -> frozenset[JobId]:
        """Insert jobs with their first versions and tags; those whose names were free."""
        ...

    def replace(self, job: JobRecord, definition: Definition, actor: str) -> None:
        """Write a new version and what follows from it; the row is locked by the caller.

        Raises:
            NameTakenError: another live job has the name.
        """
        ...

    def move(self, job: JobRecord, resume_at: datetime | None = None) -> None:
        """Write state, pause, next run and what is to be left out; the caller holds the row."""
        ...

    def definition_of(self, job: JobId, version: int) -> Mapping[str, Any] | None:
        """The canonical document of an older version."""
        ...

    def version(self, job: JobId, version: int) -> JobVersion | None:
        """A saved definition."""
        ...

    def versions(self, job: JobId, before: int | None, limit: int) -> Sequence[JobVersion]:
        """Saved definitions, the newest first; those below `before`."""
        ...

    def page(self, where: JobFilter, page: PageRequest) -> Page[JobRecord]:
        """Jobs in order of created_at or name."""
        ...

    def waiting_at(self, at: datetime, most: int) -> int:
        """How many active jobs wait for this very instant, counted up to `most`.

        Asked for 1,000 or more, where far fewer wait, it may tell of a part of them.
        """
        ...

    def insert_skips(self, job: JobId, skips: Sequence[SkippedRun]) -> None:
        """Record slots that are not launched."""
        ...

    def skips(
        self, job: JobId, since: datetime | None, until: datetime | None, page: PageRequest
    ) -> Sequence[SkippedRun]:
        """Runs of skipped slots that touch the range: by first slot, or from the newest by last."""
        ...


class LaunchRecords(Protocol):
    """Launches of the transaction's tenant."""

    def find(self, launch: LaunchId, *, lock: bool = False) -> LaunchRecord | None:
        """The launch; `lock` holds its row until the transaction ends."""
        ...

    def payload_of(self, launch: LaunchId) -> tuple[bool, Any]:
        """Whether the launch has a payload of its own, and which."""
        ...

    def page(self, where: LaunchFilter, page: PageRequest) -> Page[LaunchRecord]:
        """Launches in order of scheduled_at."""
        ...

    def attempts(self, launch: LaunchRecord, after: int, limit: int) -> Sequence[AttemptRecord]:
        """Attempts that ended otherwise than by success, numbers above `after`."""
        ...

    def open_of(self, job: JobId) -> OpenLaunches:
        """How many launches of the job are open; its row is locked by the caller."""
        ...

    def insert(self, job: JobRecord, launch: ManualLaunch) -> LaunchRecord:
        """Insert a launch by hand, due now."""
        ...

    def cancel(self, launch: LaunchId) -> LaunchRecord | None:
        """Cancel an open launch, or ask it to stop where it runs; None: it is not open."""
        ...

    def cancel_open(self, jobs: Sequence[JobId], *, running: bool) -> int:
        """Cancel the open launches of jobs; running ones are asked to stop, or left alone.

        One call for all jobs of a transaction: launches are locked in the order of their ids, and
        a second call would begin at the first id anew, against those who hold higher ones.
        """
        ...

    def terminate_open(self, job: JobId) -> int:
        """End the open launches of a job and take their claims away."""
        ...


@dataclass(frozen=True, slots=True)
class CalendarRecord:
    """A calendar as it stands; `document` is the canonical one, its name aside."""

    name: str
    version: int
    document: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class CalendarJob:
    """A job that uses a calendar, as far as a change of the calendar is concerned with it.

    The fields are those of `JobRecord`; `awaits`: its next run is measured from the end of the
    open launch.
    """

    id: JobId
    name: str
    state: JobState
    plan: Mapping[str, Any]
    paused: bool
    next_run_at: datetime | None
    last_slot_at: datetime | None
    launched: int
    awaits: bool


class CalendarRecords(Protocol):
    """Calendars of the transaction's tenant, and which jobs use them.

    A job that is created or changed *shares* the rows of its calendars until it commits; a change
    of a calendar *holds* its row and then the rows of the jobs that use it. So neither sees half of
    the other. See `store/calendars.py` for why they never wait for each other in a circle.
    """

    def find(self, name: str, *, lock: bool = False) -> CalendarRecord | None:
        """The calendar; `lock` holds its row until the transaction ends."""
        ...

    def load(self, names: Sequence[str], *, lock: bool = False) -> Mapping[str, Calendar]:
        """Those of the calendars that there are, ready to be asked; `lock` shares their rows.

        Raises:
            InProgressError: one of them is being changed at this moment.
        """
        ...

    def page(self, after: str, limit: int) -> Sequence[CalendarRecord]:
        """Calendars by name, those after `after`."""
        ...

    def insert(self, record: CalendarRecord) -> bool:
        """Insert a calendar; False: there is one of its name."""
        ...

    def replace(self, record: CalendarRecord) -> None:
        """Write version and document; the row is held by the caller."""
        ...

    def delete(self, name: str) -> None:
        """Remove a calendar; the row is held by the caller."""
        ...

    def use(self, job: JobId, names: Sequence[str]) -> None:
        """Note which calendars a job names, in place of what was noted before."""
        ...

    def jobs_using(
        self, name: str, after: JobId | None, limit: int, *, lock: bool = False
    ) -> Sequence[CalendarJob]:
        """Live jobs that name a calendar, by id; `lock` holds their rows."""
        ...

    def move(self, jobs: Sequence[CalendarJob]) -> None:
        """Write state, next run and last slot of jobs; their rows are held by the caller."""
        ...


class Transaction(Protocol):
    """One transaction for one tenant. `now` is the database's."""

    @property
    def tenant(self) -> TenantId:
        """Whose data this transaction sees."""
        ...

    @property
    def now(self) -> datetime:
        """The database's clock at the beginning of the transaction."""
        ...

    @property
    def actor(self) -> str:
        """Who asks: `key:<id>`."""
        ...

    @property
    def jobs(self) -> JobRecords:
        """Jobs."""
        ...

    @property
    def launches(self) -> LaunchRecords:
        """Launches."""
        ...

    @property
    def calendars(self) -> CalendarRecords:
        """Calendars."""
        ...

    @property
    def backfills(self) -> BackfillRecords:
        """Backfills."""
        ...

    @property
    def operations(self) -> OperationRecords:
        """Operations."""
        ...

    @property
    def letters(self) -> LetterRecords:
        """Dead letters."""
        ...

    @property
    def secrets(self) -> SecretRecords:
        """Secrets."""
        ...

    @property
    def quotas(self) -> QuotaRecords:
        """Quotas."""
        ...

    def queue_kinds(self, queue: str) -> Sequence[str] | None:
        """The kinds of target that a queue serves; None: there is no such queue.

        It stays, and serves them, until the transaction ends.
        """
        ...

    def kafka_topics(self) -> Sequence[str]:
        """The topics that targets of this tenant may send to, as patterns (`orders.*`)."""
        ...

    def egress(self) -> Mapping[str, Any] | None:
        """What targets of this tenant may reach, as an operator set it; None: as everybody's."""
        ...

    def audit(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record who changed what."""
        ...

    def audit_many(self, entries: Sequence[AuditEntry]) -> None:
        """Record many changes at once."""
        ...

    def wake_schedulers(self) -> None:
        """At the commit, tell schedulers that there is something to do."""
        ...


class OperationQueue(Protocol):
    """Operations of all tenants that nobody works at."""

    def take(self, hold: timedelta) -> tuple[UUID, TenantId] | None:
        """Take the oldest one for a while: one whose process died is free when that has passed."""
        ...

    def tenant(
        self, tenant: TenantId, actor: str, request_id: str
    ) -> AbstractContextManager[Transaction]:
        """A transaction for one tenant, in somebody's name."""
        ...

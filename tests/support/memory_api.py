"""The API's transaction on the memory tables: as much of `core.ports_api` as jobs need.

One tenant; what a use case does not ask for is not here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.support.memory_letters import MemoryLetters
from tests.support.memory_quotas import MemoryQuotas
from tests.support.memory_tables import JobRow, LaunchRow, MemoryDatabase, SkipRow
from tests.support.stepped import TENANT

from tickrail.core.calendars import Calendar, parse_calendar
from tickrail.core.definition import Definition
from tickrail.core.ids import JobId, LaunchId, TenantId
from tickrail.core.job_filter import JobState
from tickrail.core.ports import CalendarText
from tickrail.core.ports_api import (
    CalendarJob,
    CalendarRecord,
    JobRecord,
    JobRef,
    LaunchFilter,
    ManualLaunch,
    OpenLaunches,
    SkippedRun,
)
from tickrail.core.records import LaunchRecord, Page, PageRequest
from tickrail.core.states import State


@dataclass
class Extra:
    """Columns of a job that the owner's memory tables do not have."""

    defined_at: datetime
    created_at: datetime
    paused: Mapping[str, Any] | None = None
    calendars: Sequence[str] = ()


class MemoryApi:
    """Opens transactions on the owner's tables."""

    def __init__(self, db: MemoryDatabase) -> None:
        self.db = db
        self.extra: dict[JobId, Extra] = {}
        self.calendar_times: dict[str, tuple[datetime, datetime]] = {}
        self.recorded: list[SkipRow] = []

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        with self.db.transaction("api") as now:
            yield MemoryTransaction(self, now)


class MemoryTransaction:
    """`core.ports_api.Transaction`."""

    def __init__(self, api: MemoryApi, now: datetime) -> None:
        self.api = api
        self.now = now
        self.actor = "key:test"
        self.tenant: TenantId = TENANT
        self.jobs = MemoryJobs(api, now)
        self.launches = MemoryLaunches(api, now)
        self.calendars = MemoryCalendars(api, now)
        self.quotas = MemoryQuotas(api.db, self.tenant, now)
        self.letters = MemoryLetters(api.db, launch_record, now)

    def queue_kinds(self, queue: str) -> Sequence[str]:
        del queue
        return ("noop",)

    def kafka_topics(self) -> Sequence[str]:
        return ()

    def egress(self) -> None:
        return None

    def audit(self, *_: object) -> None:
        pass

    def wake_schedulers(self) -> None:
        self.api.db.wakes += 1


@dataclass
class MemoryJobs:
    """`core.ports_api.JobRecords`."""

    api: MemoryApi
    now: datetime
    moved: list[JobId] = field(default_factory=list)

    def find(self, ref: JobRef, *, lock: bool = False) -> JobRecord | None:
        del lock
        rows = self.api.db.jobs
        if isinstance(ref, str):
            live = (r for r in rows.values() if r.name == ref and r.state != "deleted")
            row = next(live, None)
        else:
            row = rows.get(ref)
        return None if row is None else self._record(row)

    def find_deleted(self, name: str, *, lock: bool = False) -> JobRecord | None:
        del lock
        gone = [r for r in self.api.db.jobs.values() if r.name == name and r.state == "deleted"]
        return self._record(gone[-1]) if gone else None

    def _record(self, row: JobRow) -> JobRecord:
        extra = self.api.extra[row.id]
        state = JobState(row.state)
        paused = extra.paused if state is JobState.PAUSED else None
        return JobRecord(
            id=row.id, name=row.name, partition=row.partition, version=row.version, state=state,
            next_run_at=row.next_run_at, last_slot_at=row.last_slot_at, launched=row.launched,
            plan=json.loads(row.plan), definition=json.loads(row.definitions[row.version]),
            defined_at=extra.defined_at, paused=paused, error=row.error,
            created_at=extra.created_at, updated_at=extra.created_at, skip_next=row.skip_next,
            catch_up=row.catch_up, awaits=row.awaits,
        )  # fmt: skip

    def insert(self, job: JobRecord, definition: Definition, actor: str) -> bool:
        del definition, actor
        if self.find(job.name) is not None:
            return False
        self.api.extra[job.id] = Extra(job.defined_at, job.created_at, job.paused)
        self.api.db.jobs[job.id] = JobRow(
            job.id, TENANT, job.name, job.partition, json.dumps(job.plan),
            {1: json.dumps(job.definition)}, job.next_run_at,
        )  # fmt: skip
        self.move(job)
        return True

    def replace(self, job: JobRecord, definition: Definition, actor: str) -> None:
        del definition, actor
        row = self.api.db.jobs[job.id]
        row.name, row.version, row.plan = job.name, job.version, json.dumps(job.plan)
        row.definitions[job.version] = json.dumps(job.definition)
        row.error = job.error
        self.api.extra[job.id].defined_at = job.defined_at
        self._write(job)

    def move(self, job: JobRecord, resume_at: datetime | None = None) -> None:
        self.api.extra[job.id].paused = job.paused
        self._write(job)
        self.api.db.jobs[job.id].resume_at = resume_at

    def _write(self, job: JobRecord) -> None:
        row = self.api.db.jobs[job.id]
        row.state = job.state.value
        row.next_run_at, row.last_slot_at = job.next_run_at, job.last_slot_at
        row.skip_next, row.awaits = job.skip_next, job.awaits
        row.catch_up = None if job.catch_up is None else dict(job.catch_up)

    def insert_skips(self, job: JobId, skips: Sequence[SkippedRun]) -> None:
        for s in skips:
            row = SkipRow(job, s.reason, s.first, s.last, s.count)
            self.api.db.skips.setdefault((job, s.first, s.reason), row)

    def skips(
        self, job: JobId, since: datetime | None, until: datetime | None, page: PageRequest
    ) -> Sequence[SkippedRun]:
        found = [
            SkippedRun(s.reason, s.first, s.last, s.count)
            for s in self.api.db.skips.values()
            if s.job_id == job
            and (since is None or s.last >= since)
            and (until is None or s.first < until)
        ]
        found.sort(key=lambda s: s.first, reverse=not page.ascending)
        return found[: page.limit]


@dataclass
class MemoryLaunches:
    """`core.ports_api.LaunchRecords`."""

    api: MemoryApi
    now: datetime

    def page(self, where: LaunchFilter, page: PageRequest) -> Page[LaunchRecord]:
        found = [
            launch_record(row)
            for row in self.api.db.launches.values()
            if row.job_id == where.job
            and (where.origin is None or row.origin.split(":")[0] == where.origin.split(":")[0])
            and (where.since is None or row.scheduled_at >= where.since)
            and (where.until is None or row.scheduled_at < where.until)
        ]
        found.sort(key=lambda x: x.scheduled_at, reverse=not page.ascending)
        return Page(found[: page.limit])

    def open_of(self, job: JobId) -> OpenLaunches:
        rows = self.api.db.of_job(job)
        return OpenLaunches(len(rows), sum(r.state is State.HELD for r in rows))

    def insert(self, job: JobRecord, launch: ManualLaunch) -> LaunchRecord:
        row = LaunchRow(
            id=launch.id, scheduled_at=launch.scheduled_at, tenant_id=TENANT, job_id=job.id,
            job_version=launch.version, partition=job.partition, queue=launch.plan.queue,
            priority=launch.priority, state=launch.state, max_attempts=launch.plan.max_attempts,
            rerun=True, visibility=30.0, due_at=self.now, origin=launch.origin,
            concurrency_key=launch.plan.concurrency and launch.plan.concurrency.key,
            concurrency_limit=launch.plan.concurrency and launch.plan.concurrency.limit,
        )  # fmt: skip
        self.api.db.launches[launch.id] = row
        return launch_record(row)

    def find(self, launch: LaunchId, *, lock: bool = False) -> LaunchRecord | None:
        del lock
        row = self.api.db.launches.get(launch)
        return None if row is None else launch_record(row)

    def cancel_open(self, jobs: Sequence[JobId], *, running: bool) -> int:
        every = [r for job in jobs for r in self.api.db.of_job(job)]
        rows = [r for r in every if running or r.state is not State.RUNNING]
        for row in rows:
            self.api.db.cancel(row, self.now)
        return len(rows)

    def terminate_open(self, job: JobId) -> int:
        rows = self.api.db.of_job(job)
        for row in rows:
            row.state, row.finished_at, row.cancel_requested = State.CANCELLED, self.now, True
        return len(rows)


def launch_record(row: LaunchRow) -> LaunchRecord:
    """A launch as the API sees it."""
    return LaunchRecord(
        row.id, row.job_id, "", row.job_version, row.origin, row.scheduled_at, row.due_at,
        row.state, row.attempt, row.failures, row.max_attempts, row.queue, row.priority,
        row.worker, row.claim, row.cancel_requested, row.due_at, row.queued_at, row.started_at,
        row.finished_at, row.result, row.redrive_count,
    )  # fmt: skip


@dataclass
class MemoryCalendars:
    """`core.ports_api.CalendarRecords`."""

    api: MemoryApi
    now: datetime

    def find(self, name: str, *, lock: bool = False) -> CalendarRecord | None:
        del lock
        text = self.api.db.calendars.get((TENANT, name))
        if text is None:
            return None
        created, updated = self.api.calendar_times[name]
        return CalendarRecord(name, text.version, json.loads(text.document), created, updated)

    def load(self, names: Sequence[str], *, lock: bool = False) -> Mapping[str, Calendar]:
        del lock
        records = (self.find(name) for name in names)
        return {
            r.name: parse_calendar(r.document, name=r.name, version=r.version)
            for r in records
            if r is not None
        }

    def page(self, after: str, limit: int) -> Sequence[CalendarRecord]:
        names = sorted(name for _, name in self.api.db.calendars if name > after)
        records = (self.find(name) for name in names[:limit])
        return [r for r in records if r is not None]

    def delete(self, name: str) -> None:
        del self.api.db.calendars[TENANT, name]

    def insert(self, record: CalendarRecord) -> bool:
        if (TENANT, record.name) in self.api.db.calendars:
            return False
        self.replace(record)
        return True

    def replace(self, record: CalendarRecord) -> None:
        self.api.calendar_times[record.name] = record.created_at, record.updated_at
        text = CalendarText(record.version, json.dumps(record.document))
        self.api.db.calendars[TENANT, record.name] = text

    def use(self, job: JobId, names: Sequence[str]) -> None:
        self.api.extra[job].calendars = tuple(names)

    def jobs_using(
        self, name: str, after: JobId | None, limit: int, *, lock: bool = False
    ) -> Sequence[CalendarJob]:
        del lock
        found = [
            CalendarJob(
                r.id, r.name, JobState(r.state), json.loads(r.plan), r.state == "paused",
                r.next_run_at, r.last_slot_at, r.launched, r.awaits,
            )
            for r in sorted(self.api.db.jobs.values(), key=lambda r: r.id)
            if name in self.api.extra[r.id].calendars
            and r.state != "deleted"
            and (after is None or r.id > after)
        ]  # fmt: skip
        return found[:limit]

    def move(self, jobs: Sequence[CalendarJob]) -> None:
        for job in jobs:
            row = self.api.db.jobs[job.id]
            row.state, row.next_run_at = job.state.value, job.next_run_at
            row.last_slot_at = job.last_slot_at

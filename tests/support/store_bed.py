"""What the launch store's tests run on, in memory or on PostgreSQL, behind one face.

Time moves by `advance`: the FakeClock goes on, or every instant that PostgreSQL's tables wait for
goes back, which is the same to the statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

from psycopg import sql
from psycopg.types.json import Jsonb
from tests.support.clock import FakeClock
from tests.support.database import Database
from tests.support.memory_store import MemoryOwnerStore
from tests.support.memory_tables import JobRow, LaunchRow, MemoryDatabase, SkipRow
from tests.support.memory_worker import MemoryWorkerStore

from tickrail.core.clock import SystemClock
from tickrail.core.definition import parse_definition
from tickrail.core.ids import Claim, Epoch, JobId, LaunchId, Partition, TenantId, launch_id
from tickrail.core.limits import Limit, Scope
from tickrail.core.ports import CalendarText, OwnerStore
from tickrail.core.ports_worker import (
    Claimed,
    ClaimRequest,
    Finish,
    WorkerStore,
)
from tickrail.core.quotas import Quota
from tickrail.core.states import PHASE, State
from tickrail.core.verdict import Verdict
from tickrail.store.launch_quotas import LOCK
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.session import DatabaseSettings
from tickrail.store.worker import PostgresWorkerStore

P0, P1, P2, P3 = (Partition(p) for p in range(4))
EPOCH = Epoch(7)
OWNED = dict.fromkeys((P0, P1, P2, P3), EPOCH)
TENANT = TenantId(UUID(int=1))
_SHIFTED = {
    "launches": (
        "due_at", "start_before", "queued_at", "claim_expires_at", "started_at", "finished_at",
        "dead_at",
    ),
    "jobs": ("next_run_at", "resume_at", "failures_from"),
    "notices": ("minute", "created_at", "due_at"),
    "backfills": ("next_at",),
    "holds": ("due_at",),
    "limits": ("filled_at",),
}  # fmt: skip


class Bed(Protocol):
    """The tables, as a test makes and sees them. Every fence row holds EPOCH."""

    def owner(self) -> OwnerStore: ...

    def worker(self) -> WorkerStore: ...

    def now(self) -> datetime: ...

    def advance(self, seconds: float) -> None: ...

    def insert_job(self, row: JobRow) -> None: ...

    def insert_launch(self, row: LaunchRow) -> None: ...

    def job_row(self, job: JobId) -> JobRow: ...

    def row(self, launch: LaunchId) -> LaunchRow: ...

    def launches(self, job: JobId) -> Sequence[LaunchRow]: ...

    def change(self, launch: LaunchId, **columns: Any) -> None: ...

    def cancel(self, launch: LaunchId) -> None: ...

    def skips(self, job: JobId) -> Sequence[SkipRow]: ...

    def set_epoch(self, partition: Partition, epoch: int) -> None: ...

    def suspend(self, tenant: TenantId, *, delete: bool = False) -> None: ...

    def go_on(self, tenant: TenantId) -> None: ...

    def pause_queue(self, queue: str, *, paused: bool = True) -> None: ...

    def set_limit(self, scope: Scope, limit: Limit | None) -> None: ...

    def set_quota(self, tenant: TenantId, quota: Quota, amount: float | None) -> None: ...

    def used(self, tenant: TenantId) -> Mapping[Quota, int]: ...

    def busy_quotas(self, tenant: TenantId) -> AbstractContextManager[None]: ...

    def set_calendar(self, name: str, version: int, document: str) -> None: ...

    def change_job(self, job: JobId, **columns: Any) -> None: ...


def make_job(
    bed: Bed,
    *,
    due_in: float | None = None,
    partition: Partition = P0,
    tenant: TenantId = TENANT,
    state: str = "active",
    resume_in: float | None = None,
    **definition: Any,
) -> JobId:
    """A job whose next run is so many seconds from now (None: none)."""
    job, now = JobId(uuid4()), bed.now()
    document = {"name": f"job-{job.hex[:8]}", "target": {"noop": {}}, **definition}
    parsed = parse_definition(document, job=job, now=now)
    bed.insert_job(
        JobRow(
            id=job,
            tenant_id=tenant,
            name=parsed.name,
            partition=partition,
            plan=json.dumps(parsed.plan_document()),
            definitions={1: json.dumps(parsed.document())},
            next_run_at=None if due_in is None else now + timedelta(seconds=due_in),
            state=state,
            resume_at=None if resume_in is None else now + timedelta(seconds=resume_in),
        )
    )
    return job


def make_launch(
    bed: Bed, job: JobId | None = None, *, ago: int = 10, due_in: float = 0.0, **columns: Any
) -> LaunchId:
    """A launch of a slot `ago` seconds ago, `due` unless told otherwise."""
    job = job or make_job(bed)
    owner, now = bed.job_row(job), bed.now()
    slot = now.replace(microsecond=0) - timedelta(seconds=ago)
    launch = launch_id(job, slot, f"manual:{uuid4()}")
    row = LaunchRow(
        id=launch,
        scheduled_at=slot,
        tenant_id=owner.tenant_id,
        job_id=job,
        job_version=1,
        partition=owner.partition,
        queue="default",
        priority=1,
        state=State.DUE,
        max_attempts=5,
        rerun=True,
        visibility=30.0,
        due_at=now + timedelta(seconds=due_in),
        epoch=EPOCH,
    )
    bed.insert_launch(replace(row, **columns))
    return launch


def request_of(bed: Bed, launch: LaunchId, attempt: int = 1) -> ClaimRequest:
    """What a message asks for."""
    return ClaimRequest(launch, bed.row(launch).scheduled_at, attempt)


def claim_one(bed: Bed, store: WorkerStore, launch: LaunchId, attempt: int = 1) -> Claimed:
    """A claim, which must be granted."""
    answer = store.claim([request_of(bed, launch, attempt)], "w-1")
    assert answer.refused == {}
    (claimed,) = answer.granted
    return claimed


def verdict(
    c: Claimed, state: State, *, delay: float = 0.0, failures: int | None = None
) -> Verdict:
    """The verdict that such an end has."""
    again = state is State.DUE
    more = c.failures + (state is not State.SUCCEEDED)
    return Verdict(
        state,
        c.attempt + again,
        more if failures is None else failures,
        timedelta(seconds=delay),
        dlq_owed=state in (State.DEAD, State.ABANDONED),
    )


def end_of(c: Claimed, end: Verdict, *, outcome: str = "http_500", wakes: bool = False) -> Finish:
    """The end of an attempt."""
    return Finish(
        c.id, c.scheduled_at, c.claim, c.attempt, end, outcome, True, None, "it said no", "",
        json.dumps({"outcome": outcome}), wakes,
    )  # fmt: skip


class MemoryBed:
    """The tables in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.db = MemoryDatabase(self.clock)
        for partition in OWNED:
            self.set_epoch(partition, EPOCH)

    def owner(self) -> OwnerStore:
        return MemoryOwnerStore(self.db)

    def worker(self) -> WorkerStore:
        return MemoryWorkerStore(self.db)

    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def insert_job(self, row: JobRow) -> None:
        self.db.jobs[row.id] = row

    def insert_launch(self, row: LaunchRow) -> None:
        self.db.launches[row.id] = row

    def job_row(self, job: JobId) -> JobRow:
        return replace(self.db.jobs[job])

    def row(self, launch: LaunchId) -> LaunchRow:
        return replace(self.db.launches[launch])

    def launches(self, job: JobId) -> Sequence[LaunchRow]:
        found = [replace(x) for x in self.db.launches.values() if x.job_id == job]
        return sorted(found, key=lambda x: (x.scheduled_at, x.id))

    def change(self, launch: LaunchId, **columns: Any) -> None:
        self.db.launches[launch] = replace(self.db.launches[launch], **columns)

    def cancel(self, launch: LaunchId) -> None:
        self.db.cancel(self.db.launches[launch], self.now())

    def skips(self, job: JobId) -> Sequence[SkipRow]:
        return [x for x in self.db.skips.values() if x.job_id == job]

    def set_epoch(self, partition: Partition, epoch: int) -> None:
        self.db.fence.epochs[partition] = Epoch(epoch)

    def suspend(self, tenant: TenantId, *, delete: bool = False) -> None:
        self.db.suspended.add(tenant)
        self.db.deleted |= {tenant} if delete else set()

    def go_on(self, tenant: TenantId) -> None:
        self.db.suspended.discard(tenant)
        self.db.deleted.discard(tenant)
        self.db.went_on[tenant] = self.now()

    def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        (self.db.paused_queues.add if paused else self.db.paused_queues.discard)(queue)

    def set_limit(self, scope: Scope, limit: Limit | None) -> None:
        self.db.limits.pop(scope, None)
        if limit is not None:
            self.db.limits[scope] = limit

    def set_quota(self, tenant: TenantId, quota: Quota, amount: float | None) -> None:
        self.db.quotas.setdefault(tenant, {})[quota] = amount

    def used(self, tenant: TenantId) -> Mapping[Quota, int]:
        return {q: n for (t, q, _), (n, _) in self.db.quota_windows.items() if t == tenant}

    @contextmanager
    def busy_quotas(self, tenant: TenantId) -> Iterator[None]:
        self.db.locked_quotas.add(tenant)
        yield
        self.db.locked_quotas.discard(tenant)

    def set_calendar(self, name: str, version: int, document: str) -> None:
        self.db.calendars[TENANT, name] = CalendarText(version, document)

    def change_job(self, job: JobId, **columns: Any) -> None:
        self.db.jobs[job] = replace(self.db.jobs[job], **columns)


class PostgresBed:
    """The tables in a database of the test's own, seen by the superuser."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.settings = DatabaseSettings(database.engine_url, name="tests")
        self.conn = database.admin()
        self.conn.execute("set timezone to 'UTC'")
        self._stores: list[PostgresOwnerStore | PostgresWorkerStore] = []
        for partition in OWNED:
            self.set_epoch(partition, EPOCH)

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self.conn.close()

    def owner(self) -> PostgresOwnerStore:
        store = PostgresOwnerStore(self.settings, SystemClock())
        self._stores.append(store)
        return store

    def worker(self) -> PostgresWorkerStore:
        store = PostgresWorkerStore(self.settings, SystemClock())
        self._stores.append(store)
        return store

    def value(self, query: str, *parameters: object) -> Any:
        """The first column of the first row."""
        row = self.conn.execute(query.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    def now(self) -> datetime:
        found: datetime = self.value("select clock_timestamp()")
        return found

    def advance(self, seconds: float) -> None:
        by = timedelta(seconds=seconds)
        for table, columns in _SHIFTED.items():
            changes = sql.SQL(", ").join(
                sql.SQL("{0} = {0} - {1}").format(sql.Identifier(c), by) for c in columns
            )
            self.conn.execute(sql.SQL("update {} set {}").format(sql.Identifier(table), changes))

    def insert_job(self, row: JobRow) -> None:
        self.conn.execute(
            "insert into tenants (id, name) values (%s, %s) on conflict do nothing",
            [row.tenant_id, f"tenant-{row.tenant_id}"],
        )
        self.conn.execute(
            "insert into jobs (id, tenant_id, name, partition, version, state, next_run_at, plan,"
            " resume_at, last_slot_at, launched, skip_next, catch_up, awaits)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [row.id, row.tenant_id, row.name, row.partition, row.version, row.state,
             row.next_run_at, row.plan, row.resume_at, row.last_slot_at, row.launched,
             row.skip_next, None if row.catch_up is None else json.dumps(row.catch_up),
             row.awaits],
        )  # fmt: skip
        for version, definition in row.definitions.items():
            self.conn.execute(
                "insert into job_versions (job_id, version, tenant_id, definition)"
                " values (%s, %s, %s, %s)",
                [row.id, version, row.tenant_id, definition],
            )

    def insert_launch(self, row: LaunchRow) -> None:
        self.conn.execute("select make_day(%s)", [row.scheduled_at.date()])
        values = {f.name: _column(f.name, getattr(row, f.name)) for f in fields(LaunchRow)}
        values["phase"] = PHASE[row.state]
        self.conn.execute(
            sql.SQL("insert into launches ({}) values ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(sql.Placeholder() * len(values)),
            ),
            list(values.values()),
        )

    def job_row(self, job: JobId) -> JobRow:
        row = self.conn.execute(
            "select id, tenant_id, name, partition, plan::text, next_run_at, version, state,"
            " last_slot_at, launched, resume_at, error, skip_next, catch_up, awaits, paused,"
            " failures_from"
            " from jobs where id = %s",
            [job],
        ).fetchone()
        assert row is not None
        first, rest = row[:5], row[5:]
        return JobRow(*first, {}, *rest)  # type: ignore[arg-type]

    def row(self, launch: LaunchId) -> LaunchRow:
        (found,) = self._rows("id", launch)
        return found

    def launches(self, job: JobId) -> Sequence[LaunchRow]:
        return self._rows("job_id", job)

    def _rows(self, column: str, value: UUID) -> list[LaunchRow]:
        names = [f.name for f in fields(LaunchRow)]
        rows = self.conn.execute(
            sql.SQL("select {} from launches where {} = %s order by scheduled_at, id").format(
                sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(column)
            ),
            [value],
        ).fetchall()
        found = [LaunchRow(*row) for row in rows]  # type: ignore[arg-type]
        return [replace(x, state=State(x.state)) for x in found]

    def change(self, launch: LaunchId, **columns: Any) -> None:
        if "state" in columns:
            columns["phase"] = PHASE[columns["state"]]
        changes = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in columns)
        self.conn.execute(
            sql.SQL("update launches set {} where id = %s").format(changes),
            [*(_column(k, v) for k, v in columns.items()), launch],
        )

    def cancel(self, launch: LaunchId) -> None:
        self.conn.execute(
            "update launches set cancel_requested = true,"
            " state = case state when 'running' then state else 'cancelled' end,"
            " phase = case state when 'running' then phase else 3 end,"
            " finished_at = case state when 'running' then null else now() end"
            " where id = %s and phase < 3",
            [launch],
        )

    def skips(self, job: JobId) -> Sequence[SkipRow]:
        rows = self.conn.execute(
            "select job_id, reason, scheduled_at, last_at, count from skips where job_id = %s"
            " order by scheduled_at",
            [job],
        ).fetchall()
        return [SkipRow(*row) for row in rows]  # type: ignore[arg-type]

    def set_epoch(self, partition: Partition, epoch: int) -> None:
        self.conn.execute(
            "update partitions set epoch = %s where partition = %s", [epoch, partition]
        )

    def suspend(self, tenant: TenantId, *, delete: bool = False) -> None:
        state = "deleted" if delete else "suspended"
        self.conn.execute("update tenants set state = %s where id = %s", [state, tenant])

    def go_on(self, tenant: TenantId) -> None:
        self.conn.execute(
            "update tenants set state = 'active', resumed_at = now() where id = %s", [tenant]
        )

    def pause_queue(self, queue: str, *, paused: bool = True) -> None:
        self.conn.execute("update queues set paused = %s where name = %s", [paused, queue])

    def set_limit(self, scope: Scope, limit: Limit | None) -> None:
        self.conn.execute("delete from limits where (tenant_id, scope, name) = (%s, %s, %s)", scope)
        if limit is not None:
            rate = (None, None) if limit.rate is None else (limit.rate.count, limit.rate.seconds)
            self.conn.execute(
                "insert into limits (tenant_id, scope, name, paused, max_running, rate_count,"
                " rate_seconds) values (%s, %s, %s, %s, %s, %s, %s)",
                [*scope, limit.paused, limit.max_running, *rate],
            )

    def set_quota(self, tenant: TenantId, quota: Quota, amount: float | None) -> None:
        self.conn.execute(
            "insert into quotas (tenant_id, quota, amount) values (%s, %s, %s)"
            " on conflict (tenant_id, quota) do update set amount = excluded.amount",
            [tenant, quota.value, amount],
        )

    def used(self, tenant: TenantId) -> Mapping[Quota, int]:
        rows: Any = self.conn.execute(
            "select quota, used from quota_windows where tenant_id = %s", [tenant]
        ).fetchall()
        return {Quota(quota): used for quota, used in rows}

    @contextmanager
    def busy_quotas(self, tenant: TenantId) -> Iterator[None]:
        with self.database.admin() as other, other.transaction():
            other.execute(
                "select pg_advisory_xact_lock(%s, hashtext(%s::text))", [LOCK, str(tenant)]
            )
            yield

    def set_calendar(self, name: str, version: int, document: str) -> None:
        self.conn.execute(
            "insert into calendars (tenant_id, name, version, document) values (%s, %s, %s, %s)"
            " on conflict (tenant_id, name) do update"
            " set version = excluded.version, document = excluded.document",
            [TENANT, name, version, document],
        )

    def change_job(self, job: JobId, **columns: Any) -> None:
        values = {k: Jsonb(v) if k == "catch_up" else v for k, v in columns.items()}
        changes = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in values)
        self.conn.execute(
            sql.SQL("update jobs set {} where id = %s").format(changes), [*values.values(), job]
        )


def _column(name: str, value: Any) -> Any:
    if name in ("payload", "result") and value is not None:
        return Jsonb(value)
    return value.value if isinstance(value, State) else value


__all__ = ["EPOCH", "OWNED", "P0", "P1", "P2", "P3", "TENANT", "Claim"]

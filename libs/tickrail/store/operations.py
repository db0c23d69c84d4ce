"""The ports `OperationRecords` and `OperationQueue` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import func, insert, null, select, text, update

from tickrail.core.ids import JobId, TenantId
from tickrail.core.job_filter import JobFilter
from tickrail.core.ports_api import Transaction
from tickrail.core.ports_operations import NamedJob, OperationRecord, OperationState
from tickrail.store.jobs import job_conditions
from tickrail.store.tables import jobs, operations
from tickrail.store.tenancy import BaseTransaction, Caller, TenantTransaction

_O = operations.c
_J = jobs.c
_TAKE = text("select id, tenant_id from take_operation(:hold)")


class OperationTable:
    """Operations of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def find(self, operation: UUID, *, lock: bool = False) -> OperationRecord | None:
        """The operation; `lock` holds its row until the transaction ends."""
        statement = select(operations).where(_O.id == operation)
        if lock:
            statement = statement.with_for_update()
        row = self._tx.execute(statement).one_or_none()
        return None if row is None else _record(row)

    def insert(self, record: OperationRecord) -> None:
        """Insert a running one that nobody works at yet."""
        self._tx.execute(
            insert(operations).values(
                id=record.id,
                tenant_id=self._tx.tenant,
                kind=record.kind,
                state=record.state.value,
                request=dict(record.request),
                position=null(),
                total=record.total,
                created_by=record.created_by,
            )
        )

    def update(self, record: OperationRecord, hold: timedelta) -> None:
        """Write how far it is; nobody else takes it for so long. The row is locked."""
        position = record.position
        self._tx.execute(
            update(operations)
            .where(_O.id == record.id)
            .values(
                state=record.state.value,
                position=null() if position is None else position,
                total=record.total,
                done=record.done,
                changed=record.changed,
                failed=record.failed,
                errors=list(record.errors),
                updated_at=record.updated_at,
                finished_at=record.finished_at,
                held_until=func.clock_timestamp() + hold,
            )
        )

    def page(self, after: UUID | None, limit: int) -> Sequence[OperationRecord]:
        """Operations, the newest first, those older than `after`."""
        statement = select(operations).order_by(_O.id.desc()).limit(limit)
        if after is not None:
            statement = statement.where(_O.id < after)
        return [_record(row) for row in self._tx.execute(statement).all()]

    def jobs(
        self, where: JobFilter, until: datetime, after: JobId | None, limit: int
    ) -> Sequence[NamedJob]:
        """Jobs of a filter that were made up to an instant, by id, those after `after`."""
        statement = select(_J.id, _J.name).where(*job_conditions(where), _J.created_at <= until)
        if after is not None:
            statement = statement.where(_J.id > after)
        rows: Sequence[Any] = self._tx.execute(statement.order_by(_J.id).limit(limit)).all()
        return [NamedJob(JobId(r.id), r.name) for r in rows]

    def count_jobs(self, where: JobFilter, until: datetime) -> int:
        """How many jobs of a filter were made up to an instant."""
        count: int = self._tx.execute(
            select(func.count()).where(*job_conditions(where), _J.created_at <= until)
        ).scalar_one()
        return count


class _Database(Protocol):
    """What the queue needs of the API's database."""

    def tenant(self, tenant: TenantId, caller: Caller) -> AbstractContextManager[Transaction]: ...

    def installation(self) -> AbstractContextManager[BaseTransaction]: ...


class PostgresOperationQueue:
    """Operations of all tenants that nobody works at."""

    def __init__(self, database: _Database) -> None:
        self._database = database

    def take(self, hold: timedelta) -> tuple[UUID, TenantId] | None:
        """Take the oldest one for a while: one whose process died is free when that has passed."""
        with self._database.installation() as tx:
            row: Any = tx.execute(_TAKE, {"hold": hold}).one_or_none()
        return None if row is None else (row.id, TenantId(row.tenant_id))

    def tenant(
        self, tenant: TenantId, actor: str, request_id: str
    ) -> AbstractContextManager[Transaction]:
        """A transaction for one tenant, in somebody's name."""
        return self._database.tenant(tenant, Caller(actor, request_id))


def _record(row: Any) -> OperationRecord:  # noqa: ANN401 - a row of `operations`
    return OperationRecord(
        id=row.id,
        kind=row.kind,
        state=OperationState(row.state),
        request=row.request,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        total=row.total,
        done=row.done,
        changed=row.changed,
        failed=row.failed,
        errors=row.errors,
        position=row.position,
        finished_at=row.finished_at,
    )

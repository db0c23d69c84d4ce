"""The port `BackfillRecords` on PostgreSQL: backfills as the API sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, case, func, insert, null, or_, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY

from tickrail.core.backfill import (
    BackfillState,
)
from tickrail.core.ids import ORIGIN_BACKFILL, ORIGIN_SCHEDULE, JobId, Partition
from tickrail.core.policies import CatchUpOrder
from tickrail.core.ports_backfill import (
    BackfillRecord,
)
from tickrail.core.states import RETRYING, State, shown
from tickrail.store.backfill_pass import backfill_of
from tickrail.store.queries import load
from tickrail.store.schema import INSTANT
from tickrail.store.tables import backfills, jobs, launches
from tickrail.store.tenancy import TenantTransaction

_SQL = load("backfill")
_CANCEL = text(load("api")["cancel_backfill"])
_B = backfills.c
_L = launches.c


_COLUMNS = (
    _B.id,
    _B.from_at,
    _B.until_at,
    _B.newest_first,
    _B.existing,
    _B.max_count,
    _B.max_open,
    _B.per_minute,
    _B.total,
    _B.next_at,
    _B.cursor_at,
    _B.launched,
    _B.left_alone,
)
_SELECT = select(
    *_COLUMNS,
    _B.job_id,
    _B.partition,
    _B.state,
    _B.reason,
    _B.created_by,
    _B.created_at,
    _B.updated_at,
    _B.finished_at,
    jobs.c.name.label("job_name"),
).join(jobs, jobs.c.id == _B.job_id)


class BackfillTable:
    """Backfills of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def find(self, backfill: UUID) -> BackfillRecord | None:
        """The backfill, its launches counted."""
        row = self._tx.execute(_SELECT.where(_B.id == backfill)).one_or_none()
        return None if row is None else self._counted([_record(row)])[0]

    def insert(self, record: BackfillRecord) -> None:
        """Insert a running one."""
        b = record.backfill
        self._tx.execute(
            insert(backfills).values(
                id=b.id,
                tenant_id=self._tx.tenant,
                job_id=record.job,
                partition=record.partition,
                state=record.state.value,
                from_at=b.from_at,
                until_at=b.until_at,
                newest_first=b.order is CatchUpOrder.NEWEST,
                existing=b.existing.value,
                max_count=b.max_count,
                max_open=b.max_open,
                per_minute=b.per_minute,
                payload=record.payload if record.has_payload else null(),
                has_payload=record.has_payload,
                next_at=b.next_at,
                total=b.total,
                reason=record.reason,
                created_by=record.created_by,
            )
        )

    def page(self, job: JobId, after: UUID | None, limit: int) -> Sequence[BackfillRecord]:
        """The backfills of a job, the newest first, those older than `after`; launches counted."""
        statement = _SELECT.where(_B.job_id == job).order_by(_B.id.desc()).limit(limit)
        if after is not None:
            statement = statement.where(_B.id < after)
        return self._counted([_record(row) for row in self._tx.execute(statement).all()])

    def running(self, job: JobId) -> int:
        """How many of a job's are running."""
        count: int = self._tx.execute(
            select(func.count()).where(_B.job_id == job, _B.state == BackfillState.RUNNING)
        ).scalar_one()
        return count

    def cancel(self, record: BackfillRecord, *, running: bool) -> None:
        """Cancel it and its launches that have not started; running ones as asked."""
        b = record.backfill
        self._tx.execute(
            update(backfills)
            .where(_B.id == b.id, _B.state == BackfillState.RUNNING)
            .values(
                state=BackfillState.CANCELLED.value,
                updated_at=self._tx.now,
                finished_at=self._tx.now,
            )
        )
        self._tx.execute(_CANCEL, {"job": record.job, "origin": b.origin, "running": running})

    def launched(
        self, job: JobId, slots: Sequence[datetime]
    ) -> Mapping[datetime, tuple[UUID, str]]:
        """The latest launch of each of these slots that has one: its id and state."""
        if not slots:
            return {}
        rows: Sequence[Any] = self._tx.execute(
            select(_L.scheduled_at, _L.id, _L.state, _L.failures)
            .where(
                _L.job_id == job,
                _L.scheduled_at == func.any(bindparam(None, list(slots), ARRAY(INSTANT))),
                or_(_L.origin == ORIGIN_SCHEDULE, _L.origin.op("^@")(ORIGIN_BACKFILL)),
            )
            .order_by(_L.scheduled_at, _L.created_at)
        ).all()
        return {r.scheduled_at: (r.id, shown(State(r.state), r.failures)) for r in rows}

    def _counted(self, found: Sequence[BackfillRecord]) -> list[BackfillRecord]:
        if not found:
            return []
        origins = {r.backfill.origin: r for r in found}
        failed = and_(_L.state == State.DUE, _L.failures > 0)
        state = case((failed, RETRYING), else_=_L.state)
        rows: Sequence[Any] = self._tx.execute(
            select(_L.origin, state.label("state"), func.count().label("n"))
            .where(
                _L.job_id == found[0].job,
                _L.origin.in_(list(origins)),
                _L.scheduled_at >= min(r.backfill.from_at for r in found).replace(microsecond=0),
                _L.scheduled_at < max(r.backfill.until_at for r in found),
            )
            .group_by(_L.origin, text("2"))
        ).all()
        counts: dict[str, dict[str, int]] = {origin: {} for origin in origins}
        for row in rows:
            counts[row.origin][row.state] = row.n
        return [replace(r, launches=counts[r.backfill.origin]) for r in found]


def _record(row: Any) -> BackfillRecord:  # noqa: ANN401 - a row of `_SELECT`
    order = CatchUpOrder.NEWEST if row.newest_first else CatchUpOrder.OLDEST
    return BackfillRecord(
        backfill=backfill_of([*row[:3], order, *row[4 : len(_COLUMNS)]]),
        job=JobId(row.job_id),
        job_name=row.job_name,
        partition=Partition(row.partition),
        state=BackfillState(row.state),
        reason=row.reason,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
    )

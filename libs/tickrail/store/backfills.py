"""Backfills on PostgreSQL: the owner's pass (`BackfillStore`) and the API's `BackfillRecords`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from psycopg import errors as pg
from sqlalchemy import and_, bindparam, case, func, insert, null, or_, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY

from tickrail.core.backfill import (
    SLOTS_AT_ONCE,
    Backfill,
    BackfillOrder,
    BackfillSituation,
    BackfillState,
    Existing,
)
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import ORIGIN_BACKFILL, ORIGIN_SCHEDULE, JobId, Partition
from tickrail.core.ports import DueJob, Owned, Publication
from tickrail.core.ports_backfill import (
    Backfilled,
    BackfillPlanner,
    BackfillRecord,
    DueBackfill,
    Filled,
    Walk,
)
from tickrail.core.states import RETRYING, State, shown
from tickrail.store.calendar_reader import CalendarReader
from tickrail.store.days import DayKeeper
from tickrail.store.fence import hold_fence
from tickrail.store.queries import load
from tickrail.store.session import Cursor, Session
from tickrail.store.tables import INSTANT, backfills, jobs, launches
from tickrail.store.tenancy import TenantTransaction

_SQL = load("backfill")
_CANCEL = text(load("api")["cancel_backfill"])
_B = backfills.c
_L = launches.c


class BackfillPass:
    """The part of the owner's store that carries on backfills."""

    _session: Session
    _days: DayKeeper
    _calendars: CalendarReader
    _history: timedelta
    _since: datetime

    def _no_partition(self, e: pg.CheckViolation) -> UnavailableError:
        raise NotImplementedError

    def backfill(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
        """Carry on up to `limit` running backfills, in one transaction.

        A crash before the commit leaves everything as it was; after it, the launches are `due`
        and the cursor is behind them, so none is made twice.
        """
        keys = {"partitions": list(owned), "limit": limit}
        try:
            with self._session.transaction() as cursor:
                rows = cast("Any", cursor.execute(_SQL["due"], keys).fetchall())
                now = _now(cursor)
                if not rows:
                    return Backfilled(now)
                held, fence = hold_fence(cursor, owned, (row[3] for row in rows))
                due = _hold(cursor, {row[0]: row[1:] for row in rows if row[3] in held})
                known = self._calendars.read(cursor, [d.job for d in due], planner)
                share = max(1, SLOTS_AT_ONCE // max(1, len(due)))
                walks = [planner.walk(d, known, now, share) for d in due]
                oldest = now - self._history
                filled = _decide(cursor, walks, planner, now, oldest)
                inserted = self._insert(cursor, owned, filled)
                # What waits for open launches is written only where others would wait behind it.
                _move(cursor, [f for f in filled if f.step.moved or len(rows) >= limit])
        except pg.CheckViolation as e:
            raise self._no_partition(e) from e
        self._days.commit()
        if inserted:
            self._since = min(self._since, *(p.scheduled_at for p in inserted))
        return Backfilled(
            now=now,
            inserted=inserted,
            left_alone=sum(f.step.left_alone for f in filled),
            ended=sum(f.step.state is not BackfillState.RUNNING for f in filled),
            more=any(f.step.more for f in filled),
            fence=fence,
        )

    def _insert(self, cursor: Cursor, owned: Owned, filled: Sequence[Filled]) -> list[Publication]:
        pairs = [(f.due, n) for f in filled for n in f.launches]
        if not pairs:
            return []
        self._days.ensure(cursor, [n.scheduled_at for _, n in pairs])
        rows = cursor.execute(
            _SQL["insert_launches"],
            {
                "id": [n.id for _, n in pairs],
                "scheduled_at": [n.scheduled_at for _, n in pairs],
                "backfill": [d.backfill.id for d, _ in pairs],
                "job_version": [d.job.version for d, _ in pairs],
                "queue": [n.queue for _, n in pairs],
                "priority": [n.priority for _, n in pairs],
                "max_attempts": [n.max_attempts for _, n in pairs],
                "rerun": [n.rerun for _, n in pairs],
                "visibility": [n.visibility for _, n in pairs],
                "due_at": [n.due_at for _, n in pairs],
                "start_before": [n.start_before for _, n in pairs],
                "epoch": [owned[d.job.partition] for d, _ in pairs],
            },
        ).fetchall()
        fresh = {row[0] for row in rows}
        return [
            Publication(
                n.id, n.scheduled_at, d.job.id, d.job.tenant, d.job.partition, n.queue, n.priority,
                1, n.due_at,
            )
            for d, n in pairs
            if n.id in fresh
        ]  # fmt: skip


def _hold(cursor: Cursor, found: Mapping[UUID, tuple[Any, ...]]) -> list[DueBackfill]:
    """The backfills as they are now that their jobs are locked; some may have ended meanwhile."""
    rows = cursor.execute(_SQL["hold"], {"ids": list(found)}).fetchall()
    held = []
    for row in cast("Any", rows):
        job = found[row[0]]
        held.append(DueBackfill(_backfill(row), DueJob(*job[:8]), job[8], job[9]))
    return held


def _backfill(row: Sequence[Any]) -> Backfill:
    b = Backfill(*row)
    return replace(b, order=BackfillOrder(b.order), existing=Existing(b.existing))


def _decide(
    cursor: Cursor,
    walks: Sequence[Walk],
    planner: BackfillPlanner,
    now: datetime,
    oldest: datetime,
) -> list[Filled]:
    counts: dict[JobId, Counter[str]] = {}
    asked = {"jobs": [w.due.job.id for w in walks]}
    for job, origin, count in cast("Any", cursor.execute(_SQL["open_by_origin"], asked).fetchall()):
        counts.setdefault(job, Counter())[origin] = count
    pairs = [
        (w.due.job.id, slot.replace(microsecond=0))
        for w in walks
        if w.due.backfill.existing is Existing.LEAVE
        for slot in w.upcoming.slots
    ]
    there: dict[JobId, set[datetime]] = {}
    if pairs:
        keys = {"job_id": [j for j, _ in pairs], "at": [at for _, at in pairs]}
        for job, at in cast("Any", cursor.execute(_SQL["launched_slots"], keys).fetchall()):
            there.setdefault(job, set()).add(at)
    filled = []
    for walk in walks:
        b, job = walk.due.backfill, walk.due.job.id
        opened = counts.setdefault(job, Counter())
        situation = BackfillSituation(
            opened.total(), opened[b.origin], there.get(job, frozenset()), oldest
        )
        one = planner.fill(walk, situation, now)
        # The next backfill of the same job sees what this one launches.
        opened[b.origin] += len(one.launches)
        there.setdefault(job, set()).update(n.scheduled_at for n in one.launches)
        filled.append(one)
    return filled


def _move(cursor: Cursor, filled: Sequence[Filled]) -> None:
    if not filled:
        return
    cursor.execute(
        _SQL["move"],
        {
            "id": [f.due.backfill.id for f in filled],
            "state": [f.step.state.value for f in filled],
            "total": [f.step.total for f in filled],
            "next_at": [f.step.next_at for f in filled],
            "cursor_at": [f.step.cursor_at for f in filled],
            "launched": [len(f.step.launches) for f in filled],
            "left_alone": [f.step.left_alone for f in filled],
        },
    )


def _now(cursor: Cursor) -> datetime:
    row = cursor.execute("select now()").fetchone()
    return cast("datetime", row[0] if row else None)


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
                newest_first=b.order is BackfillOrder.NEWEST,
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
    order = BackfillOrder.NEWEST if row.newest_first else BackfillOrder.OLDEST
    return BackfillRecord(
        backfill=_backfill([*row[:3], order, *row[4 : len(_COLUMNS)]]),
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

"""Backfills as the owner of their jobs' partitions carries them on.

Without SQLAlchemy, which the owner's process would load for this alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from psycopg import errors as pg

from tickrail.core.backfill import (
    SLOTS_AT_ONCE,
    Backfill,
    BackfillSituation,
    BackfillState,
    Existing,
)
from tickrail.core.clock import Clock
from tickrail.core.ids import JobId, TenantId
from tickrail.core.policies import CatchUpOrder
from tickrail.core.ports import DueJob, Owned, Publication
from tickrail.core.ports_backfill import (
    Backfilled,
    BackfillPlanner,
    DueBackfill,
    Filled,
    Walk,
)
from tickrail.store.calendar_reader import CalendarReader
from tickrail.store.days import DayKeeper
from tickrail.store.fence import hold_fence
from tickrail.store.launch_quotas import count_launches, hold_quotas
from tickrail.store.queries import load
from tickrail.store.session import Cursor, Session

_SQL = load("backfill")


class BackfillPass:
    """Carries on backfills, on the owner's one connection and with what its store knows."""

    def __init__(
        self,
        session: Session,
        clock: Clock,
        days: DayKeeper,
        calendars: CalendarReader,
        history: timedelta,
    ) -> None:
        self._session = session
        self._clock = clock
        self._days = days
        self._calendars = calendars
        self._history = history

    def run(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
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
                crowded = len(rows) >= limit
                held, fence = hold_fence(cursor, owned, (row[3] for row in rows))
                quotas = hold_quotas(cursor, {row[2] for row in rows if row[3] in held}, now)
                rows = [row for row in rows if row[2] not in quotas.busy]
                due = _hold(cursor, {row[0]: row[1:] for row in rows if row[3] in held})
                known = self._calendars.read(cursor, [d.job for d in due], planner)
                share = max(1, SLOTS_AT_ONCE // max(1, len(due)))
                walks = [planner.walk(d, known, now, share) for d in due]
                oldest = now - self._history
                filled = _decide(cursor, walks, planner, now, oldest, quotas.rooms)
                inserted = self._insert(cursor, owned, filled)
                made = Counter(p.tenant for p in inserted)
                reached = count_launches(cursor, self._clock, quotas, made)
                # What waits for open launches is written only where others would wait behind it.
                _move(cursor, [f for f in filled if f.step.moved or crowded])
        except pg.CheckViolation as e:
            raise self._days.missing(e) from e
        self._days.commit()
        return Backfilled(
            now=now,
            inserted=inserted,
            left_alone=sum(f.step.left_alone for f in filled),
            ended=sum(f.step.state is not BackfillState.RUNNING for f in filled),
            more=any(f.step.more for f in filled),
            fence=fence,
            reached=reached,
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
                "concurrency_key": [n.concurrency and n.concurrency.key for _, n in pairs],
                "concurrency_limit": [n.concurrency and n.concurrency.limit for _, n in pairs],
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
        held.append(DueBackfill(backfill_of(row), DueJob(*job[:8]), job[8], job[9]))
    return held


def backfill_of(row: Sequence[Any]) -> Backfill:
    """A row of backfills as a value."""
    b = Backfill(*row)
    return replace(b, order=CatchUpOrder(b.order), existing=Existing(b.existing))


def _decide(
    cursor: Cursor,
    walks: Sequence[Walk],
    planner: BackfillPlanner,
    now: datetime,
    oldest: datetime,
    rooms: dict[TenantId, int],
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
            opened.total(),
            opened[b.origin],
            there.get(job, frozenset()),
            oldest,
            rooms.get(walk.due.job.tenant),
        )
        one = planner.fill(walk, situation, now)
        if situation.room is not None:
            rooms[walk.due.job.tenant] = situation.room - len(one.launches)
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

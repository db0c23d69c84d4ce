"""The owner's pass over backfills, in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from tests.support.memory_quotas import count_launches, rooms_of
from tests.support.memory_tables import (
    HISTORY,
    BackfillRow,
    JobRow,
    LaunchRow,
    MemoryDatabase,
    publication,
)

from tickrail.core.backfill import SLOTS_AT_ONCE, BackfillSituation, BackfillState
from tickrail.core.ids import ORIGIN_BACKFILL, ORIGIN_SCHEDULE, TenantId
from tickrail.core.ports import DueJob, NewLaunch, Owned
from tickrail.core.ports_backfill import Backfilled, BackfillPlanner, DueBackfill, Filled


class MemoryBackfillPass:
    """`core.ports_backfill.BackfillStore`."""

    _db: MemoryDatabase

    def backfill(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
        db = self._db
        with db.transaction("backfill") as now:
            rows = sorted(
                (
                    row
                    for row in db.backfills.values()
                    if row.state == "running"
                    and row.backfill.next_at <= now
                    and db.jobs[row.job_id].partition in owned
                    and db.jobs[row.job_id].tenant_id not in db.suspended
                    and row.job_id not in db.locked_jobs
                ),
                key=lambda row: row.backfill.next_at,
            )[:limit]
            held, fence = db.hold_fence(owned, (db.jobs[r.job_id].partition for r in rows))
            mine = [
                r
                for r in rows
                if db.jobs[r.job_id].partition in held
                and db.jobs[r.job_id].tenant_id not in db.locked_quotas
            ]
            rooms = rooms_of(db, {db.jobs[r.job_id].tenant_id for r in mine}, now)
            made: Counter[TenantId] = Counter()
            due = [_due(db.jobs[r.job_id], r, now) for r in mine]
            names = {(d.job.tenant, n) for d in due for n in planner.calendars(d.job)}
            known = {key: text for key, text in db.calendars.items() if key in names}
            share = max(1, SLOTS_AT_ONCE // max(1, len(due)))
            walks = [planner.walk(d, known, now, share) for d in due]
            inserted = []
            filled: list[Filled] = []
            for row, walk in zip(mine, walks, strict=True):
                tenant = walk.due.job.tenant
                situation = replace(self._situation(row, now), room=rooms.get(tenant))
                one = planner.fill(walk, situation, now)
                if tenant in rooms:
                    rooms[tenant] -= len(one.launches)
                filled.append(one)
                for n in one.launches:
                    if n.id not in db.launches:
                        db.launches[n.id] = _launch(walk.due, n, row, owned)
                        inserted.append(publication(db.launches[n.id]))
                        made[tenant] += 1
                if one.step.moved or len(rows) >= limit:
                    _move(row, one)
            return Backfilled(
                now=now,
                inserted=inserted,
                left_alone=sum(f.step.left_alone for f in filled),
                ended=sum(f.step.state is not BackfillState.RUNNING for f in filled),
                more=any(f.step.more for f in filled),
                fence=fence,
                reached=count_launches(db, made, now),
            )

    def _situation(self, row: BackfillRow, now: datetime) -> BackfillSituation:
        opened = Counter(x.origin for x in self._db.of_job(row.job_id))
        there = {
            x.scheduled_at
            for x in self._db.launches.values()
            if x.job_id == row.job_id
            and (x.origin == ORIGIN_SCHEDULE or x.origin.startswith(ORIGIN_BACKFILL))
        }
        return BackfillSituation(opened.total(), opened[row.backfill.origin], there, now - HISTORY)


def _due(job: JobRow, row: BackfillRow, now: datetime) -> DueBackfill:
    waits = job.next_run_at if job.state == "active" else None
    due_at = job.next_run_at or now
    return DueBackfill(
        row.backfill,
        DueJob(
            job.id, job.tenant_id, job.partition, job.version, due_at.astimezone(UTC),
            job.last_slot_at, job.launched, job.plan,
        ),
        job.state,
        waits,
    )  # fmt: skip


def _launch(due: DueBackfill, n: NewLaunch, row: BackfillRow, owned: Owned) -> LaunchRow:
    return LaunchRow(
        id=n.id,
        scheduled_at=n.scheduled_at,
        tenant_id=due.job.tenant,
        job_id=due.job.id,
        job_version=due.job.version,
        partition=due.job.partition,
        queue=n.queue,
        priority=n.priority,
        state=n.state,
        max_attempts=n.max_attempts,
        rerun=n.rerun,
        visibility=n.visibility,
        due_at=n.due_at,
        start_before=n.start_before,
        epoch=owned[due.job.partition],
        origin=row.backfill.origin,
        payload=row.payload if row.has_payload else None,
        concurrency_key=n.concurrency and n.concurrency.key,
        concurrency_limit=n.concurrency and n.concurrency.limit,
    )


def _move(row: BackfillRow, one: Filled) -> None:
    b, s = row.backfill, one.step
    row.state = s.state.value
    row.backfill = replace(
        b,
        total=s.total,
        next_at=s.next_at,
        cursor_at=s.cursor_at,
        launched=b.launched + len(s.launches),
        left_alone=b.left_alone + s.left_alone,
    )

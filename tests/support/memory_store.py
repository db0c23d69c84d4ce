"""The database of the loops in memory: an `OwnerStore`."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from tests.support.memory_backfills import MemoryBackfillPass
from tests.support.memory_limits import leave, loads, pauses, rouse
from tests.support.memory_notices import busy, follow_up, go_on
from tests.support.memory_quotas import count_launches, rooms_of
from tests.support.memory_tables import (
    HISTORY,
    JobRow,
    LaunchRow,
    MemoryDatabase,
    ReaperEnd,
    SkipRow,
    publication,
)

from tickrail.core.ids import ORIGIN_BACKFILL, ORIGIN_SCHEDULE, Claim, JobId, LaunchId, TenantId
from tickrail.core.ports import (
    Backlog,
    Calendars,
    DueJob,
    EndedJob,
    FenceReport,
    Lane,
    LostClaim,
    Marked,
    NewLaunch,
    OpenCount,
    OwedLetter,
    Owned,
    Place,
    Planned,
    Planner,
    Publication,
    Swept,
    Ticked,
    in_turns,
)
from tickrail.core.states import OPEN, State
from tickrail.core.verdict import Verdict

_EPOCH = datetime.min.replace(tzinfo=UTC)
WAITING = frozenset({State.DUE, State.QUEUED})
BUSY = frozenset({State.DUE, State.QUEUED, State.RUNNING})


class MemoryOwnerStore(MemoryBackfillPass):
    """`core.ports.OwnerStore`."""

    def __init__(self, db: MemoryDatabase) -> None:
        self._db = db
        self._known_days: set[date] = set()

    # --- the tick -------------------------------------------------------------------------------

    def tick(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        db = self._db
        with db.transaction("tick") as now:
            due = [
                j
                for j in self._active(owned)
                if j.next_run_at is not None
                and j.next_run_at <= now
                and j.tenant_id not in db.suspended
                and j.id not in db.locked_jobs
            ]
            due.sort(key=lambda j: (j.next_run_at or now, j.id))
            rows = (due if len(due) < limit else _crowd(due, limit))[:limit]
            jobs = [_due_job(j)._replace(resume_at=db.suspended_until(j)) for j in rows]
            if not jobs:
                return Ticked(now=now, next_due=self._next_due(owned, now))
            held, fence = db.hold_fence(owned, (j.partition for j in jobs))
            mine = [j for j in jobs if j.partition in held and j.tenant not in db.locked_quotas]
            opened = {j.id: self._open_count(j.id) for j in mine if planner.needs_open(j)}
            known = self._calendars(mine, planner)
            rooms = rooms_of(db, {j.tenant for j in mine}, now)
            planned = planner.plan(mine, opened, known, now, now - HISTORY, rooms)
            inserted, existed, made = self._write(owned, planned, now)
            skipped: Counter[str] = Counter()
            for p in planned:
                for s in p.decision.skipped:
                    skipped[s.reason.value] += s.count
            full = len(jobs) >= limit or len(planned) < len(mine)
            return Ticked(
                now=now,
                jobs=len(planned),
                inserted=inserted,
                existed=existed,
                skipped=skipped,
                errors=sum(p.error is not None for p in planned),
                full=full,
                next_due=now if full else self._next_due(owned, now),
                fence=fence,
                reached=count_launches(db, made, now),
            )

    def resume(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        db = self._db
        with db.transaction("resume") as now:
            found = [
                j
                for j in sorted(db.jobs.values(), key=lambda j: j.id)
                if j.partition in owned
                and j.state == "paused"
                and j.resume_at is not None
                and j.resume_at <= now
                and j.id not in db.locked_jobs
            ][:limit]
            jobs = [_due_job(j) for j in found]
            held, fence = db.hold_fence(owned, (j.partition for j in jobs))
            mine = [j for j in jobs if j.partition in held]
            known = self._calendars(mine, planner)
            self._write(owned, planner.resume(mine, known, now, now - HISTORY), now)
            return Ticked(now=now, jobs=len(mine), fence=fence, full=len(jobs) >= limit)

    def complete(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        db = self._db
        with db.transaction("complete") as now:
            found = [
                j
                for j in sorted(self._active(owned), key=lambda j: j.id)
                if j.awaits
                and j.id not in db.locked_jobs
                and all(x.origin.startswith(ORIGIN_BACKFILL) for x in db.of_job(j.id))
            ][:limit]
            held, fence = db.hold_fence(owned, (j.partition for j in found))
            ended = [EndedJob(_due_job(j), self._ended(j, now)) for j in found]
            mine = [e for e in ended if e.job.partition in held]
            known = self._calendars([e.job for e in mine], planner)
            self._write(owned, planner.complete(mine, known, now), now)
            return Ticked(now=now, jobs=len(mine), fence=fence, full=len(found) >= limit)

    def _ended(self, job: JobRow, now: datetime) -> datetime:
        ends = [
            (x.scheduled_at, x.finished_at)
            for x in self._db.launches.values()
            if x.job_id == job.id and x.finished_at and not x.origin.startswith(ORIGIN_BACKFILL)
        ]
        return max(ends)[1] if ends else job.last_slot_at or now

    def _open_count(self, job: JobId) -> OpenCount:
        found = self._db.of_job(job)
        held = [x for x in found if x.state is State.HELD]
        filled = [x for x in found if x.origin.startswith(ORIGIN_BACKFILL)]
        return OpenCount(len(found), len(held), len(filled))

    def _calendars(self, jobs: Sequence[DueJob], planner: Planner) -> Calendars:
        wanted = {(j.tenant, name) for j in jobs for name in planner.calendars(j)}
        return {key: text for key, text in self._db.calendars.items() if key in wanted}

    def _active(self, owned: Owned) -> list[JobRow]:
        return [j for j in self._db.jobs.values() if j.partition in owned and j.state == "active"]

    def _next_due(self, owned: Owned, now: datetime) -> datetime | None:
        waits = [
            j.next_run_at for j in self._active(owned) if j.next_run_at and j.next_run_at > now
        ]
        return min((at for at in waits if at > now), default=None)

    def _write(
        self, owned: Owned, planned: Sequence[Planned], now: datetime
    ) -> tuple[list[Publication], int, Counter[TenantId]]:
        db = self._db
        inserted: list[Publication] = []
        made: Counter[TenantId] = Counter()
        existed = 0
        for p in planned:
            for row in db.of_job(p.job.id):
                if p.decision.terminate_open:
                    row.state, row.finished_at = State.CANCELLED, now
                    row.cancel_requested, row.result = True, {"outcome": "terminated"}
                elif p.decision.cancel_open:
                    db.cancel(row, now)
        for p in planned:
            for n in p.launches:
                if n.id in db.launches:
                    existed += 1
                    continue
                db.launches[n.id] = _launch_row(p.job, n, owned)
                made[p.job.tenant] += 1
                if n.state is State.DUE:
                    inserted.append(publication(db.launches[n.id]))
            for s in p.decision.skipped:
                first, last = max(s.first, now - HISTORY), max(s.last, now - HISTORY)
                row_of_skip = SkipRow(p.job.id, s.reason.value, first, last, s.count)
                db.skips.setdefault((p.job.id, first, s.reason.value), row_of_skip)
            job = db.jobs[p.job.id]
            job.next_run_at = p.decision.wake_at
            job.last_slot_at = p.decision.last_slot or job.last_slot_at
            job.launched += len(p.launches)
            job.error = p.error
            go_on(job, now)
            job.awaits = p.decision.awaits
            job.skip_next -= p.decision.by_hand
            job.catch_up = None if p.error is None else job.catch_up
            over = p.decision.wake_at is None and not job.awaits
            job.state = "finished" if over else "active"
        return inserted, existed, made

    # --- the relay ------------------------------------------------------------------------------

    def queued(self, owned: Owned) -> Mapping[Place, int]:
        with self._db.transaction("queued"):
            return self._queued(owned)

    def _queued(self, owned: Owned) -> dict[Place, int]:
        return dict(
            Counter(
                (Lane(x.queue, x.priority), x.partition)
                for x in self._db.launches.values()
                if x.partition in owned and x.state is State.QUEUED
            )
        )

    def backlog(
        self, owned: Owned, limit: int, others: Collection[tuple[TenantId, str]] = ()
    ) -> Backlog:
        db = self._db
        with db.transaction("backlog") as now:
            due = sorted(
                (
                    x
                    for x in db.launches.values()
                    if x.partition in owned
                    and x.state is State.DUE
                    and x.due_at <= now
                    and x.tenant_id not in db.suspended
                    and x.queue not in db.paused_queues
                    and not pauses(db, x.tenant_id, x.queue)
                ),
                key=lambda x: (x.partition, x.queue, x.tenant_id, x.due_at),
            )
            taken: Counter[tuple[int, str, int, UUID]] = Counter()
            found = []
            for x in due:
                key = (x.partition, x.queue, x.priority, x.tenant_id)
                if taken[key] < limit:
                    taken[key] += 1
                    found.append(publication(x, db.weights.get(x.tenant_id, 1)))
            pairs = {(p.tenant, p.queue) for p in found} | set(others)
            limits = loads(db, pairs, owned, now)
            limited = bool(db.limits or db.paused_queues)
            waits = any(h.claim is None for h in db.holds.values())
            return Backlog(now, found, self._queued(owned), limits, limited, waits)

    def rouse(self, owned: Owned) -> Swept:
        db = self._db
        with db.transaction("rouse") as now:
            held, fence = db.hold_fence(owned, owned)
            count = rouse(db, held, now)
            return Swept({"roused": count} if count else {}, fence)

    def mark_queued(self, owned: Owned, published: Sequence[Publication]) -> Marked:
        with self._db.transaction("mark_queued") as now:
            rows, fence = self._to_mark(owned, published)
            due = {(p.id, p.due_at) for p in published}
            rows = [
                x for x in rows if x.id not in self._db.locked_launches and (x.id, x.due_at) in due
            ]
            for row in rows:
                row.state, row.queued_at = State.QUEUED, now
                row.publications += 1
            return Marked(len(rows), fence)

    def mark_unpublishable(self, owned: Owned, dead: Sequence[Publication], reason: str) -> Marked:
        with self._db.transaction("mark_unpublishable") as now:
            rows, fence = self._to_mark(owned, dead)
            locked = busy(self._db, [row.id for row in rows])
            rows = [row for row in rows if row.id not in locked]
            for row in rows:
                row.state, row.finished_at, row.dlq_owed = State.DEAD, now, True
                row.dead_at = now
                row.failures += 1
                row.result = {"outcome": reason, "message": reason}
            follow_up(self._db, {row.id: State.DEAD for row in rows}, now)
            return Marked(len(rows), fence)

    def _to_mark(
        self, owned: Owned, what: Sequence[Publication]
    ) -> tuple[list[LaunchRow], FenceReport]:
        db = self._db
        held, fence = db.hold_fence(owned, (p.partition for p in what))
        rows = [
            db.launches[p.id]
            for p in what
            if p.partition in held
            and p.id in db.launches
            and db.launches[p.id].state is State.DUE
            and db.launches[p.id].attempt == p.attempt
        ]
        return list({x.id: x for x in rows}.values()), fence

    # --- housekeeping ---------------------------------------------------------------------------

    def sweep(self, owned: Owned, lost_after: timedelta, limit: int) -> Swept:
        db = self._db
        with db.transaction("sweep") as now:
            held, fence = db.hold_fence(owned, owned)
            moved: Counter[str] = Counter()
            mine = sorted(
                (x for x in db.launches.values() if x.partition in held), key=lambda x: x.id
            )
            gone = [
                x for x in mine
                if x.tenant_id in db.deleted and x.state in OPEN - {State.RUNNING}
                and x.id not in db.locked_launches
            ][:limit]  # fmt: skip
            for row in gone:
                row.state, row.finished_at, row.cancel_requested = State.CANCELLED, now, True
                moved["cancelled"] += 1
            for job in sorted({x.job_id for x in mine if x.state is State.HELD})[:limit]:
                if not db.of_job(job, BUSY) and job not in db.locked_jobs:
                    oldest = db.of_job(job, frozenset({State.HELD}))[0]
                    oldest.state, oldest.due_at = State.DUE, max(oldest.due_at, now)
                    moved["released"] += 1
            free = [x for x in mine if x.id not in db.locked_launches]
            late = [
                x for x in free
                if x.state in WAITING and x.attempt == 1 and x.start_before
                and x.start_before <= now
            ][:limit]  # fmt: skip
            for row in late:
                row.state, row.finished_at = State.EXPIRED, now
                row.result = {"outcome": "deadline", "message": "not started before its deadline"}
                moved["expired"] += 1
            lost = [x for x in free if x.state is State.QUEUED and _is_lost(x, now, lost_after)]
            for row in lost[:limit]:
                row.state = State.DUE
                moved["lost_message"] += 1
            return Swept(dict(moved), fence)

    def reap(self, owned: Owned, limit: int, decide: Callable[[LostClaim], Verdict]) -> Swept:
        db = self._db
        with db.transaction("reap") as now:
            lost = [
                _lost_claim(db, x)
                for x in sorted(db.launches.values(), key=lambda x: x.id)
                if x.partition in owned
                and x.state is State.RUNNING
                and x.claim_expires_at is not None
                and x.claim_expires_at < now
            ][:limit]
            held, fence = db.hold_fence(owned, (c.partition for c in lost))
            states: dict[LaunchId, State] = {}
            verdicts = {c.id: decide(c) for c in lost}
            locked = busy(db, [i for i, v in verdicts.items() if v.dlq_owed])
            for c in lost:
                if c.partition in held and c.id not in locked:
                    why = f"worker {c.worker} did not extend its claim"
                    # What decide() takes its time for may have changed the row: the end names the
                    # claim and the expiry that were read.
                    end = ReaperEnd(c.id, c.claim, c.expires_at, verdicts[c.id], why)
                    after = db.end_attempt(end, now)
                    if after is not None:
                        states[c.id] = after
                        leave(db, [db.launches[c.id]], now)
            follow_up(db, states, now)
            return Swept(Counter(x.value for x in states.values()), fence)

    def owed(self, owned: Owned, older_than: timedelta, limit: int) -> Sequence[OwedLetter]:
        db = self._db
        with db.transaction("owed") as now:
            rows = [
                x
                for x in db.launches.values()
                if x.partition in owned
                and x.dlq_owed
                and x.finished_at is not None
                and x.finished_at < now - older_than
            ]
            rows.sort(key=lambda x: x.finished_at or now)
            return [db.letter(x) for x in rows[:limit]]

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        with self._db.transaction("settle"):
            return self._db.settle(letters)

    def dead_letters(self, most: int) -> int:
        with self._db.transaction("dead_letters"):
            return min(most, sum(x.dead_at is not None for x in self._db.launches.values()))

    def make_days(self, ahead: int) -> int:
        with self._db.transaction("make_days") as now:
            days = {(now + timedelta(days=n)).date() for n in range(-1, ahead + 1)}
            new = days - self._known_days
            self._known_days |= new
            self._db.days |= new
            return len(new)

    def drop_days(self) -> int:
        db = self._db
        with db.transaction("drop_days") as now:
            horizon = (now - HISTORY).date()
            busy = {
                x.scheduled_at.date() for x in db.launches.values() if x.state in OPEN or x.dlq_owed
            }
            gone = {d for d in db.days if d < horizon and d not in busy}
            db.days -= gone
            for launch in [x.id for x in db.launches.values() if x.scheduled_at.date() in gone]:
                del db.launches[launch]
            self._known_days.clear()
            return len(gone)

    def close(self) -> None:
        """Nothing to give back."""


def _crowd(due: Sequence[JobRow], limit: int) -> list[JobRow]:
    """A part of the batch in turns, the rest by age."""
    first = _in_turns(due)[: in_turns(limit)]
    return [*first, *(j for j in due if j not in first)]


def _in_turns(due: Sequence[JobRow]) -> list[JobRow]:
    """Tenants in turns; of each one the job that has just become due, then the oldest."""
    waiting: dict[UUID, deque[JobRow]] = {}
    for job in due:
        waiting.setdefault(job.tenant_id, deque()).append(job)
    found: list[JobRow] = []
    for turn in range(len(due)):
        heads = [w.popleft() if turn % 2 else w.pop() for w in waiting.values() if w]
        found += sorted(heads, key=lambda j: (j.next_run_at or _EPOCH, j.id))
    return found


def _due_job(j: JobRow) -> DueJob:
    due = j.next_run_at or datetime.max.replace(tzinfo=UTC)
    return DueJob(
        j.id, j.tenant_id, j.partition, j.version, due, j.last_slot_at, j.launched, j.plan,
        j.skip_next, None if j.catch_up is None else json.dumps(j.catch_up), j.awaits,
        j.resume_at,
    )  # fmt: skip


def _launch_row(job: DueJob, n: NewLaunch, owned: Owned) -> LaunchRow:
    return LaunchRow(
        id=n.id,
        scheduled_at=n.scheduled_at,
        tenant_id=job.tenant,
        job_id=job.id,
        job_version=job.version,
        partition=job.partition,
        queue=n.queue,
        priority=n.priority,
        state=n.state,
        max_attempts=n.max_attempts,
        rerun=n.rerun,
        visibility=n.visibility,
        due_at=n.due_at,
        start_before=n.start_before,
        epoch=owned[job.partition],
        origin=ORIGIN_SCHEDULE,
        concurrency_key=n.concurrency and n.concurrency.key,
        concurrency_limit=n.concurrency and n.concurrency.limit,
        trace=n.trace,
    )


def _is_lost(row: LaunchRow, now: datetime, lost_after: timedelta) -> bool:
    longest = max(timedelta(hours=1), lost_after)
    waits = min(lost_after * 2 ** (max(row.publications, 1) - 1), longest)
    return row.queued_at is not None and row.queued_at < now - waits


def _lost_claim(db: MemoryDatabase, x: LaunchRow) -> LostClaim:
    retry = json.loads(db.jobs[x.job_id].definitions[x.job_version])["retry"]
    assert x.claim is not None
    assert x.claim_expires_at is not None
    return LostClaim(
        x.id, x.scheduled_at, x.job_id, x.partition, x.attempt, x.failures, x.max_attempts,
        x.rerun, Claim(x.claim), x.claim_expires_at, x.worker or "", retry,
    )  # fmt: skip

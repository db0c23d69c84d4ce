"""The port `OwnerStore` on PostgreSQL: tick, relay, reaper and their fence.

One connection, used by the owner's thread alone: a crowd of lock holders would starve a takeover.
Server-side timeouts of 2 s end a paused owner's transaction, so it cannot stand in the way either.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from psycopg import errors as pg

from tickrail.core.clock import Clock
from tickrail.core.ids import JobId, LaunchId, Partition, TenantId
from tickrail.core.limits import Scope
from tickrail.core.ports import (
    Backlog,
    DueJob,
    EndedJob,
    FenceReport,
    Lane,
    Load,
    LostClaim,
    Marked,
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
from tickrail.core.ports_backfill import Backfilled, BackfillPlanner
from tickrail.core.states import State
from tickrail.core.verdict import Verdict
from tickrail.store.backfill_pass import BackfillPass
from tickrail.store.calendar_reader import CalendarReader
from tickrail.store.days import DayKeeper, days_before, drop_day
from tickrail.store.failures import follow_up, hold_jobs
from tickrail.store.fence import hold_fence
from tickrail.store.launch_quotas import count_launches, hold_quotas
from tickrail.store.launch_rows import write_planned
from tickrail.store.limits import OwnerLimits, are_limits, drop_stale, leave, loads
from tickrail.store.queries import load
from tickrail.store.session import Cursor, DatabaseSettings, Session
from tickrail.store.worker import end_attempts, lost_end, settle
from tickrail.store.zone_data import PostgresZoneData

_SQL = load("owner")
_FAR_PAST = datetime(1, 1, 2, tzinfo=UTC)
_SINCE_TTL = timedelta(seconds=5)
_BUSY = timedelta(milliseconds=20)
"""After so long it is looked again whether another transaction still holds a tenant's quotas."""


def owner_settings(settings: DatabaseSettings) -> DatabaseSettings:
    """The settings of an owner's connection: the timeouts of docs/protocols.md 1."""
    return replace(settings, statement_timeout=2.0, idle_timeout=2.0)


class PostgresOwnerStore:
    """What the owner of partitions does in the database."""

    def __init__(
        self,
        settings: DatabaseSettings,
        clock: Clock,
        *,
        history_days: int = 30,
        written: Callable[[str], None] = lambda _: None,
    ) -> None:
        """A store that opens its connection at first use.

        Args:
            settings: the engine role's.
            clock: makes the ids of audit entries.
            history_days: how far back a slot may lie and still be recorded.
            written: called in the transaction of `tick` and `mark_queued`, with this name, when
                everything is written and nothing is committed.
        """
        self._written = written
        self._clock = clock
        self._session = Session(owner_settings(settings))
        self.zone_data = PostgresZoneData(self._session)
        self._history = timedelta(days=history_days)
        self._days = DayKeeper()
        self._calendars = CalendarReader()
        self._backfills = BackfillPass(
            self._session, clock, self._days, self._calendars, self._history
        )
        self._limits = OwnerLimits()
        self._since = _FAR_PAST
        self._since_read: datetime | None = None

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()

    # --- the tick -------------------------------------------------------------------------------

    def tick(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Turn due jobs into launch records and move their next run, in one transaction.

        A crash before the commit leaves the jobs due; after it, the launches are `due` and the
        next owner's relay finds them.
        """
        partitions = list(owned)
        random.shuffle(partitions)  # the walk ends at the limit: nobody is always first
        try:
            with self._session.transaction() as cursor:
                jobs = self._due_jobs(cursor, partitions, limit)
                now = _now(cursor)
                if not jobs:
                    return Ticked(now=now, next_due=_next_due(cursor, partitions))
                result = self._plan_and_write(cursor, owned, jobs, planner, now)
                idle = result.next_due is not None and not result.jobs
                full = result.full or (len(jobs) >= limit and not idle)
                following = now if full else result.next_due or _next_due(cursor, partitions)
                self._written("tick")
        except pg.CheckViolation as e:
            raise self._days.missing(e) from e
        self._days.commit()
        return replace(result, full=full, next_due=following)

    def _due_jobs(
        self, cursor: Cursor, partitions: Sequence[Partition], limit: int
    ) -> Sequence[DueJob]:
        """A batch of due jobs, locked: all that there are, or a batch of them.

        Where there are more, a part goes in turns; the rest is of few partitions, which is what a
        batch of messages costs the bus least by.
        """
        keys = {"partitions": partitions, "limit": limit}
        rows: Sequence[Any] = cursor.execute(_SQL["due_jobs"], keys).fetchall()
        if len(rows) >= limit:
            share = in_turns(limit)
            part = -(-share // len(partitions))
            keys |= {"limit": share, "look": max(20, 2 * part), "each": part}
            turns: Sequence[Any] = cursor.execute(_SQL["due_in_turns"], keys).fetchall()
            taken = {row[0] for row in turns}
            rows = [*turns, *(row for row in rows if row[0] not in taken)][:limit]
        return [DueJob(*cast("Any", row)) for row in rows]

    def resume(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Let paused jobs go on whose time to resume has come; planned by `planner.resume`."""
        partitions = list(owned)
        try:
            with self._session.transaction() as cursor:
                rows = cursor.execute(
                    _SQL["jobs_to_resume"], {"partitions": partitions, "limit": limit}
                ).fetchall()
                jobs = [DueJob(*cast("Any", row)) for row in rows]
                now = _now(cursor)
                if not jobs:
                    return Ticked(now=now)
                held, fence = hold_fence(cursor, owned, (j.partition for j in jobs))
                mine = [j for j in jobs if j.partition in held]
                oldest = now - self._history
                known = self._calendars.read(cursor, mine, planner)
                self._write(cursor, owned, planner.resume(mine, known, now, oldest), oldest)
        except pg.CheckViolation as e:
            raise self._days.missing(e) from e
        self._days.commit()
        return Ticked(now=now, jobs=len(mine), fence=fence, full=len(jobs) >= limit)

    def complete(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Measure the next run of jobs whose awaited launch has ended, from its end."""
        with self._session.transaction() as cursor:
            rows = cursor.execute(
                _SQL["jobs_completed"], {"partitions": list(owned), "limit": limit}
            ).fetchall()
            ended = [EndedJob(DueJob(*row[:-1]), row[-1]) for row in cast("Any", rows)]
            now = _now(cursor)
            if not ended:
                return Ticked(now=now)
            held, fence = hold_fence(cursor, owned, (e.job.partition for e in ended))
            mine = [e for e in ended if e.job.partition in held]
            known = self._calendars.read(cursor, [e.job for e in mine], planner)
            self._write(cursor, owned, planner.complete(mine, known, now), now - self._history)
        return Ticked(now=now, jobs=len(mine), fence=fence, full=len(ended) >= limit)

    def _plan_and_write(
        self, cursor: Cursor, owned: Owned, jobs: Sequence[DueJob], planner: Planner, now: datetime
    ) -> Ticked:
        held, fence = hold_fence(cursor, owned, (j.partition for j in jobs))
        quotas = hold_quotas(cursor, {j.tenant for j in jobs if j.partition in held}, now)
        mine = [j for j in jobs if j.partition in held and j.tenant not in quotas.busy]
        asked = [j.id for j in mine if planner.needs_open(j)]
        opened: dict[JobId, OpenCount] = {}
        if asked:
            rows = cursor.execute(_SQL["open_counts"], {"jobs": asked}).fetchall()
            opened = {r[0]: OpenCount(*r[1:]) for r in cast("Any", rows)}
        oldest = now - self._history
        known = self._calendars.read(cursor, mine, planner)
        planned = planner.plan(mine, opened, known, now, oldest, quotas.rooms)
        inserted, existed, made = self._write(cursor, owned, planned, oldest)
        skipped: Counter[str] = Counter()
        for p in planned:
            for s in p.decision.skipped:
                skipped[s.reason.value] += s.count
        return Ticked(
            now=now,
            jobs=len(planned),
            inserted=inserted,
            existed=existed,
            skipped=skipped,
            errors=sum(p.error is not None for p in planned),
            full=len(planned) < len(mine),
            next_due=now + _BUSY if quotas.busy else None,
            fence=fence,
            reached=count_launches(cursor, self._clock, quotas, made),
        )

    def _write(
        self, cursor: Cursor, owned: Owned, planned: Sequence[Planned], oldest: datetime
    ) -> tuple[list[Publication], int, Counter[TenantId]]:
        fresh = write_planned(cursor, self._days, owned, planned, oldest)
        pairs = [(p.job, n) for p in planned for n in p.launches]
        inserted = [
            Publication(
                n.id, n.scheduled_at, j.id, j.tenant, j.partition, n.queue, n.priority, 1,
                n.due_at, trace=n.trace,
            )
            for j, n in pairs
            if n.id in fresh and n.state is State.DUE
        ]  # fmt: skip
        made = Counter(j.tenant for j, n in pairs if n.id in fresh)
        return inserted, len(pairs) - len(fresh), made

    def backfill(self, owned: Owned, limit: int, planner: BackfillPlanner) -> Backfilled:
        """Carry on up to `limit` running backfills, in one transaction."""
        done = self._backfills.run(owned, limit, planner)
        # The scans of open launches look back to the oldest one; these lie in the past.
        self._since = min([self._since, *(p.scheduled_at for p in done.inserted)])
        return done

    # --- the relay ------------------------------------------------------------------------------

    def backlog(
        self, owned: Owned, limit: int, others: Collection[tuple[TenantId, str]] = ()
    ) -> Backlog:
        """Due launches whose time has come, the oldest `limit` of each tenant in each lane."""
        partitions = list(owned)
        with self._session.transaction() as cursor:
            cursor.execute("set local transaction read only")
            now = _now(cursor)
            since = self._look_back(cursor, now)
            keys = {"partitions": partitions, "since": since}
            rows = cursor.execute(_SQL["backlog"], {**keys, "limit": limit}).fetchall()
            due = [Publication(*cast("Any", row)) for row in rows]
            queued = cursor.execute(_SQL["queued_counts"], keys).fetchall()
            limits: Mapping[Scope, Load] = {}
            limited, waits = are_limits(cursor)
            if limited:
                pairs = {(p.tenant, p.queue) for p in due} | set(others)
                limits = loads(cursor, pairs, partitions, since)
        return Backlog(now, due, _by_place(queued), limits, limited, waits)

    def rouse(self, owned: Owned) -> Swept:
        """Make due what waits at a limit and may try again."""
        with self._session.transaction() as cursor:
            held, fence = hold_fence(cursor, owned, owned)
            count = self._limits.rouse(cursor, held, _now(cursor))
        return Swept({"roused": count} if count else {}, fence)

    def queued(self, owned: Owned) -> Mapping[Place, int]:
        """How much of each lane in each partition is published and not started."""
        with self._session.transaction() as cursor:
            since = self._look_back(cursor, _now(cursor))
            rows = cursor.execute(
                _SQL["queued_counts"], {"partitions": list(owned), "since": since}
            ).fetchall()
        return _by_place(rows)

    def mark_queued(self, owned: Owned, published: Sequence[Publication]) -> Marked:
        """Record publications: `due` with the published attempt -> `queued`.

        A crash between the delivery report and this commit: published again by the next owner,
        claimed once.
        """
        return self._mark(owned, published, "mark_queued")

    def mark_unpublishable(self, owned: Owned, dead: Sequence[Publication], reason: str) -> Marked:
        """`due` with this attempt -> `dead`, dead letter owed: it can never be published."""
        return self._mark(owned, dead, "mark_unpublishable", reason)

    def _mark(
        self, owned: Owned, what: Sequence[Publication], statement: str, reason: str = ""
    ) -> Marked:
        dying = [(p.id, p.scheduled_at) for p in what] if reason else []
        with self._session.transaction() as cursor:
            concerned = hold_jobs(cursor, dying, wait=False)
            held, fence = hold_fence(cursor, owned, (p.partition for p in what))
            mine = [p for p in what if p.partition in held and p.id not in concerned.busy]
            if not mine:
                return Marked(0, fence)
            cursor.execute(
                _SQL[cast("Any", statement)],
                {
                    "id": [p.id for p in mine],
                    "scheduled_at": [p.scheduled_at for p in mine],
                    "attempt": [p.attempt for p in mine],
                    "due_at": [p.due_at for p in mine],
                    "reason": reason,
                },
            )
            marked = cursor.rowcount
            if reason:
                dead = {row[0]: State.DEAD for row in cast("Any", cursor.fetchall())}
                follow_up(cursor, self._clock, concerned, dead)
            self._written(statement)
            return Marked(marked, fence)

    # --- housekeeping ---------------------------------------------------------------------------

    def sweep(self, owned: Owned, lost_after: timedelta, limit: int) -> Swept:
        """What time alone makes due: lost messages, start deadlines, held launches.

        And what nobody waits for: launches of tenants that were deleted.
        """
        moved: dict[str, int] = {}
        with self._session.transaction() as cursor:
            since = self._look_back(cursor, _now(cursor))
            keys = {"partitions": list(owned), "since": since, "limit": limit}
            jobs = cast(
                "list[tuple[JobId, Partition]]",
                cursor.execute(_SQL["jobs_to_release"], keys).fetchall(),
            )
            held, fence = hold_fence(cursor, owned, owned)
            cursor.execute(_SQL["cancel_deleted"], {**keys, "partitions": list(held)})
            moved["cancelled"] = cursor.rowcount
            release = [job for job, partition in jobs if partition in held]
            if release:
                cursor.execute(_SQL["release_held"], {"jobs": release})
                moved["released"] = cursor.rowcount
            keys["partitions"] = list(held)
            cursor.execute(_SQL["expire"], keys)
            moved["expired"] = cursor.rowcount
            cursor.execute(_SQL["requeue_lost"], {**keys, "lost_after": lost_after})
            moved["lost_message"] = cursor.rowcount
        return Swept({k: n for k, n in moved.items() if n}, fence)

    def reap(self, owned: Owned, limit: int, decide: Callable[[LostClaim], Verdict]) -> Swept:
        """End claims that expired: what the update then finds decides, not what was read."""
        with self._session.transaction() as cursor:
            since = self._look_back(cursor, _now(cursor))
            rows = cursor.execute(
                _SQL["lost_claims"], {"partitions": list(owned), "since": since, "limit": limit}
            ).fetchall()
            lost = [LostClaim(*cast("Any", row)) for row in rows]
            if not lost:
                return Swept()
            verdicts = {c.id: decide(c) for c in lost}
            dying = [(c.id, c.scheduled_at) for c in lost if verdicts[c.id].dlq_owed]
            concerned = hold_jobs(cursor, dying, wait=False)
            held, fence = hold_fence(cursor, owned, (c.partition for c in lost))
            ends = [
                lost_end(c, verdicts[c.id])
                for c in lost
                if c.partition in held and c.id not in concerned.busy
            ]
            keys = {"id": [e.id for e in ends], "scheduled_at": [e.scheduled_at for e in ends]}
            free = {row[0] for row in cursor.execute(_SQL["lock_lost"], keys)}
            states = end_attempts(cursor, [e for e in ends if e.id in free])
            leave(cursor, [(e.id, e.scheduled_at) for e in ends if e.id in states])
            follow_up(cursor, self._clock, concerned, states)
        return Swept(Counter(state.value for state in states.values()), fence)

    def owed(self, owned: Owned, older_than: timedelta, limit: int) -> Sequence[OwedLetter]:
        """Dead letters owed for longer than this."""
        with self._session.transaction() as cursor:
            rows = cursor.execute(
                _SQL["owed_letters"],
                {"partitions": list(owned), "older_than": older_than, "limit": limit},
            ).fetchall()
        return [owed_letter(row) for row in rows]

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        """Record that the dead letter of (launch, scheduled instant, attempt) is published."""
        with self._session.transaction() as cursor:
            return settle(cursor, letters)

    def dead_letters(self, most: int) -> int:
        """How many launches of all partitions are dead letters, counted up to `most`."""
        with self._session.transaction() as cursor:
            row = cursor.execute(_SQL["dead_letters"], {"most": most}).fetchone()
        return cast("int", row[0]) if row else 0

    def make_days(self, ahead: int) -> int:
        """Make the history's days from yesterday to `ahead` days from now; how many were new."""
        with self._session.transaction() as cursor:
            now = _now(cursor)
            made = self._days.ensure(
                cursor, [now + timedelta(days=n) for n in range(-1, ahead + 1)]
            )
        self._days.commit()
        return made

    def drop_days(self) -> int:
        """Drop the days before the history's horizon that hold nothing open; how many.

        Places and waits under limits that are over are forgotten, too.
        """
        with self._session.transaction() as cursor:
            old = days_before(cursor, (_now(cursor) - self._history).date())
        dropped = 0
        for day in old:
            # Each by itself: a drop locks the whole history until its transaction ends.
            with self._session.transaction() as cursor:
                dropped += drop_day(cursor, day)
        self._days.forget()
        with self._session.transaction() as cursor:
            drop_stale(cursor)
        return dropped

    def _look_back(self, cursor: Cursor, now: datetime) -> datetime:
        """The oldest open slot, read every few seconds: what bounds the scans of open launches."""
        if self._since_read is None or not timedelta(0) <= now - self._since_read < _SINCE_TTL:
            row = cursor.execute(_SQL["oldest_open"]).fetchone()
            self._since = cast("datetime", row[0]) if row else _FAR_PAST
            self._since_read = now
        return self._since


def owed_letter(row: Sequence[object]) -> OwedLetter:
    """A row of dead_letters_owed."""
    letter = OwedLetter(*cast("Any", row))
    return letter._replace(state=State(letter.state))


def _by_place(rows: Sequence[object]) -> dict[Place, int]:
    return {(Lane(queue, rank), part): count for queue, rank, part, count in cast("Any", rows)}


def _now(cursor: Cursor) -> datetime:
    row = cursor.execute("select now()").fetchone()
    return cast("datetime", row[0]) if row else _FAR_PAST


def _next_due(cursor: Cursor, partitions: Sequence[Partition]) -> datetime | None:
    row = cursor.execute(_SQL["next_due"], {"partitions": list(partitions)}).fetchone()
    return cast("datetime | None", row[0]) if row else None


__all__ = ["FenceReport", "PostgresOwnerStore", "owed_letter", "owner_settings"]

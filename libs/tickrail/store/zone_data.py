"""The port `ZoneDataStore` on PostgreSQL, on the owner's connection."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from tickrail.core.ids import JobId, Partition
from tickrail.core.ports import DueJob, FenceReport, Owned
from tickrail.core.ports_zone_data import Mover, Rezoned, WaitingJob
from tickrail.store.calendar_reader import CalendarReader
from tickrail.store.fence import hold_fence
from tickrail.store.queries import load
from tickrail.store.session import Session

_SQL = load("zone_data")


class PostgresZoneData:
    """Versions of the zone data, and the moves of next runs that a change brings."""

    def __init__(self, session: Session) -> None:
        """On a session that belongs to the owner's thread."""
        self._session = session
        self._calendars = CalendarReader()

    def versions(self, partitions: Collection[Partition]) -> Mapping[Partition, str]:
        """The stored version of each partition; empty: unknown."""
        with self._session.transaction() as cursor:
            rows = cursor.execute(_SQL["versions"], {"partitions": list(partitions)}).fetchall()
        return dict(cast("Any", rows))

    def rezone(
        self, owned: Owned, after: JobId | None, limit: int, version: str, mover: Mover
    ) -> Rezoned:
        """Move the next runs of a batch of jobs, in one fenced transaction.

        A crash before the commit leaves the batch as it was; after it, the next pass finds that
        these jobs wait for slots by the new rules and moves nothing.
        """
        with self._session.transaction() as cursor:
            page = cast(
                "list[tuple[JobId, bool]]",
                cursor.execute(
                    _SQL["page"], {"partitions": list(owned), "after": after, "limit": limit}
                ).fetchall(),
            )
            last = page[-1][0] if len(page) >= limit else None
            wanted = [job for job, concerned in page if concerned]
            if not wanted:
                return Rezoned(last)
            rows = cursor.execute(_SQL["waiting"], {"jobs": wanted}).fetchall()
            found = [WaitingJob(DueJob(*row[:-1]), row[-1]) for row in cast("Any", rows)]
            held, fence = hold_fence(cursor, owned, (w.job.partition for w in found))
            mine = [w for w in found if w.job.partition in held]
            now = cast("Any", cursor.execute("select now()").fetchone())[0]
            known = self._calendars.read(cursor, [w.job for w in mine], mover)
            moved = mover.move(mine, known, now)
            if moved:
                columns = {
                    "id": [m.job.id for m in moved],
                    "tenant_id": [m.job.tenant for m in moved],
                    "partition": [m.job.partition for m in moved],
                    "before_at": [m.job.due_at for m in moved],
                    "next_run_at": [m.next_run_at for m in moved],
                    "version": version,
                }
                cursor.execute(_SQL["record"], columns)
                cursor.execute(_SQL["move"], columns)
        return Rezoned(last, moved, len(wanted) - len(found), fence)

    def store_version(self, owned: Owned, version: str) -> FenceReport:
        """Record by which zone data the next runs of these partitions are computed from now on."""
        with self._session.transaction() as cursor:
            held, fence = hold_fence(cursor, owned, owned)
            cursor.execute(_SQL["store_version"], {"partitions": list(held), "version": version})
            cursor.execute(_SQL["raise_installation"], {"version": version})
            cursor.execute(_SQL["forget"])
        return fence

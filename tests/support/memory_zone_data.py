"""`core.ports_zone_data.ZoneDataStore` on the tables in memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.support.memory_tables import JobRow, MemoryDatabase

from tickrail.core.ids import JobId, Partition
from tickrail.core.ports import DueJob, FenceReport, Owned
from tickrail.core.ports_zone_data import Mover, Rezoned, WaitingJob

_ZONE = re.compile(r'"time_zone": "([^"]+)"')
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A row of `tzdata_changes`."""

    job: JobId
    from_version: str
    to_version: str
    before: datetime | None
    after: datetime | None


class MemoryZoneData:
    def __init__(self, db: MemoryDatabase) -> None:
        self._db = db
        self.stored: dict[Partition, str] = {}
        self.changes: list[Change] = []

    def versions(self, partitions: Collection[Partition]) -> Mapping[Partition, str]:
        with self._db.transaction("zone_versions"):
            return {p: self.stored.get(p, "") for p in partitions}

    def rezone(
        self, owned: Owned, after: JobId | None, limit: int, version: str, mover: Mover
    ) -> Rezoned:
        db = self._db
        with db.transaction("rezone") as now:
            jobs = sorted((j for j in db.jobs.values() if j.partition in owned), key=_id)
            page = [j for j in jobs if after is None or j.id > after][:limit]
            last = page[-1].id if len(page) >= limit else None
            wanted = [j for j in page if _concerned(j)]
            found = [j for j in wanted if j.id not in db.locked_jobs]
            held, fence = db.hold_fence(owned, (j.partition for j in found))
            mine = [WaitingJob(_due_job(j), LONG_AGO) for j in found if j.partition in held]
            moved = mover.move(mine, {}, now)
            for job, next_run_at in moved:
                row = db.jobs[job.id]
                before = self.stored.get(row.partition, "")
                self.changes.append(Change(job.id, before, version, row.next_run_at, next_run_at))
                row.next_run_at = next_run_at
                if next_run_at is None and row.state == "active":
                    row.state = "finished"
            return Rezoned(last, moved, len(wanted) - len(found), fence)

    def store_version(self, owned: Owned, version: str) -> FenceReport:
        with self._db.transaction("store_version"):
            held, fence = self._db.hold_fence(owned, owned)
            self.stored.update(dict.fromkeys(held, version))
            return fence


def _id(row: JobRow) -> JobId:
    return row.id


def _concerned(row: JobRow) -> bool:
    waits = row.state in {"active", "paused"} and row.next_run_at is not None
    return waits and any(zone != "UTC" for zone in _ZONE.findall(row.plan))


def _due_job(row: JobRow) -> DueJob:
    assert row.next_run_at is not None
    return DueJob(
        id=row.id,
        tenant=row.tenant_id,
        partition=row.partition,
        version=row.version,
        due_at=row.next_run_at,
        last_slot=row.last_slot_at,
        launched=row.launched,
        plan=row.plan,
    )

"""Newer zone data: the next runs of a partition's jobs are computed anew before it is ticked.

A partition's row says by which version its next runs were computed. Its owner, where it has a newer
one, walks over the partition's jobs in batches, moves what moves, writes each difference down and
then stores its version. Until then the partition is not ticked: a slot that comes earlier by the
new rules would be passed over by a tick that waits for the old one. A crash at any batch costs
nothing but the walk: a job that has been moved stays where it is.

An owner with older zone data moves nothing. It stores its own version all the same, since from then
on it is the one by which next runs are computed; the next owner with newer data looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from tickrail.core.errors import TickrailError
from tickrail.core.ids import Epoch, JobId, Partition
from tickrail.core.ports import Calendars, DueJob, FenceReport, Owned
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_zone_data import Moved, WaitingJob, ZoneDataStore
from tickrail.core.zone_moves import moved_due
from tickrail.core.zones import TZDATA_VERSION
from tickrail.engine.tick import CalendarCache, PlanCache, calendars_of

log = structlog.get_logger("tickrail.zone_data")

BATCH = 1000
"""So many jobs are looked at in one transaction."""


class JobMover:
    """The port `Mover`: `core.zone_moves` for each job; one job's error stays its own."""

    def __init__(self) -> None:
        self._plans = PlanCache()
        self._calendars = CalendarCache()

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that the job names."""
        return calendars_of(job)

    def move(
        self, jobs: Sequence[WaitingJob], calendars: Calendars, now: datetime
    ) -> Sequence[Moved]:
        """Those of the jobs that are due at another instant by the present zone data."""
        found: list[Moved] = []
        for job, defined_at in jobs:
            try:
                plan = self._calendars.resolve(self._plans.get(job, now), job.tenant, calendars)
                due = moved_due(plan, job.id, job.last_slot, job.due_at, defined_at)
            except Exception as e:  # noqa: BLE001 - one job's bad data must harm no other job
                text = str(e) if isinstance(e, TickrailError) else f"{type(e).__name__}: {e}"
                log.warning("job_not_moved", job=str(job.id), version=job.version, error=text)
                continue
            if due != job.due_at:
                found.append(Moved(job, due))
        return found


@dataclass(slots=True)
class _Walk:
    """A walk under way: over which partitions, how far, and what it has done."""

    partitions: dict[Partition, Epoch]
    after: JobId | None = None
    left: int = 0
    moved: int = 0
    before: set[str] = field(default_factory=set)


class ZoneData:
    """Keeps the next runs of the partitions owned here true to this process's zone data."""

    def __init__(
        self,
        store: ZoneDataStore,
        metrics: Metrics,
        *,
        version: str = TZDATA_VERSION,
        batch: int = BATCH,
    ) -> None:
        """Nothing is looked at yet."""
        self._store = store
        self._metrics = metrics
        self._version = version
        self._batch = batch
        self._mover = JobMover()
        self._true: dict[Partition, Epoch] = {}
        self._walk: _Walk | None = None
        self._warned = False

    @property
    def busy(self) -> bool:
        """Whether there is a walk to go on with."""
        return self._walk is not None

    def ready(self, owned: Owned) -> Owned:
        """Those of the partitions whose next runs are by this process's zone data."""
        return {p: epoch for p, epoch in owned.items() if self._true.get(p) == epoch}

    def run_once(self, owned: Owned) -> FenceReport:
        """Look at partitions that are new here, and do one batch of a walk.

        Raises:
            UnavailableError: the database does not answer; the next call goes on.
        """
        self._true = dict(self.ready(owned))
        walk = self._walk
        if walk is not None:
            walk.partitions = {p: e for p, e in walk.partitions.items() if owned.get(p) == e}
        under_way = walk.partitions if walk is not None else {}
        new = {p: e for p, e in owned.items() if p not in self._true and p not in under_way}
        if new:
            report = self._look(new)
            if report:
                return report
        return self._step()

    def _look(self, new: dict[Partition, Epoch]) -> FenceReport:
        versions = self._store.versions(new.keys())
        older: dict[Partition, Epoch] = {}
        newer: dict[Partition, Epoch] = {}
        for partition, epoch in new.items():
            stored = versions.get(partition, "")
            if stored == self._version:
                self._true[partition] = epoch
            else:
                (newer if stored > self._version else older)[partition] = epoch
        if older:
            under_way = self._walk.partitions if self._walk is not None else {}
            self._walk = _Walk({**under_way, **older})
            self._walk.before.update(versions.get(p, "") or "unknown" for p in older)
        if not newer:
            return FenceReport()
        if not self._warned:
            self._warned = True
            log.warning(
                "zone_data_older",
                here=self._version,
                stored=max(versions[p] for p in newer),
                hint="other schedulers have newer time zone data: update the tzdata package here",
            )
        report = self._store.store_version(newer, self._version)
        self._true.update(_kept(newer, report))
        return report

    def _step(self) -> FenceReport:
        walk = self._walk
        if walk is None:
            return FenceReport()
        if not walk.partitions:
            self._walk = None
            return FenceReport()
        done = self._store.rezone(
            walk.partitions, walk.after, self._batch, self._version, self._mover
        )
        walk.moved += len(done.moved)
        walk.left += done.left
        walk.after = done.after
        if done.moved:
            self._metrics.count("tzdata_moves_total", len(done.moved))
        walk.partitions = _kept(walk.partitions, done.fence)
        if done.fence or done.after is not None:
            return done.fence
        if walk.left:
            walk.left = 0  # somebody had a job locked: look again at all, most of it stays
            return done.fence
        report = self._store.store_version(walk.partitions, self._version)
        kept = _kept(walk.partitions, report)
        self._true.update(kept)
        self._walk = None
        tell = log.info if walk.moved else log.debug
        tell(
            "zone_data_applied",
            version=self._version,
            before=sorted(walk.before),
            partitions=len(kept),
            moved=walk.moved,
        )
        return report


def _kept(owned: dict[Partition, Epoch], report: FenceReport) -> dict[Partition, Epoch]:
    refused = {*report.higher, *report.lower}
    return {p: epoch for p, epoch in owned.items() if p not in refused}

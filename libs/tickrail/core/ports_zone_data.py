"""What the engine needs of the database when the zone data changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from tickrail.core.ids import JobId, Partition
from tickrail.core.ports import Calendars, DueJob, FenceReport, Owned


class WaitingJob(NamedTuple):
    """An active or paused job that waits for a slot; `defined_at`: when its version was written."""

    job: DueJob
    defined_at: datetime


class Moved(NamedTuple):
    """A job whose next run moves; None: it has no run left."""

    job: DueJob
    next_run_at: datetime | None


class Mover(Protocol):
    """Called inside the transaction; must not block."""

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that the job names."""
        ...

    def move(
        self, jobs: Sequence[WaitingJob], calendars: Calendars, now: datetime
    ) -> Sequence[Moved]:
        """Those of the jobs that are due at another instant by the present zone data."""
        ...


@dataclass(frozen=True, slots=True)
class Rezoned:
    """What one batch did.

    `after`: the last job that was looked at, for the next batch; None: there are no more. `left`:
    jobs that somebody had locked, to be looked at again.
    """

    after: JobId | None
    moved: Sequence[Moved] = ()
    left: int = 0
    fence: FenceReport = field(default_factory=FenceReport)


class ZoneDataStore(Protocol):
    """The versions of the zone data by which next runs were computed, and what a change moves."""

    def versions(self, partitions: Collection[Partition]) -> Mapping[Partition, str]:
        """The stored version of each partition; empty: unknown."""
        ...

    def rezone(
        self, owned: Owned, after: JobId | None, limit: int, version: str, mover: Mover
    ) -> Rezoned:
        """Move the next runs of a batch of jobs of these partitions, in one fenced transaction.

        Looks at `limit` jobs at most, in the order of their ids, behind `after`. Each move is
        recorded with the partition's stored version and the new one.
        """
        ...

    def store_version(self, owned: Owned, version: str) -> FenceReport:
        """Record by which zone data the next runs of these partitions are computed from now on."""
        ...

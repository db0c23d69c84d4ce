"""What the watchdog needs of the database.

A `WatchSnapshot` is one transaction that reads: the jobs and the records of their slots are as they
were at one instant. So a slot that is decided on meanwhile is seen neither half nor doubled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from tickrail.core.ids import JobId
from tickrail.core.ports import Calendars, DueJob, NamesCalendars


class WatchedJob(NamedTuple):
    """A job whose slots are due to be decided on.

    Attributes:
        job: as the tick reads it; `due_at` is far ahead where no next run is stored.
        name: its name.
        since: from here on nothing was done to it that moves its slots: when it was made, changed,
            resumed, when its tenant went on, when a calendar of it changed, when newer time zone
            data moved it.
        next_run_at: the due instant that it waits for; None: none is stored.
        error: why it could not be planned at the last try.
        tzdata: the time zone data by which its next run was computed.
    """

    job: DueJob
    name: str
    since: datetime
    next_run_at: datetime | None
    error: str | None
    tzdata: str


class JobPage(NamedTuple):
    """Jobs in the order of their ids. `last`: the last id that was looked at; None: no more."""

    jobs: Sequence[WatchedJob]
    last: JobId | None


class SlotRun(NamedTuple):
    """Slots that are recorded as skipped: the first and the last one."""

    first: datetime
    last: datetime


class LastRun(NamedTuple):
    """What was last of a job whose slots are measured from the end of its launches.

    `is_open`: a launch has not ended yet. `at`: the latest end, slot or skip; None: there was none.
    """

    is_open: bool
    at: datetime | None


class SilentJob(NamedTuple):
    """A job that expects successes and has had none for too long; told now for the first time."""

    job: JobId
    name: str
    since: datetime
    every: timedelta


class WatchSnapshot(Protocol):
    """The jobs and what became of their slots, at one instant."""

    @property
    def now(self) -> datetime:
        """That instant, by the database's clock."""
        ...

    def page(self, after: JobId | None, limit: int) -> JobPage:
        """The next jobs behind an id; looks at `limit` rows, whatever they are."""
        ...

    def overdue(self, before: datetime, limit: int) -> Sequence[WatchedJob]:
        """Jobs that wait for an instant before this one, of each partition the first ones."""
        ...

    def named(self, jobs: Collection[JobId]) -> Sequence[WatchedJob]:
        """Those of these jobs whose slots are due to be decided on."""
        ...

    def calendars(self, jobs: Sequence[DueJob], planner: NamesCalendars) -> Calendars:
        """The calendars that these jobs name."""
        ...

    def launched(
        self, jobs: Collection[JobId], since: datetime, until: datetime
    ) -> Mapping[JobId, frozenset[datetime]]:
        """Slots with `since < slot <= until` that the schedule has launched, by job."""
        ...

    def skipped(
        self, jobs: Collection[JobId], since: datetime, until: datetime
    ) -> Mapping[JobId, Sequence[SlotRun]]:
        """Runs of skipped slots that touch this range; what calendars leave out is none."""
        ...

    def last_runs(self, jobs: Collection[JobId]) -> Mapping[JobId, LastRun]:
        """What was last of each of these jobs, backfills aside."""
        ...


class WatchStore(Protocol):
    """Jobs of all tenants, for the watchdog. Used by one thread."""

    def snapshot(self) -> AbstractContextManager[WatchSnapshot]:
        """A transaction that reads."""
        ...

    def tell_silent(self, limit: int) -> tuple[Sequence[SilentJob], int]:
        """Look for the successes that jobs expect by now, up to `limit` jobs, in one transaction.

        A job that has had none for as long as it says is marked as silent, with a notice for each
        of its channels; one that has had one again is no longer. Whoever finds a job locked passes
        it over.

        Returns:
            The jobs that fell silent, and how many were looked at.
        """
        ...

    def silent(self) -> int:
        """How many jobs are silent."""
        ...

"""The port `WatchStore` on PostgreSQL: all that the watchdog reads, and who is silent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast
from uuid import UUID

from tickrail.core.expectations import AGAIN, ExpectingJob, silence_notice, verdict_of
from tickrail.core.ids import JobId
from tickrail.core.ports import Calendars, DueJob, NamesCalendars
from tickrail.core.ports_watch import JobPage, LastRun, SilentJob, SlotRun, WatchedJob
from tickrail.store.calendar_reader import CalendarReader
from tickrail.store.notices import add_notices
from tickrail.store.queries import load
from tickrail.store.session import Cursor, DatabaseSettings, Session

_SQL = load("watch")
_TIMEOUT: Final = 10.0
_FIRST = JobId(UUID(int=0))
_NEVER = datetime.max.replace(tzinfo=UTC)


class _Snapshot:
    """One transaction that reads."""

    def __init__(self, cursor: Cursor, now: datetime, calendars: CalendarReader) -> None:
        self._cursor = cursor
        self._calendars = calendars
        self.now = now

    def page(self, after: JobId | None, limit: int) -> JobPage:
        """The next jobs behind an id; looks at `limit` rows, whatever they are."""
        keys = {"after": _FIRST if after is None else after, "limit": limit}
        ids = [row[0] for row in self._rows("page", keys)]
        return JobPage(self.named(ids), JobId(ids[-1]) if len(ids) == limit else None)

    def overdue(self, before: datetime, limit: int) -> Sequence[WatchedJob]:
        """Jobs that wait for an instant before this one, of each partition the first ones."""
        return self.named([r[0] for r in self._rows("overdue", {"before": before, "limit": limit})])

    def named(self, jobs: Collection[JobId]) -> Sequence[WatchedJob]:
        """Those of these jobs whose slots are due to be decided on."""
        if not jobs:
            return ()
        return [_watched(row) for row in self._rows("jobs", {"ids": list(jobs)})]

    def calendars(self, jobs: Sequence[DueJob], planner: NamesCalendars) -> Calendars:
        """The calendars that these jobs name."""
        return self._calendars.read(self._cursor, jobs, planner)

    def launched(
        self, jobs: Collection[JobId], since: datetime, until: datetime
    ) -> Mapping[JobId, frozenset[datetime]]:
        """Slots with `since < slot <= until` that the schedule has launched, by job."""
        found: defaultdict[JobId, set[datetime]] = defaultdict(set)
        for job, slot in self._ranged("launched", jobs, since, until):
            found[job].add(slot)
        return {job: frozenset(slots) for job, slots in found.items()}

    def skipped(
        self, jobs: Collection[JobId], since: datetime, until: datetime
    ) -> Mapping[JobId, Sequence[SlotRun]]:
        """Runs of skipped slots that touch this range; what calendars leave out is none."""
        found: defaultdict[JobId, list[SlotRun]] = defaultdict(list)
        for job, first, last in self._ranged("skipped", jobs, since, until):
            found[job].append(SlotRun(first, last))
        return found

    def last_runs(self, jobs: Collection[JobId]) -> Mapping[JobId, LastRun]:
        """What was last of each of these jobs, backfills aside."""
        if not jobs:
            return {}
        rows = self._rows("last_runs", {"ids": list(jobs)})
        return {JobId(row[0]): LastRun(row[1], row[2]) for row in rows}

    def _ranged(
        self, name: str, jobs: Collection[JobId], since: datetime, until: datetime
    ) -> Sequence[Any]:
        if not jobs:
            return ()
        keys = {"ids": list(jobs), "since": since, "until": until}
        return self._rows(name, keys)

    def _rows(self, name: str, keys: Mapping[str, object]) -> Sequence[Any]:
        found: Sequence[Any] = self._cursor.execute(_SQL[name], keys).fetchall()
        return found


class PostgresWatchStore:
    """Jobs of all tenants, for the watchdog. Used by one thread."""

    def __init__(self, settings: DatabaseSettings) -> None:
        """A store that connects at first use.

        Args:
            settings: the engine role's.
        """
        self._session = Session(
            replace(settings, statement_timeout=_TIMEOUT, idle_timeout=_TIMEOUT)
        )
        self._calendars = CalendarReader()

    @contextmanager
    def snapshot(self) -> Iterator[_Snapshot]:
        """A transaction that reads."""
        with self._session.transaction() as cursor:
            cursor.execute(_SQL["at_one_instant"])
            row = cast("Any", cursor.execute("select now()").fetchone())
            yield _Snapshot(cursor, row[0], self._calendars)

    def tell_silent(self, limit: int) -> tuple[Sequence[SilentJob], int]:
        """Look for the successes that jobs expect by now; tell of those without, once."""
        with self._session.transaction() as cursor:
            found = cursor.execute(_SQL["expecting"], {"limit": limit, "again": AGAIN}).fetchall()
            jobs = [ExpectingJob(*row) for row in cast("Any", found)]
            if not jobs:
                return (), 0
            verdicts = [verdict_of(job) for job in jobs]
            cursor.execute(
                _SQL["expect"],
                {
                    "ids": [job.id for job in jobs],
                    "due_at": [v.due_at for v in verdicts],
                    "silent_since": [v.silent_since for v in verdicts],
                },
            )
            told = [
                (job, v.silent_since)
                for job, v in zip(jobs, verdicts, strict=True)
                if v.tell and v.silent_since is not None
            ]
            add_notices(cursor, [silence_notice(job, since) for job, since in told])
        return [SilentJob(job.id, job.name, since, job.every) for job, since in told], len(jobs)

    def silent(self) -> int:
        """How many jobs are silent."""
        with self._session.statement() as cursor:
            row = cast("Any", cursor.execute(_SQL["silent"]).fetchone())
        return int(row[0])

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()


def _watched(row: Any) -> WatchedJob:  # noqa: ANN401 - a row of `jobs`
    job = DueJob(
        JobId(row[0]), row[1], row[2], row[3],
        due_at=_NEVER if row[4] is None else row[4], last_slot=row[5], launched=row[6], plan=row[7],
    )  # fmt: skip
    return WatchedJob(job, row[8], row[11], row[4], row[9], row[10] or "")

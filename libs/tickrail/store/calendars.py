"""The port `CalendarRecords` on PostgreSQL.

Locks. A job that is created or changed shares the rows of the calendars that it names (`for
share`) until it commits. A change of a calendar holds its row (`for update`) and then the rows of
the jobs that use it, by id. So a job that begins to use a calendar comes wholly before its change,
which then finds the job, or wholly after it, and reads the new version.

No circle. Whoever holds a job's row and wants to share a calendar's waits for a moment only and is
told to try again: it is the one edge from a job to a calendar. A tick holds jobs, passes over those
that are held (`skip locked`), and reads calendars without a lock, in a statement of its own after
the one that got the jobs: a change that got a job first is committed by then, and one that comes
later waits for the tick and computes the job's next run anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from psycopg import errors as pg
from sqlalchemy import bindparam, delete, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from tickrail.core.calendars import Calendar, parse_calendar
from tickrail.core.errors import InProgressError
from tickrail.core.ids import JobId
from tickrail.core.job_filter import JobState
from tickrail.core.ports_api import CalendarJob, CalendarRecord
from tickrail.store.tables import calendars, job_calendars, jobs
from tickrail.store.tenancy import TenantTransaction

_C = calendars.c
_J = jobs.c
_WAIT = text("select set_config('lock_timeout', :wait, true)")
_SHARE_WAIT = "250ms"
_CACHED = 256
_JOB = (
    _J.id,
    _J.name,
    _J.state,
    _J.plan,
    _J.paused.is_not(None).label("is_paused"),
    _J.next_run_at,
    _J.last_slot_at,
    _J.launched,
    _J.awaits,
)


@lru_cache(maxsize=_CACHED)
def compiled(name: str, version: int, document: bytes) -> Calendar:
    """The calendar of a stored document, compiled once: reading one costs more than asking it."""
    return parse_calendar(orjson.loads(document), name=name, version=version)


class CalendarTable:
    """Calendars of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def find(self, name: str, *, lock: bool = False) -> CalendarRecord | None:
        """The calendar; `lock` holds its row until the transaction ends."""
        statement = select(calendars).where(_C.name == name)
        row = self._tx.execute(statement.with_for_update() if lock else statement).one_or_none()
        return None if row is None else _record(row)

    def load(self, names: Sequence[str], *, lock: bool = False) -> Mapping[str, Calendar]:
        """Those of the calendars that there are; `lock` shares their rows.

        Raises:
            InProgressError: one of them is being changed at this moment.
        """
        if not names:
            return {}
        statement = select(calendars).where(_C.name.in_(names)).order_by(_C.name)
        if not lock:
            rows = self._tx.execute(statement).all()
        else:
            usual = self._tx.execute(text("show lock_timeout")).scalar_one()
            self._tx.execute(_WAIT, {"wait": _SHARE_WAIT})
            try:
                rows = self._tx.execute(statement.with_for_update(read=True)).all()
            except DBAPIError as e:
                if isinstance(e.orig, pg.LockNotAvailable):
                    raise InProgressError(
                        "A calendar of this job is being changed; try again."
                    ) from e
                raise
            self._tx.execute(_WAIT, {"wait": usual})
        return {r.name: compiled(r.name, r.version, orjson.dumps(r.document)) for r in rows}

    def page(self, after: str, limit: int) -> Sequence[CalendarRecord]:
        """Calendars by name, those after `after`."""
        rows = self._tx.execute(
            select(calendars).where(_C.name > after).order_by(_C.name).limit(limit)
        )
        return [_record(r) for r in rows]

    def insert(self, record: CalendarRecord) -> bool:
        """Insert a calendar; False: there is one of its name."""
        made = self._tx.execute(
            insert(calendars)
            .values(
                tenant_id=self._tx.tenant,
                name=record.name,
                version=record.version,
                document=dict(record.document),
                created_at=record.created_at,
                updated_at=record.updated_at,
            )
            .on_conflict_do_nothing()
            .returning(_C.name)
        ).one_or_none()
        return made is not None

    def replace(self, record: CalendarRecord) -> None:
        """Write version and document; the row is held by the caller."""
        self._tx.execute(
            update(calendars)
            .where(_C.name == record.name)
            .values(
                version=record.version,
                document=dict(record.document),
                updated_at=record.updated_at,
            )
        )

    def delete(self, name: str) -> None:
        """Remove a calendar; the row is held by the caller."""
        self._tx.execute(delete(calendars).where(_C.name == name))

    def use(self, job: JobId, names: Sequence[str]) -> None:
        """Note which calendars a job names, in place of what was noted before."""
        self._tx.execute(delete(job_calendars).where(job_calendars.c.job_id == job))
        if names:
            rows = [
                {"job_id": job, "tenant_id": self._tx.tenant, "calendar": name}
                for name in dict.fromkeys(names)
            ]
            self._tx.execute(insert(job_calendars), rows)

    def jobs_using(
        self, name: str, after: JobId | None, limit: int, *, lock: bool = False
    ) -> Sequence[CalendarJob]:
        """Live jobs that name a calendar, by id; `lock` holds their rows."""
        use = job_calendars.c
        statement = (
            select(*_JOB)
            .join(job_calendars, use.job_id == _J.id)
            .where(use.calendar == name, _J.state != literal_column("'deleted'"))
            .order_by(use.job_id)
            .limit(limit)
        )
        if after is not None:
            statement = statement.where(use.job_id > after)
        if lock:
            statement = statement.with_for_update(of=jobs)
        return [_job(r) for r in self._tx.execute(statement)]

    def move(self, moved: Sequence[CalendarJob]) -> None:
        """Write state, next run and last slot of jobs; their rows are held by the caller."""
        if not moved:
            return
        self._tx.execute(
            update(jobs)
            .where(_J.id == bindparam("job"))
            .values(
                state=bindparam("to_state"),
                next_run_at=bindparam("to_next"),
                last_slot_at=bindparam("to_last"),
            ),
            [
                {
                    "job": j.id,
                    "to_state": j.state.value,
                    "to_next": j.next_run_at,
                    "to_last": j.last_slot_at,
                }
                for j in moved
            ],
        )


def _record(row: Any) -> CalendarRecord:  # noqa: ANN401 - a row of `calendars`
    return CalendarRecord(row.name, row.version, row.document, row.created_at, row.updated_at)


def _job(row: Any) -> CalendarJob:  # noqa: ANN401 - a row of `_JOB`
    return CalendarJob(
        id=JobId(row.id),
        name=row.name,
        state=JobState(row.state),
        plan=row.plan,
        paused=row.is_paused,
        next_run_at=row.next_run_at,
        last_slot_at=row.last_slot_at,
        launched=row.launched,
        awaits=row.awaits,
    )

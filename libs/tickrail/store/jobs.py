"""The port `JobRecords` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import errors as pg
from sqlalchemy import (
    Row,
    Text,
    Uuid,
    bindparam,
    case,
    delete,
    literal_column,
    null,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from tickrail.core.definition import Definition
from tickrail.core.errors import NameTakenError
from tickrail.core.ids import JobId, Partition
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.lint import HERD
from tickrail.core.ports_api import JobRecord, JobRef, JobVersion, SkippedRun
from tickrail.core.records import LaunchRecord, Page, PageRequest, Position
from tickrail.store.launches import LAUNCH_COLUMNS, launch_record, make_days, tagged
from tickrail.store.queries import load, rows_text
from tickrail.store.schema import INSTANT, NAME
from tickrail.store.tables import job_tags, job_versions, jobs, launches, skips
from tickrail.store.tenancy import TenantTransaction

_J = jobs.c
_last = (
    select(*LAUNCH_COLUMNS)
    .where(launches.c.job_id == _J.id)
    .order_by(launches.c.scheduled_at.desc(), launches.c.id.desc())
    .limit(1)
    .lateral("last")
)
_SELECT = (
    select(
        *(c.label(f"job_{c.name}") for c in _J),
        job_versions.c.definition,
        job_versions.c.created_at.label("defined_at"),
        *(c.label(f"last_{c.name}") for c in _last.c),
    )
    .join(job_versions, (job_versions.c.job_id == _J.id) & (job_versions.c.version == _J.version))
    .join(_last, true(), isouter=True)
)
# Written out, not a parameter: only so does a prepared statement match the partial index.
_LIVE = _J.state != literal_column("'deleted'", Text)

_DELETED = _J.state == literal_column("'deleted'", Text)
_VERSION = (
    job_versions.c.version,
    job_versions.c.definition,
    job_versions.c.created_at,
    job_versions.c.created_by,
)

_INSERT_MANY: Final = load("border")["insert_jobs"]
_WAITING = text("select count_waiting(:at, :most)")


class JobTable:
    """Jobs of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx
        self._waiting: dict[tuple[datetime, int], int] = {}

    def find(self, ref: JobRef, *, lock: bool = False) -> JobRecord | None:
        """The job, deleted ones by id only; `lock` holds its row until the transaction ends."""
        where = [_J.name == ref, _LIVE] if isinstance(ref, str) else [_J.id == ref]
        if lock:
            # First the lock, then the read: a row that had to be waited for is joined as it is now.
            held = self._tx.execute(select(_J.id).where(*where).with_for_update()).one_or_none()
            if held is None:
                return None
            where = [_J.id == held.id]
        row = self._tx.execute(_SELECT.where(*where)).one_or_none()
        return None if row is None else _record(row)

    def find_deleted(self, name: str, *, lock: bool = False) -> JobRecord | None:
        """The deleted job of this name that was deleted last; `lock` as for `find`."""
        found = self._tx.execute(
            select(_J.id)
            .where(_J.name == name, _DELETED)
            .order_by(_J.deleted_at.desc(), _J.id.desc())
            .limit(1)
        ).scalar_one_or_none()
        return None if found is None else self.find(JobId(found), lock=lock)

    def insert(self, job: JobRecord, definition: Definition, actor: str) -> bool:
        """Insert a job with its first version and tags; False: a live job has the name."""
        found = self._insert([(job, definition)], actor, HERD)
        if job.id in found and job.next_run_at is not None:
            there = (found[job.id] or 0) + (job.state is JobState.ACTIVE)
            self._waiting[job.next_run_at, HERD] = min(HERD, there)
        return job.id in found

    def taken(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that live jobs have."""
        if not names:
            return []
        return self._tx.execute(select(_J.name).where(_J.name.in_(names), _LIVE)).scalars().all()

    def insert_many(
        self, made: Sequence[tuple[JobRecord, Definition]], actor: str
    ) -> frozenset[JobId]:
        """Insert jobs with their first versions and tags; those whose names were free."""
        return frozenset(self._insert(made, actor))

    def _insert(
        self, made: Sequence[tuple[JobRecord, Definition]], actor: str, most: int = 0
    ) -> Mapping[JobId, int | None]:
        """Those inserted, each with how many others wait for its instant, counted up to `most`."""
        if not made:
            return {}
        rows = [
            {
                "id": job.id,
                "name": job.name,
                "partition": job.partition,
                "state": job.state.value,
                "next_run_at": job.next_run_at,
                "last_slot_at": job.last_slot_at,
                "plan": job.plan,
                "paused": job.paused,
                "definition": job.definition,
                "defined_at": job.defined_at,
                "tags": dict(definition.tags),
                "expect": _seconds(_every(definition)),
            }
            for job, definition in made
        ]
        # One document: arrays of the driver are written element by element, in Python.
        given = {
            "tenant": self._tx.tenant,
            "actor": actor,
            "most": most,
            "jobs": rows_text(rows),
        }
        found = self._tx.execute_plainly((_INSERT_MANY, given))
        return {JobId(job): there for job, there in found}

    def replace(self, job: JobRecord, definition: Definition, actor: str) -> None:
        """Write a new version and what follows from it; the row is locked by the caller.

        Raises:
            NameTakenError: another live job has the name.
        """
        try:
            self._tx.execute(
                update(jobs)
                .where(_J.id == job.id)
                .values(
                    name=job.name,
                    version=job.version,
                    state=job.state.value,
                    next_run_at=job.next_run_at,
                    last_slot_at=job.last_slot_at,
                    plan=dict(job.plan),
                    awaits=job.awaits,
                    catch_up=_json(job.catch_up),
                    error=None,
                    updated_at=self._tx.now,
                    **_expecting(definition, self._tx.now),
                )
            )
        except IntegrityError as e:
            if isinstance(e.orig, pg.UniqueViolation):
                raise NameTakenError(f"A live job has the name {job.name!r} already.") from e
            raise
        self._tx.execute(delete(job_tags).where(job_tags.c.job_id == job.id))
        self._write_version(job, definition, actor)

    def _write_version(self, job: JobRecord, definition: Definition, actor: str) -> None:
        self._tx.execute(
            insert(job_versions).values(
                job_id=job.id,
                version=job.version,
                tenant_id=self._tx.tenant,
                definition=dict(job.definition),
                created_at=job.defined_at,
                created_by=actor,
            )
        )
        if definition.tags:
            self._tx.execute(
                insert(job_tags),
                [
                    {"job_id": job.id, "tenant_id": self._tx.tenant, "key": key, "value": value}
                    for key, value in definition.tags.items()
                ],
            )

    def move(self, job: JobRecord, resume_at: datetime | None = None) -> None:
        """Write state, pause, next run and what is to be left out; the caller holds the row."""
        self._tx.execute(
            update(jobs)
            .where(_J.id == job.id)
            .values(
                state=job.state.value,
                next_run_at=job.next_run_at,
                last_slot_at=job.last_slot_at,
                paused=_json(job.paused),
                resume_at=resume_at,
                skip_next=job.skip_next,
                catch_up=_json(job.catch_up),
                awaits=job.awaits,
                updated_at=self._tx.now,
                # One that goes on counts failures anew.
                failures_from=_J.failures_from
                if job.state is JobState.PAUSED
                else case((_J.state == JobState.PAUSED, self._tx.now), else_=_J.failures_from),
                deleted_at=self._tx.now if job.state is JobState.DELETED else None,
            )
        )

    def definition_of(self, job: JobId, version: int) -> Mapping[str, Any] | None:
        """The canonical document of an older version."""
        found: Mapping[str, Any] | None = self._tx.execute(
            select(job_versions.c.definition).where(
                job_versions.c.job_id == job, job_versions.c.version == version
            )
        ).scalar_one_or_none()
        return found

    def version(self, job: JobId, version: int) -> JobVersion | None:
        """A saved definition."""
        row = self._tx.execute(
            select(*_VERSION).where(job_versions.c.job_id == job, job_versions.c.version == version)
        ).one_or_none()
        return None if row is None else _version(row)

    def versions(self, job: JobId, before: int | None, limit: int) -> Sequence[JobVersion]:
        """Saved definitions, the newest first; those below `before`."""
        statement = select(*_VERSION).where(job_versions.c.job_id == job)
        if before is not None:
            statement = statement.where(job_versions.c.version < before)
        rows = self._tx.execute(statement.order_by(job_versions.c.version.desc()).limit(limit))
        return [_version(row) for row in rows]

    def page(self, where: JobFilter, page: PageRequest) -> Page[JobRecord]:
        """Jobs in order of (created_at, id) or (name, id)."""
        column, kind = (_J.name, NAME) if page.key == "name" else (_J.created_at, INSTANT)
        statement = _SELECT.where(*job_conditions(where))
        if page.after is not None:
            edge = tuple_(
                bindparam(None, page.after.value, kind), bindparam(None, UUID(page.after.id), Uuid)
            )
            here = tuple_(column, _J.id)
            statement = statement.where(here > edge if page.ascending else here < edge)
        order = (column, _J.id) if page.ascending else (column.desc(), _J.id.desc())
        rows = self._tx.execute(statement.order_by(*order).limit(page.limit + 1)).all()
        items = [_record(r) for r in rows[: page.limit]]
        if len(rows) <= page.limit:
            return Page(items)
        last = items[-1]
        value = last.name if page.key == "name" else last.created_at
        return Page(items, Position(value, str(last.id)))

    def waiting_at(self, at: datetime, most: int) -> int:
        """How many active jobs wait for this very instant, counted up to `most`."""
        known = self._waiting.get((at, most))
        if known is not None:  # a job was inserted: what it found there and itself
            return known
        found: int = self._tx.execute(_WAITING, {"at": at, "most": most}).scalar_one()
        return found

    def insert_skips(self, job: JobId, runs: Sequence[SkippedRun]) -> None:
        """Record slots that are not launched."""
        if not runs:
            return
        make_days(self._tx, [r.first for r in runs])
        rows = [
            {
                "job_id": job,
                "scheduled_at": r.first,
                "last_at": r.last,
                "tenant_id": self._tx.tenant,
                "count": r.count,
                "reason": r.reason,
            }
            for r in runs
        ]
        self._tx.execute(insert(skips).on_conflict_do_nothing(), rows)

    def skips(
        self, job: JobId, since: datetime | None, until: datetime | None, page: PageRequest
    ) -> Sequence[SkippedRun]:
        """Runs of skipped slots that touch `since <= slot < until`.

        By their first slot, or from the newest by their last: runs may lie in one another.
        """
        s = skips.c
        where = [s.job_id == job]
        if since is not None:
            where.append(s.last_at >= since)
        if until is not None:
            where.append(s.scheduled_at < until)
        order = s.scheduled_at if page.ascending else s.last_at.desc()
        rows: Sequence[Any] = self._tx.execute(
            select(s.reason, s.scheduled_at, s.last_at, s.count)
            .where(*where)
            .order_by(order, s.reason)
            .limit(page.limit)
        ).all()
        return [SkippedRun(r.reason, r.scheduled_at, r.last_at, r[3]) for r in rows]


def _every(definition: Definition) -> timedelta | None:
    wanted = definition.on_failures
    return None if wanted is None else wanted.expect_success_every


def _seconds(every: timedelta | None) -> float | None:
    return None if every is None else every.total_seconds()


def _expecting(definition: Definition, now: datetime) -> dict[str, Any]:
    """When the watchdog looks for a success next: a changed expectation counts anew, from now."""
    every = _every(definition)
    changed = _J.expect_success_every.is_distinct_from(every)
    return {
        "expect_success_every": every,
        "success_due_at": case(
            (changed, None if every is None else now + every), else_=_J.success_due_at
        ),
        "silent_since": case((changed, None), else_=_J.silent_since),
    }


def _json(value: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - a value for a jsonb column
    return null() if value is None else dict(value)


def job_conditions(where: JobFilter) -> list[Any]:
    """Conditions: the job is one of the filter's."""
    found: list[Any] = tagged(_J.id, where.tags)
    if where.states:
        found.append(_J.state.in_([s.value for s in where.states]))
    if JobState.DELETED not in where.states:
        found.append(_LIVE)
    elif set(where.states) == {JobState.DELETED}:
        found.append(_DELETED)
    if where.name_prefix is not None:
        found.append(_J.name.op("^@")(where.name_prefix))
    if where.queue is not None:
        found.append(_J.plan["queue"].astext == where.queue)
    for column, since, until in (
        (_J.created_at, where.since, where.until),
        (_J.updated_at, where.updated_since, where.updated_until),
    ):
        if since is not None:
            found.append(column >= since)
        if until is not None:
            found.append(column < until)
    return found


def _version(row: Any) -> JobVersion:  # noqa: ANN401 - a row of `_VERSION`
    return JobVersion(row.version, row.definition, row.created_at, row.created_by)


class _Last:
    """The columns of the last launch in a row of `_SELECT`."""

    def __init__(self, row: Row[Any]) -> None:
        for column in LAUNCH_COLUMNS:
            setattr(self, column.name, getattr(row, f"last_{column.name}"))


def _record(row: Any) -> JobRecord:  # noqa: ANN401 - a row of `_SELECT`
    last: LaunchRecord | None = None
    if row.last_id is not None:
        last = launch_record(_Last(row), row.job_name)
    return JobRecord(
        id=JobId(row.job_id),
        name=row.job_name,
        partition=Partition(row.job_partition),
        version=row.job_version,
        state=JobState(row.job_state),
        next_run_at=row.job_next_run_at,
        last_slot_at=row.job_last_slot_at,
        launched=row.job_launched,
        plan=row.job_plan,
        definition=row.definition,
        defined_at=row.defined_at,
        paused=row.job_paused,
        error=row.job_error,
        created_at=row.job_created_at,
        updated_at=row.job_updated_at,
        last_launch=last,
        skip_next=row.job_skip_next,
        catch_up=row.job_catch_up,
        awaits=row.job_awaits,
        deleted_at=row.job_deleted_at,
        silent_since=row.job_silent_since,
    )

"""The port `JobRecords` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import errors as pg
from sqlalchemy import (
    Row,
    Text,
    Uuid,
    bindparam,
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
from tickrail.core.ports_api import JobRecord, JobRef, SkippedRun
from tickrail.core.records import LaunchRecord, Page, PageRequest, Position
from tickrail.store.launches import LAUNCH_COLUMNS, launch_record, make_days, tagged
from tickrail.store.tables import INSTANT, NAME, job_tags, job_versions, jobs, launches, skips
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

_WAITING = text("select count_waiting(:at, :most)")


class JobTable:
    """Jobs of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

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

    def find_deleted(self, name: str) -> JobRecord | None:
        """The deleted job of this name that was deleted last."""
        row = self._tx.execute(
            _SELECT.where(_J.name == name, _J.state == JobState.DELETED)
            .order_by(_J.deleted_at.desc())
            .limit(1)
        ).one_or_none()
        return None if row is None else _record(row)

    def insert(self, job: JobRecord, definition: Definition, actor: str) -> bool:
        """Insert a job with its first version and tags; False: a live job has the name."""
        made = self._tx.execute(
            insert(jobs)
            .values(
                id=job.id,
                tenant_id=self._tx.tenant,
                name=job.name,
                partition=job.partition,
                version=job.version,
                state=job.state.value,
                next_run_at=job.next_run_at,
                last_slot_at=job.last_slot_at,
                plan=definition.plan_document(),
                paused=_json(job.paused),
            )
            .on_conflict_do_nothing(index_elements=[_J.tenant_id, _J.name], index_where=_LIVE)
            .returning(_J.id)
        ).one_or_none()
        if made is None:
            return False
        self._write_version(job, definition, actor)
        return True

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
                    plan=definition.plan_document(),
                    awaits=job.awaits,
                    catch_up=_json(job.catch_up),
                    error=None,
                    updated_at=self._tx.now,
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


def _json(value: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - a value for a jsonb column
    return null() if value is None else dict(value)


def job_conditions(where: JobFilter) -> list[Any]:
    """Conditions: the job is one of the filter's."""
    found: list[Any] = tagged(_J.id, where.tags)
    found.append(_J.state.in_([s.value for s in where.states]) if where.states else _LIVE)
    if where.name_prefix is not None:
        found.append(_J.name.op("^@")(where.name_prefix))
    if where.queue is not None:
        found.append(_J.plan["queue"].astext == where.queue)
    return found


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
    )

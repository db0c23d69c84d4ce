"""The port `LaunchRecords` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    SmallInteger,
    Uuid,
    and_,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    text,
    tuple_,
    update,
)

from tickrail.core.ids import Claim, JobId, LaunchId
from tickrail.core.policies import IfUncertain
from tickrail.core.ports_api import (
    AttemptRecord,
    JobRecord,
    LaunchFilter,
    ManualLaunch,
    OpenLaunches,
)
from tickrail.core.records import LaunchRecord, Page, PageRequest, Position
from tickrail.core.states import PHASE, RETRYING, State
from tickrail.store.queries import load
from tickrail.store.schema import INSTANT
from tickrail.store.tables import attempts, job_tags, jobs, launches
from tickrail.store.tenancy import TenantTransaction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = 3
# Written out, not a parameter: only so does a prepared statement use the partial indexes.
_OPEN = launches.c.phase < literal_column("3", SmallInteger)
_L = launches.c

LAUNCH_COLUMNS = (
    _L.id,
    _L.job_id,
    _L.job_version,
    _L.origin,
    _L.scheduled_at,
    _L.due_at,
    _L.state,
    _L.attempt,
    _L.failures,
    _L.max_attempts,
    _L.queue,
    _L.priority,
    _L.worker,
    _L.claim,
    _L.cancel_requested,
    _L.created_at,
    _L.queued_at,
    _L.started_at,
    _L.finished_at,
    _L.result,
    _L.redrive_count,
    _L.progress,
)

_SQL = {name: text(sql) for name, sql in load("api").items()}


def slot_in(launch: LaunchId) -> datetime | None:
    """The scheduled instant inside a launch id; None where no launch can have it."""
    try:
        return _EPOCH + timedelta(milliseconds=launch.int >> 80)
    except OverflowError:
        return None


def make_days(tx: TenantTransaction, instants: Sequence[datetime]) -> None:
    """Make the day partitions of these instants where they are not there yet."""
    if instants:
        days = sorted({t.astimezone(UTC).date() for t in instants})
        tx.execute(_SQL["make_days"], {"days": days})


def launch_record(row: Any, job_name: str) -> LaunchRecord:  # noqa: ANN401 - a row of any shape
    """The record of a row with LAUNCH_COLUMNS."""
    return LaunchRecord(
        id=LaunchId(row.id),
        job=JobId(row.job_id),
        job_name=job_name,
        job_version=row.job_version,
        origin=row.origin,
        scheduled_at=row.scheduled_at,
        due_at=row.due_at,
        state=State(row.state),
        attempt=row.attempt,
        failures=row.failures,
        max_attempts=row.max_attempts,
        queue=row.queue,
        priority=row.priority,
        worker=row.worker,
        claim=None if row.claim is None else Claim(row.claim),
        cancel_requested=row.cancel_requested,
        created_at=row.created_at,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        result=row.result,
        redrive_count=row.redrive_count,
        progress=row.progress,
    )


class LaunchTable:
    """Launches of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def find(self, launch: LaunchId, *, lock: bool = False) -> LaunchRecord | None:
        """The launch, whose id names the day that holds it; `lock` holds its row."""
        at = slot_in(launch)
        if at is None:
            return None
        found = _select().where(_L.scheduled_at == at, _L.id == launch)
        if lock:
            found = found.with_for_update(of=launches, key_share=True)
        row: Any = self._tx.execute(found).one_or_none()
        return None if row is None else launch_record(row, row.job_name)

    def payload_of(self, launch: LaunchId) -> tuple[bool, Any]:
        """Whether the launch has a payload of its own, and which."""
        row: Any = self._tx.execute(
            select(_L.payload, _L.payload.is_not(null()).label("own")).where(
                _L.scheduled_at == slot_in(launch), _L.id == launch
            )
        ).one()
        return row.own, row.payload

    def page(self, where: LaunchFilter, page: PageRequest) -> Page[LaunchRecord]:
        """Launches in order of (scheduled_at, id)."""
        statement = _select().where(*_conditions(where))
        columns = tuple_(_L.scheduled_at, _L.id)
        if page.after is not None:
            at, launch = page.after
            edge = tuple_(bindparam(None, at, INSTANT), bindparam(None, UUID(launch), Uuid))
            statement = statement.where(
                columns > edge if page.ascending else columns < edge,
                # Says the same of the day partitions, which the row comparison does not prune.
                _L.scheduled_at >= at if page.ascending else _L.scheduled_at <= at,
            )
        order = (
            (_L.scheduled_at, _L.id) if page.ascending else (_L.scheduled_at.desc(), _L.id.desc())
        )
        rows: Sequence[Any] = self._tx.execute(
            statement.order_by(*order).limit(page.limit + 1)
        ).all()
        items = [launch_record(r, r.job_name) for r in rows[: page.limit]]
        more = len(rows) > page.limit
        last = Position(items[-1].scheduled_at, str(items[-1].id)) if more else None
        return Page(items, last)

    def attempts(self, launch: LaunchRecord, after: int, limit: int) -> Sequence[AttemptRecord]:
        """Attempts that ended otherwise than by success, numbers above `after`."""
        a = attempts.c
        rows: Sequence[Any] = self._tx.execute(
            select(attempts)
            .where(
                a.scheduled_at == launch.scheduled_at,
                a.launch_id == launch.id,
                a.attempt > after,
            )
            .order_by(a.attempt)
            .limit(limit)
        ).all()
        return [
            AttemptRecord(
                attempt=r.attempt,
                outcome=r.outcome,
                certain=r.certain,
                code=r.code,
                message=r.message,
                body=r.body,
                worker=r.worker,
                claim=r.claim,
                started_at=r.started_at,
                finished_at=r.finished_at,
                stale_result=r.stale_result,
            )
            for r in rows
        ]

    def open_of(self, job: JobId) -> OpenLaunches:
        """How many launches of the job are open."""
        row: Any = self._tx.execute(
            select(func.count(), func.count().filter(_L.phase == 0)).where(_L.job_id == job, _OPEN)
        ).one()
        return OpenLaunches(row[0], row[1])

    def insert(self, job: JobRecord, launch: ManualLaunch) -> LaunchRecord:
        """Insert a launch by hand, due now."""
        plan = launch.plan
        make_days(self._tx, [launch.scheduled_at])
        row: Any = self._tx.execute(
            insert(launches)
            .values(
                id=launch.id,
                scheduled_at=launch.scheduled_at,
                tenant_id=self._tx.tenant,
                job_id=job.id,
                job_version=launch.version,
                partition=job.partition,
                queue=plan.queue,
                priority=launch.priority,
                origin=launch.origin,
                state=launch.state.value,
                phase=PHASE[launch.state],
                max_attempts=plan.max_attempts,
                rerun=plan.if_uncertain is IfUncertain.RERUN,
                visibility=plan.visibility_timeout.total_seconds(),
                due_at=self._tx.now,
                start_before=None
                if plan.start_deadline is None
                else self._tx.now + plan.start_deadline,
                epoch=0,
                concurrency_key=plan.concurrency and plan.concurrency.key,
                concurrency_limit=plan.concurrency and plan.concurrency.limit,
                payload=launch.payload if launch.has_payload else null(),
                trace=launch.trace,
            )
            .returning(*LAUNCH_COLUMNS)
        ).one()
        return launch_record(row, job.name)

    def cancel(self, launch: LaunchId) -> LaunchRecord | None:
        """Cancel an open launch, or ask it to stop where it runs; None: it is not open."""
        at = slot_in(launch)
        running = _L.state == State.RUNNING
        row = self._tx.execute(
            update(launches)
            .where(_L.scheduled_at == at, _L.id == launch, _OPEN)
            .values(
                state=case((running, _L.state), else_=State.CANCELLED.value),
                phase=case((running, _L.phase), else_=_ENDED),
                finished_at=case((running, null()), else_=func.now()),
                cancel_requested=True,
            )
            .returning(_L.id)
        ).one_or_none()
        return None if row is None else self.find(launch)

    def cancel_open(self, jobs: Sequence[JobId], *, running: bool) -> int:
        """Cancel the open launches of jobs; running ones are asked to stop, or left alone."""
        keys = {"jobs": list(jobs), "running": running}
        return self._tx.execute(_SQL["cancel_open"], keys).rowcount

    def terminate_open(self, job: JobId) -> int:
        """End the open launches of a job and take their claims away."""
        return self._tx.execute(_SQL["terminate_open"], {"job": job}).rowcount


def _select() -> Any:  # noqa: ANN401 - SQLAlchemy's select of two dozen columns
    return select(*LAUNCH_COLUMNS, jobs.c.name.label("job_name")).join(jobs, jobs.c.id == _L.job_id)


def tagged(job_id: ColumnElement[Any], tags: Sequence[tuple[str, str | None]]) -> list[Any]:
    """Conditions: the job has every one of these tags (a value of None: any)."""
    t = job_tags.c
    return [
        select(t.job_id)
        .where(t.job_id == job_id, t.key == key, *([] if value is None else [t.value == value]))
        .exists()
        for key, value in tags
    ]


def _conditions(where: LaunchFilter) -> list[Any]:
    found: list[Any] = tagged(_L.job_id, where.tags)
    if where.job is not None:
        found.append(_L.job_id == where.job)
    if where.states:
        found.append(or_(*(_in_state(s) for s in where.states)))
    if where.queue is not None:
        found.append(_L.queue == where.queue)
    if where.origin is not None:
        found.append(_L.origin.op("^@")(where.origin))
    if where.since is not None:
        found.append(_L.scheduled_at >= where.since)
    if where.until is not None:
        found.append(_L.scheduled_at < where.until)
    return found


def _in_state(shown: str) -> ColumnElement[bool]:
    if shown == RETRYING:
        return and_(_L.state == State.DUE, _L.failures > 0)
    if shown == State.DUE:
        return and_(_L.state == State.DUE, _L.failures == 0)
    return _L.state == shown

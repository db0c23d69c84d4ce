"""The port `LetterRecords` on PostgreSQL, and messages that no worker could read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    cast,
    collate,
    delete,
    func,
    literal,
    null,
    select,
    tuple_,
    update,
)

from tickrail.core.dead_letters import RULES, LetterFilter, Reason, Rule
from tickrail.core.ids import LaunchId
from tickrail.core.ports_letters import LetterPlace, LetterRecord, Redriven
from tickrail.core.records import LaunchRecord, Page, PageRequest, Position
from tickrail.core.states import PHASE, State
from tickrail.store.launches import LAUNCH_COLUMNS, launch_record, slot_in, tagged
from tickrail.store.schema import INSTANT, NAME
from tickrail.store.tables import jobs, launches, undecodable
from tickrail.store.tenancy import BaseTransaction, TenantTransaction

_L = launches.c
_U = undecodable.c
_ID = collate(cast(_L.id, Text), "C")
"""As a page of both kinds of letters is sorted: ids as text."""
_REDRIVEN_FROM = (State.DEAD.value, State.ABANDONED.value)


class LetterTable:
    """Dead letters of the transaction's tenant."""

    def __init__(self, tx: TenantTransaction) -> None:
        self._tx = tx

    def find(self, launch: LaunchId) -> LetterRecord | None:
        """The dead letter of a launch."""
        at = slot_in(launch)
        if at is None:
            return None
        row: Any = self._tx.execute(
            _select().where(_L.scheduled_at == at, _L.id == launch)
        ).one_or_none()
        return None if row is None else _record(row)

    def page(self, where: LetterFilter, page: PageRequest) -> Page[LetterRecord]:
        """Letters in order of (died_at, launch)."""
        statement = _select().where(*_conditions(where))
        if page.after is not None:
            statement = statement.where(*_beyond(_L.dead_at, _ID, page))
        order = (_L.dead_at, _ID) if page.ascending else (_L.dead_at.desc(), _ID.desc())
        rows: Sequence[Any] = self._tx.execute(
            statement.order_by(*order).limit(page.limit + 1)
        ).all()
        items = [_record(row) for row in rows[: page.limit]]
        more = len(rows) > page.limit
        last = Position(items[-1].died_at, str(items[-1].launch.id)) if more else None
        return Page(items, last)

    def count(self, where: LetterFilter, until: datetime, most: int) -> int:
        """How many letters of a filter there were up to an instant, counted up to `most`."""
        found = (
            select(_L.id)
            .where(*_conditions(where), _L.dead_at.is_not(None), _L.dead_at <= until)
            .limit(most)
            .subquery()
        )
        count: int = self._tx.execute(select(func.count()).select_from(found)).scalar_one()
        return count

    def batch(
        self, where: LetterFilter, until: datetime, after: LetterPlace | None, limit: int
    ) -> Sequence[LetterRecord]:
        """Letters up to an instant, the oldest first, those after a place."""
        statement = _select().where(*_conditions(where), _L.dead_at <= until)
        if after is not None:
            edge = tuple_(
                bindparam(None, after.died_at, INSTANT), bindparam(None, after.launch, Uuid)
            )
            statement = statement.where(tuple_(_L.dead_at, _L.id) > edge)
        rows = self._tx.execute(statement.order_by(_L.dead_at, _L.id).limit(limit)).all()
        return [_record(row) for row in rows]

    def lock(self, launches: Sequence[LaunchId]) -> None:
        """Hold the rows of launches, in the order of their ids, until the transaction ends."""
        self._tx.execute(
            select(_L.id)
            .where(*_these(launches))
            .order_by(_L.id)
            .with_for_update(key_share=True, of=_L.id.table)
        ).all()

    def redrive(self, seen: LaunchRecord, life: Redriven) -> LaunchRecord | None:
        """Begin a launch's next life, due now: attempt + 1, no failures, redrive_count + 1."""
        values: dict[str, Any] = {
            "state": life.state.value,
            "phase": PHASE[life.state],
            "partition": life.partition,
            "attempt": _L.attempt + 1,
            "failures": 0,
            "redrive_count": _L.redrive_count + 1,
            "due_at": self._tx.now,
            "finished_at": null(),
            "dead_at": null(),
            "queued_at": null(),
            "publications": 0,
            "cancel_requested": False,
            # Its letter was of the life that is over.
            "dlq_owed": False,
            "progress": null(),
        }
        if life.has_payload:
            values["payload"] = life.payload
        row: Any = self._tx.execute(
            update(launches)
            .where(
                _L.scheduled_at == seen.scheduled_at,
                _L.id == seen.id,
                _L.state.in_(_REDRIVEN_FROM),
                _L.redrive_count == seen.redrive_count,
            )
            .values(values)
            .returning(*LAUNCH_COLUMNS)
        ).one_or_none()
        return None if row is None else launch_record(row, seen.job_name)

    def purge(self, launches: Sequence[LaunchId]) -> int:
        """Take launches out of the dead letters; their states stay. How many there were."""
        self.lock(launches)
        return self._tx.execute(
            update(_L.id.table)
            .where(*_these(launches), _L.dead_at.is_not(None))
            .values(dead_at=null())
        ).rowcount


@dataclass(frozen=True, slots=True)
class UndecodableRow:
    """A message that no worker could read; `size` is how long it was, `value` its first part."""

    id: str
    queue: str
    topic: str
    partition: int
    offset: int
    value: bytes
    size: int
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages: `since <= at < until`."""

    ids: Sequence[str] = ()
    queue: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_undecodable(
    tx: BaseTransaction, page: PageRequest, where: MessageFilter
) -> Sequence[UndecodableRow]:
    """Messages in order of (at, id): one more than the page's limit, where there is one."""
    statement = select(undecodable).where(*_of(where))
    if page.after is not None:
        statement = statement.where(*_beyond(_U.at, _U.id, page))
    order = (_U.at, _U.id) if page.ascending else (_U.at.desc(), _U.id.desc())
    rows = tx.execute(statement.order_by(*order).limit(page.limit + 1)).mappings()
    return [UndecodableRow(**{str(k): v for k, v in r.items()}) for r in rows]


def find_undecodable(tx: BaseTransaction, letter: str) -> UndecodableRow | None:
    """A message by its id: topic/partition/offset."""
    row = tx.execute(select(undecodable).where(_U.id == letter)).mappings().one_or_none()
    return None if row is None else UndecodableRow(**{str(k): v for k, v in row.items()})


def count_undecodable(tx: BaseTransaction, where: MessageFilter) -> int:
    """How many messages of a filter there are."""
    statement = select(func.count()).select_from(undecodable).where(*_of(where))
    count: int = tx.execute(statement).scalar_one()
    return count


def purge_undecodable(tx: BaseTransaction, where: MessageFilter, most: int) -> int:
    """Delete messages of a filter, the oldest first; how many there were."""
    oldest = select(_U.id).where(*_of(where)).order_by(_U.at, _U.id).limit(most)
    return tx.execute(delete(undecodable).where(_U.id.in_(oldest))).rowcount


def _of(where: MessageFilter) -> list[Any]:
    found: list[Any] = []
    if where.ids:
        found.append(_U.id.in_(list(where.ids)))
    if where.queue is not None:
        found.append(_U.queue == where.queue)
    if where.since is not None:
        found.append(_U.at >= where.since)
    if where.until is not None:
        found.append(_U.at < where.until)
    return found


def _select() -> Any:  # noqa: ANN401 - SQLAlchemy's select of two dozen columns
    return (
        select(*LAUNCH_COLUMNS, _L.dead_at, _L.dlq_owed, jobs.c.name.label("job_name"))
        .join(jobs, jobs.c.id == _L.job_id)
        .where(_L.dead_at.is_not(None))
    )


def _record(row: Any) -> LetterRecord:  # noqa: ANN401 - a row of `_select`
    return LetterRecord(launch_record(row, row.job_name), row.dead_at, not row.dlq_owed)


def _these(wanted: Sequence[LaunchId]) -> list[ColumnElement[bool]]:
    """Launches by id; the instants inside say which days hold them."""
    slots = {slot for x in wanted if (slot := slot_in(x)) is not None}
    return [_L.id.in_(list(wanted)), _L.scheduled_at.in_(slots)]


def _beyond(
    at: ColumnElement[Any], key: ColumnElement[Any], page: PageRequest
) -> list[ColumnElement[bool]]:
    """What follows the page's position."""
    if page.after is None:
        return []
    edge = tuple_(bindparam(None, page.after.value, INSTANT), bindparam(None, page.after.id, NAME))
    columns = tuple_(at, key)
    if page.ascending:
        # The second says the same for the index, which has the ids as they are.
        return [columns > edge, at >= page.after.value]
    return [columns < edge, at <= page.after.value]


def _conditions(where: LetterFilter) -> list[Any]:
    found: list[Any] = tagged(_L.job_id, where.tags)
    if where.launches:
        found += _these(where.launches)
    if where.job is not None:
        found.append(_L.job_id == where.job)
    if where.queue is not None:
        found.append(_L.queue == where.queue)
    if where.states:
        found.append(_L.state.in_([s.value for s in where.states]))
    if where.reasons:
        found.append(_reason().in_([r.value for r in where.reasons]))
    if where.since is not None:
        found.append(_L.dead_at >= where.since)
    if where.until is not None:
        found.append(_L.dead_at < where.until)
    return found


def _reason() -> ColumnElement[str]:
    """What `core.dead_letters.reason_of` says, of a row."""
    rules = [(_fits(rule), literal(rule.reason.value)) for rule in RULES]
    return case(*rules, else_=literal(Reason.ATTEMPTS_EXHAUSTED.value))


def _fits(rule: Rule) -> ColumnElement[bool]:
    outcome = func.coalesce(_L.result["outcome"].astext, "")
    parts: list[ColumnElement[bool]] = []
    if rule.state is not None:
        parts.append(_L.state == rule.state.value)
    if rule.outcome is not None:
        parts.append(outcome == rule.outcome)
    if rule.prefix is not None:
        parts.append(outcome.op("^@")(rule.prefix))
    if rule.final:
        parts.append(func.coalesce(_L.result["retryable"].astext, "") == "false")
    return and_(*parts)

"""Queues, limits and tenants, as operators and tenants set them through the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from tickrail.core.ids import TenantId
from tickrail.core.limits import INSTALLATION, QUEUE, TENANT, Rate, Scope
from tickrail.core.queues import Limits, QueueDraft, TenantDraft
from tickrail.store.quotas import write_amounts
from tickrail.store.tables import launches, limits, queues
from tickrail.store.tenancy import BaseTransaction
from tickrail.store.tenant_tables import tenants

_Q, _L, _T = queues.c, limits.c, tenants.c
_WAKE = text("select pg_notify('tickrail_wake', '')")
_USED = text("select queue_is_used(:queue)")
_LOCK_PART = text("select pg_advisory_xact_lock(hashtextextended(:key, 0))")
_DEPTH = text("select due, later, queued, running from queue_depth(:queue)")
_SHOWN = (
    _L.tenant_id, _L.scope, _L.name, _L.paused, _L.paused_reason, _L.max_running, _L.rate_count,
    _L.rate_seconds, _L.version,
)  # fmt: skip
_NEVER: ColumnElement[Any] = literal_column("'-infinity'::timestamptz")


def queue_scope(queue: str, tenant: TenantId = INSTALLATION) -> Scope:
    """The limit of a queue, for everybody or of a tenant."""
    return Scope(tenant, QUEUE, queue)


def wake(tx: BaseTransaction) -> None:
    """At the commit, tell schedulers that something may go on, or may not."""
    tx.execute(_WAKE)


def find_queue(tx: BaseTransaction, name: str, *, lock: bool = False) -> Row[Any] | None:
    """A queue; `lock` holds its row."""
    statement = select(queues).where(_Q.name == name)
    return tx.execute(statement.with_for_update() if lock else statement).one_or_none()


def queue_page(tx: BaseTransaction, after: str, limit: int) -> Sequence[Row[Any]]:
    """Queues by name, those after `after`."""
    found = select(queues).where(_Q.name > after).order_by(_Q.name).limit(limit)
    return tx.execute(found).all()


def put_queue(tx: BaseTransaction, name: str, draft: QueueDraft, version: int) -> bool:
    """Write a queue and its limits; False: somebody else has made it meanwhile.

    Args:
        tx: an operator's transaction.
        name: its name.
        draft: what it is to be.
        version: its version from now on; 1: it is new.
    """
    kinds = list(draft.kinds)
    if version == 1:
        made = insert(queues).values(name=name, kinds=kinds).on_conflict_do_nothing()
        if tx.execute(made.returning(_Q.name)).one_or_none() is None:
            return False
    else:
        tx.execute(update(queues).where(_Q.name == name).values(kinds=kinds, version=version))
    set_limits(tx, queue_scope(name), draft.limits)
    return True


def pause_queue(tx: BaseTransaction, name: str, *, paused: bool, reason: str) -> None:
    """Pause a queue for everybody, or let it go on."""
    values = {"paused": paused, "paused_reason": reason, "version": _Q.version + 1}
    tx.execute(update(queues).where(_Q.name == name).values(values))


def queue_is_used(tx: BaseTransaction, name: str) -> bool:
    """Whether a job or an open launch of any tenant is in the queue."""
    return bool(tx.execute(_USED, {"queue": name}).scalar_one())


def delete_queue(tx: BaseTransaction, name: str) -> None:
    """Remove a queue and all limits in it."""
    tx.execute(delete(limits).where(_L.scope == QUEUE, _L.name == name))
    tx.execute(delete(queues).where(_Q.name == name))


def lock_part(tx: BaseTransaction, scope: Scope) -> None:
    """Let nobody else change this limit until the transaction ends; it need not be there yet."""
    tx.execute(_LOCK_PART, {"key": f"tickrail.limit {scope.tenant} {scope.kind} {scope.name}"})


def find_limits(tx: BaseTransaction, scopes: Sequence[Scope]) -> Mapping[Scope, Row[Any]]:
    """The limits that there are."""
    found: dict[Scope, Row[Any]] = {}
    for kind in {s.kind for s in scopes}:
        rows = tx.execute(
            select(*_SHOWN).where(
                _L.scope == kind,
                _L.tenant_id.in_({s.tenant for s in scopes}),
                _L.name.in_({s.name for s in scopes}),
            )
        )
        found |= {Scope(TenantId(r.tenant_id), r.scope, r.name): r for r in rows}
    return {s: r for s, r in found.items() if s in set(scopes)}


def limits_of(row: Row[Any] | None) -> Limits:
    """The limits in a row."""
    if row is None:
        return Limits()
    rate = None if row.rate_count is None else Rate(row.rate_count, row.rate_seconds)
    return Limits(row.max_running, rate)


def set_limits(tx: BaseTransaction, scope: Scope, wanted: Limits) -> None:
    """Write how much may run and start.

    A limit of what runs that was not there is marked as never used, so that the next claim under it
    counts what runs already.
    """
    rate = wanted.rate
    values: dict[str, Any] = {
        "max_running": wanted.max_running,
        "rate_count": None if rate is None else rate.count,
        "rate_seconds": None if rate is None else rate.seconds,
    }
    if wanted == Limits() and not find_limits(tx, [scope]):
        return
    made = insert(limits).values(
        tenant_id=scope.tenant, scope=scope.kind, name=scope.name, version=2, **values
    )
    fresh = _L.max_running.is_(None) if wanted.max_running is not None else _L.rate_count.is_(None)
    given = made.excluded
    changed = {
        **{name: getattr(given, name) for name in values},
        "filled_at": case((fresh, _NEVER), else_=_L.filled_at),
        "version": _L.version + 1,
        "updated_at": func.now(),
    }
    keys = [_L.tenant_id, _L.scope, _L.name]
    tx.execute(made.on_conflict_do_update(index_elements=keys, set_=changed))


def pause_limit(tx: BaseTransaction, scope: Scope, *, paused: bool, reason: str) -> None:
    """Pause a tenant's part of a queue, or let it go on."""
    made = insert(limits).values(
        tenant_id=scope.tenant,
        scope=scope.kind,
        name=scope.name,
        paused=paused,
        paused_reason=reason,
        version=2,
    )
    changed = {
        "paused": paused,
        "paused_reason": reason,
        "version": _L.version + 1,
        "updated_at": func.now(),
    }
    keys = [_L.tenant_id, _L.scope, _L.name]
    tx.execute(made.on_conflict_do_update(index_elements=keys, set_=changed))


def depth_for_everybody(tx: BaseTransaction, queue: str) -> Mapping[str, int]:
    """How many launches of all tenants wait and run in a queue; for operators."""
    return dict(tx.execute(_DEPTH, {"queue": queue}).one()._mapping)  # noqa: SLF001 - its public name


def depth(tx: BaseTransaction, queue: str) -> Mapping[str, int]:
    """How many launches of the transaction's tenant wait and run in a queue."""
    c = launches.c
    now = func.now()
    row = tx.execute(
        select(
            func.count().filter(c.state == "due", c.due_at <= now).label("due"),
            func.count().filter(c.state == "due", c.due_at > now).label("later"),
            func.count().filter(c.state == "queued").label("queued"),
            func.count().filter(c.state == "running").label("running"),
        ).where(c.queue == queue, (c.phase == text("1")) | (c.phase == text("2")))
    ).one()
    return {"due": row.due, "later": row.later, "queued": row.queued, "running": row.running}


# --- tenants --------------------------------------------------------------------------------------


def find_tenant_row(tx: BaseTransaction, tenant: TenantId, *, lock: bool = False) -> Row[Any]:
    """A tenant that there is; in an operator's transaction."""
    statement = select(tenants).where(_T.id == tenant)
    return tx.execute(statement.with_for_update(of=tenants) if lock else statement).one()


def tenant_scope(tenant: TenantId) -> Scope:
    """The limit of a tenant in all queues."""
    return Scope(tenant, TENANT, "")


def change_tenant(tx: BaseTransaction, tenant: TenantId, draft: TenantDraft) -> None:
    """Write what an operator sets of a tenant."""
    tx.execute(
        update(tenants)
        .where(_T.id == tenant)
        .values(
            weight=draft.weight,
            egress=null() if draft.egress is None else dict(draft.egress),
            kafka_topics=list(draft.kafka_topics),
            version=_T.version + 1,
        )
    )
    set_limits(tx, tenant_scope(tenant), Limits(draft.max_running))
    write_amounts(tx, tenant, draft.quotas)

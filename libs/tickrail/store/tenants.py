"""Tenants: made, suspended, deleted, as operators do it through the API.

A tenant that is not active has a limit of its own that is paused beside its state: schedulers plan
and publish nothing of it, and what is published already is given back at the claim.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, Text, cast, func, null, select, update
from sqlalchemy.dialects.postgresql import insert

from tickrail.core.ids import TenantId
from tickrail.core.queues import Limits, TenantDraft
from tickrail.store.keys import find_tenant
from tickrail.store.queues import find_tenant_row, pause_limit, set_limits, tenant_scope, wake
from tickrail.store.quotas import write_amounts
from tickrail.store.tenancy import BaseTransaction
from tickrail.store.tenant_tables import tenants

_T = tenants.c
ACTIVE = "active"
SUSPENDED = "suspended"
DELETED = "deleted"
FORMER = ".deleted-"
"""Between the name that a deleted tenant had and a part of its id, once another one has it."""
_KEPT_OF_NAME = 128 - len(FORMER) - 12


def free_name(tx: BaseTransaction, name: str) -> Row[Any] | None:
    """Take a name from the deleted tenant that has it; that one, as it is called now.

    It is called by the name and a part of its id from then on; None: no deleted tenant had it.
    """
    digits = func.replace(cast(_T.id, Text), "-", "")
    now_called = func.concat(func.left(_T.name, _KEPT_OF_NAME), FORMER, func.right(digits, 12))
    renamed = (
        update(tenants)
        .where(_T.name == name, _T.state == DELETED)
        .values(name=now_called, version=_T.version + 1)
    )
    return tx.execute(renamed.returning(_T.id, _T.name)).one_or_none()


def create_tenant(tx: BaseTransaction, tenant: TenantId, name: str, draft: TenantDraft) -> bool:
    """Make a tenant; False: there is one of its name.

    Args:
        tx: an operator's transaction.
        tenant: its id.
        name: its name.
        draft: what is set of it.
    """
    made = insert(tenants).values(
        id=tenant,
        name=name,
        weight=draft.weight,
        egress=null() if draft.egress is None else dict(draft.egress),
        kafka_topics=list(draft.kafka_topics),
    )
    if tx.execute(made.on_conflict_do_nothing().returning(_T.id)).one_or_none() is None:
        return False
    set_limits(tx, tenant_scope(tenant), Limits(draft.max_running))
    write_amounts(tx, tenant, draft.quotas)
    return True


def tenant_row(tx: BaseTransaction, named: str, *, lock: bool = False) -> Row[Any] | None:
    """A tenant by id or name, also a deleted one; `lock` holds its row."""
    found = find_tenant(tx, named)
    return None if found is None else find_tenant_row(tx, found.id, lock=lock)


def set_tenant_state(tx: BaseTransaction, row: Row[Any], state: str, reason: str) -> None:
    """Write a tenant's state and the reason for it; its row is held by the caller."""
    tenant = TenantId(row.id)
    values: dict[str, Any] = {"state": state, "state_reason": reason, "version": _T.version + 1}
    if state != row.state:
        values["state_at"] = func.now()
        if state == ACTIVE:
            values["resumed_at"] = func.now()
    tx.execute(update(tenants).where(_T.id == tenant).values(values))
    if (state == ACTIVE) != (row.state == ACTIVE):
        pause_limit(tx, tenant_scope(tenant), paused=state != ACTIVE, reason=reason)
        wake(tx)


def tenant_names(tx: BaseTransaction, state: str | None, after: str, limit: int) -> list[Row[Any]]:
    """Tenants by name, those after `after`; `state`: only those in it."""
    found = select(tenants).where(_T.name > after).order_by(_T.name).limit(limit)
    return list(tx.execute(found if state is None else found.where(_T.state == state)).all())

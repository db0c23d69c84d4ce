"""Who changed what, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import insert, null

from tickrail.core.ids import TenantId
from tickrail.store.tables import audit_log
from tickrail.store.tenancy import BaseTransaction, Caller, TenantTransaction


def write_audit(
    tx: TenantTransaction,
    entry: UUID,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry; it is there if and only if the change is.

    Args:
        tx: the transaction of the change.
        entry: the entry's id, a UUIDv7.
        action: `job.create`, `launch.cancel`, ...
        subject: `job:<id>`, `launch:<id>`, or the path that was read.
        before: what was, where there was something.
        after: what is.
    """
    _add(tx, tx.caller, tx.tenant, (entry, action, subject), before, after)


def write_operator_audit(
    tx: BaseTransaction,
    caller: Caller,
    entry: UUID,
    action: str,
    subject: str,
    after: Mapping[str, Any] | None = None,
    *,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry of no tenant: what an operator did to the installation.

    Args:
        tx: a transaction; what is done outside the database is done before its commit.
        caller: who asks.
        entry: the entry's id, a UUIDv7.
        action: `member.drain`, ...
        subject: `member:<name>`, ...
        after: what is.
        before: what was, where there was something.
    """
    _add(tx, caller, None, (entry, action, subject), before, after)


def _add(
    tx: BaseTransaction,
    caller: Caller,
    tenant: TenantId | None,
    what: tuple[UUID, str, str],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    entry, action, subject = what
    tx.execute(
        insert(audit_log).values(
            id=entry,
            tenant_id=tenant,
            actor=caller.actor,
            action=action,
            subject=subject,
            before=null() if before is None else dict(before),
            after=null() if after is None else dict(after),
            request_id=caller.request_id,
            address=caller.address,
        )
    )

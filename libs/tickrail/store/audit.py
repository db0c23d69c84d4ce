"""Who changed what, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import insert, null

from tickrail.store.tables import audit_log
from tickrail.store.tenancy import TenantTransaction


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
    tx.execute(
        insert(audit_log).values(
            id=entry,
            tenant_id=tx.tenant,
            actor=tx.caller.actor,
            action=action,
            subject=subject,
            before=null() if before is None else dict(before),
            after=null() if after is None else dict(after),
            request_id=tx.caller.request_id,
            address=tx.caller.address,
        )
    )

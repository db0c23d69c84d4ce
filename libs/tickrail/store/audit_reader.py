"""The audit log as it is read: a tenant's entries, or for operators those of the installation."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import FromClause, Uuid, bindparam, select, tuple_

from tickrail.core.ports_audit import AuditFilter, AuditRecord
from tickrail.core.records import Page, PageRequest, Position
from tickrail.store.schema import INSTANT
from tickrail.store.tenancy import BaseTransaction, TenantTransaction
from tickrail.store.tenant_tables import audit_log, installation_audit


class AuditTable:
    """`AuditRecords`: row security says whose entries a transaction sees."""

    def __init__(self, tx: BaseTransaction) -> None:
        self._tx = tx
        self.now = tx.now
        self._from: FromClause = (
            audit_log if isinstance(tx, TenantTransaction) else installation_audit
        )

    def page(self, where: AuditFilter, page: PageRequest) -> Page[AuditRecord]:
        """Entries in order of (at, id)."""
        c = self._from.c
        given = {
            c.actor: where.actor,
            c.action: where.action,
            c.subject: where.subject,
            c.request_id: where.request_id,
        }
        found = [column == value for column, value in given.items() if value is not None]
        if where.since is not None:
            found.append(c.at >= where.since)
        if where.until is not None:
            found.append(c.at < where.until)
        here = tuple_(c.at, c.id)
        if page.after is not None:
            edge = tuple_(
                bindparam(None, page.after.value, INSTANT),
                bindparam(None, UUID(page.after.id), Uuid),
            )
            found.append(here > edge if page.ascending else here < edge)
        order = (c.at, c.id) if page.ascending else (c.at.desc(), c.id.desc())
        statement = (
            select(
                c.id, c.at, c.actor, c.action, c.subject, c.before, c.after, c.request_id, c.address
            )
            .where(*found)
            .order_by(*order)
            .limit(page.limit + 1)
        )
        rows = self._tx.execute(statement).all()
        items = [_record(row) for row in rows[: page.limit]]
        if len(rows) <= page.limit:
            return Page(items)
        return Page(items, Position(items[-1].at, str(items[-1].id)))


def _record(row: Any) -> AuditRecord:  # noqa: ANN401 - a row of the log
    return AuditRecord(
        row.id, row.at, row.actor, row.action, row.subject, row.before, row.after,
        row.request_id, row.address,
    )  # fmt: skip

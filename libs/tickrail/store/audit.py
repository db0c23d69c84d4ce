"""Who changed what, before and after; credentials in either are masked here, for all callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import insert, null

from tickrail.core.audit_actions import known
from tickrail.core.masking import masked, may_hold_credential
from tickrail.core.ports_api import AuditEntry
from tickrail.store.queries import json_text, load, rows_text
from tickrail.store.tenancy import BaseTransaction, Caller, TenantTransaction
from tickrail.store.tenant_tables import audit_log

_LEAVE = load("border")["leave_audit"]


def write_audit_entries(
    tx: TenantTransaction, entries: Sequence[tuple[UUID, AuditEntry]], *, wake: bool = False
) -> None:
    """Add entries with the commit; they are there if and only if the changes are.

    Args:
        tx: the transaction of the changes.
        entries: each with its id, a UUIDv7.
        wake: whether schedulers are told, at the commit, that there is something to do.
    """
    caller = tx.caller
    given = {
        "tenant": tx.tenant,
        "actor": caller.actor,
        "request_id": caller.request_id,
        "address": caller.address,
        "wake": wake,
        "entries": rows_text(
            [
                {
                    "id": entry,
                    "action": known(e.action),
                    "subject": e.subject,
                    "before": _shown(e.before),
                    "after": _shown(e.after),
                }
                for entry, e in entries
            ]
        ),
    }
    tx.execute_last(_LEAVE, given)


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
    tx.execute(
        insert(audit_log).values(
            id=entry,
            tenant_id=None,
            actor=caller.actor,
            action=known(action),
            subject=subject,
            before=null() if before is None else masked(dict(before)),
            after=null() if after is None else masked(dict(after)),
            request_id=caller.request_id,
            address=caller.address,
        )
    )


def _shown(document: Mapping[str, Any] | None) -> orjson.Fragment | Mapping[str, Any] | None:
    """A document as the log shows it; most hold nothing to mask, and many are written at once."""
    text = json_text(document)
    if document is None or text is None:
        return None
    return masked(document) if may_hold_credential(text) else orjson.Fragment(text)

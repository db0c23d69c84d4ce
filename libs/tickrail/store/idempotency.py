"""Answers kept by Idempotency-Key.

The key is claimed by an advisory lock of the transaction that has the effect, and the answer is
stored in it: a crash at any point leaves either effect and answer, or neither and a free key. Keys
are a tenant's own; those of operators' requests that name no tenant are the installation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Table, select, text
from sqlalchemy.dialects.postgresql import insert

from tickrail.core.errors import IdempotencyMismatchError, InProgressError
from tickrail.store.tenancy import BaseTransaction, TenantTransaction
from tickrail.store.tenant_tables import idempotency_keys, operator_answers

KEPT = timedelta(hours=24)
_CLAIM = text("select pg_try_advisory_xact_lock(hashtextextended(:name, 0))")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it was given."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def find_answer(tx: BaseTransaction, key: str, fingerprint: bytes) -> StoredAnswer | None:
    """The answer kept for this key, for at most 24 hours.

    Raises:
        IdempotencyMismatchError: the key was used for another request.
    """
    c = _table(tx).c
    row = tx.execute(
        select(c.fingerprint, c.status, c.headers, c.body).where(
            c.key == key, c.created_at > tx.now - KEPT
        )
    ).one_or_none()
    if row is None:
        return None
    if bytes(row.fingerprint) != fingerprint:
        raise IdempotencyMismatchError(
            "This Idempotency-Key was used for a request with another path or body; use a new one."
        )
    return StoredAnswer(row.status, row.headers, bytes(row.body))


def claim_key(tx: BaseTransaction, key: str) -> None:
    """Claim a key until the transaction ends.

    Raises:
        InProgressError: another request holds it.
    """
    whose = tx.tenant if isinstance(tx, TenantTransaction) else "operators"
    name = f"{whose}:{key}"
    if not tx.execute(_CLAIM, {"name": name}).scalar_one():
        raise InProgressError("A request with this Idempotency-Key is still running.")


def keep_answer(tx: BaseTransaction, key: str, fingerprint: bytes, answer: StoredAnswer) -> None:
    """Store the answer in the transaction of its effect, in the place of one that has expired."""
    values = {
        "fingerprint": fingerprint,
        "status": answer.status,
        "headers": dict(answer.headers),
        "body": answer.body,
        "created_at": tx.now,
    }
    table = _table(tx)
    whose = {"tenant_id": tx.tenant} if isinstance(tx, TenantTransaction) else {}
    statement = insert(table).values(**whose, key=key, **values)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=[table.c[name] for name in (*whose, "key")], set_=values
        )
    )


def _table(tx: BaseTransaction) -> Table:
    return idempotency_keys if isinstance(tx, TenantTransaction) else operator_answers

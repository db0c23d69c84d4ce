"""Answers kept by Idempotency-Key.

The key is claimed by an advisory lock of the transaction that has the effect, and the answer is
stored in it: a crash at any point leaves either effect and answer, or neither and a free key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from tickrail.core.errors import IdempotencyMismatchError, InProgressError
from tickrail.store.tables import idempotency_keys
from tickrail.store.tenancy import TenantTransaction

KEPT = timedelta(hours=24)
_CLAIM = text("select pg_try_advisory_xact_lock(hashtextextended(:name, 0))")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it was given."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def find_answer(tx: TenantTransaction, key: str, fingerprint: bytes) -> StoredAnswer | None:
    """The answer kept for this key, for at most 24 hours.

    Raises:
        IdempotencyMismatchError: the key was used for another request.
    """
    row = tx.execute(
        select(
            idempotency_keys.c.fingerprint,
            idempotency_keys.c.status,
            idempotency_keys.c.headers,
            idempotency_keys.c.body,
        ).where(idempotency_keys.c.key == key, idempotency_keys.c.created_at > tx.now - KEPT)
    ).one_or_none()
    if row is None:
        return None
    if bytes(row.fingerprint) != fingerprint:
        raise IdempotencyMismatchError(
            "This Idempotency-Key was used for a request with another path or body; use a new one."
        )
    return StoredAnswer(row.status, row.headers, bytes(row.body))


def claim_key(tx: TenantTransaction, key: str) -> None:
    """Claim a key until the transaction ends.

    Raises:
        InProgressError: another request holds it.
    """
    name = f"{tx.tenant}:{key}"
    if not tx.execute(_CLAIM, {"name": name}).scalar_one():
        raise InProgressError("A request with this Idempotency-Key is still running.")


def keep_answer(tx: TenantTransaction, key: str, fingerprint: bytes, answer: StoredAnswer) -> None:
    """Store the answer in the transaction of its effect, in the place of one that has expired."""
    values = {
        "fingerprint": fingerprint,
        "status": answer.status,
        "headers": dict(answer.headers),
        "body": answer.body,
        "created_at": tx.now,
    }
    statement = insert(idempotency_keys).values(tenant_id=tx.tenant, key=key, **values)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=[idempotency_keys.c.tenant_id, idempotency_keys.c.key], set_=values
        )
    )

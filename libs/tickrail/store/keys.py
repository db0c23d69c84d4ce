"""API keys: made, hashed, found.

A key is `trk_<key id>_<secret>`; the secret is 256 random bits and is stored only as a keyed hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from tickrail.core.ids import TenantId
from tickrail.store.tenancy import BaseTransaction

PREFIX = "trk"
SCOPES = ("read", "run", "write", "admin")
_ID_BYTES = 10
_SECRET_BYTES = 32

_FIND = text(
    "select id, tenant_id, tenant_state, secret_hash, scopes,"
    " expires_at <= now() as expired, revoked_at is not null as revoked"
    " from find_api_key(:id)"
)
_TOUCH = text("select touch_api_key(:id)")
_FIND_TENANT = text("select id, state from find_tenant(:tenant) order by id::text = :tenant desc")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made. `token` is what the user gets, once."""

    id: str
    token: str
    secret_hash: bytes


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored. `tenant` None: an operator's. `usable`: neither revoked nor expired."""

    id: str
    tenant: TenantId | None
    tenant_state: str | None
    secret_hash: bytes
    scopes: frozenset[str]
    usable: bool


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant and its state: active, suspended, deleted."""

    id: TenantId
    state: str


def make_key(pepper: bytes) -> NewKey:
    """A new key with a random id and secret."""
    key_id = base64.b32encode(os.urandom(_ID_BYTES)).decode().lower()
    secret = base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")
    return NewKey(key_id, f"{PREFIX}_{key_id}_{secret}", secret_hash(key_id, secret, pepper))


def secret_hash(key_id: str, secret: str, pepper: bytes) -> bytes:
    """What is stored of a secret: HMAC-SHA-256 under the installation's pepper."""
    return hmac.digest(pepper, f"{key_id}_{secret}".encode(), hashlib.sha256)


def find_key(tx: BaseTransaction, key_id: str) -> StoredKey | None:
    """The key of this id; its use is noted (once a minute)."""
    row: Any = tx.execute(_FIND, {"id": key_id}).one_or_none()
    if row is None:
        return None
    tx.execute(_TOUCH, {"id": key_id})
    return StoredKey(
        id=row.id,
        tenant=None if row.tenant_id is None else TenantId(row.tenant_id),
        tenant_state=row.tenant_state,
        secret_hash=bytes(row.secret_hash),
        scopes=frozenset(row.scopes),
        usable=not row.revoked and not row.expired,
    )


def find_tenant(tx: BaseTransaction, tenant: str) -> TenantRecord | None:
    """The tenant of this id or name; an id goes before a name that looks like one."""
    row: Any = tx.execute(_FIND_TENANT, {"tenant": tenant}).first()
    return None if row is None else TenantRecord(TenantId(row.id), row.state)

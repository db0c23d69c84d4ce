"""API keys: made, hashed, found, kept.

A key is `trk_<key id>_<secret>` (core/keys.py); of the secret only a keyed hash is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, insert, or_, select, text, tuple_, update

from tickrail.core.ids import TenantId
from tickrail.core.keys import (
    DIGITS,
    PREFIX,
    SECRET_LENGTH,
    KeyRecord,
    NewKey,
    checksum,
)
from tickrail.core.records import Page, PageRequest, Position
from tickrail.store.schema import INSTANT, NAME
from tickrail.store.tenancy import BaseTransaction
from tickrail.store.tenant_tables import api_keys

_K = api_keys.c
_ID_BYTES = 10
_FIND = text(
    "select id, tenant_id, tenant_state, secret_hash, scopes, requests_per_second, expired, revoked"
    " from find_key(:id)"
)
_TOUCH = text("select touch_keys(:ids)")
_FIND_TENANT = text("select id, state from find_tenant(:tenant) order by id::text = :tenant desc")
_LOCK = text("select pg_advisory_xact_lock(hashtextextended(:name, 0))")
_SHOWN = (
    _K.id, _K.tenant_id, _K.name, _K.description, _K.scopes, _K.requests_per_second, _K.created_at,
    _K.created_by, _K.expires_at, _K.revoked_at, _K.last_used_at, _K.replaced_by,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored. `tenant` None: an operator's. `usable`: neither revoked nor expired.

    `rate`: requests in a second that it may make; None: as many as its tenant.
    """

    id: str
    tenant: TenantId | None
    tenant_state: str | None
    secret_hash: bytes
    scopes: frozenset[str]
    usable: bool
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant and its state: active, suspended, deleted."""

    id: TenantId
    state: str


def make_key(pepper: bytes) -> NewKey:
    """A new key with a random id and secret."""
    key_id = base64.b32encode(os.urandom(_ID_BYTES)).decode().lower()
    bare = "".join(secrets.choice(DIGITS) for _ in range(SECRET_LENGTH))
    secret = bare + checksum(key_id, bare)
    return NewKey(key_id, f"{PREFIX}_{key_id}_{secret}", secret_hash(key_id, secret, pepper))


def secret_hash(key_id: str, secret: str, pepper: bytes) -> bytes:
    """What is stored of a secret: HMAC-SHA-256 under the installation's pepper."""
    return hmac.digest(pepper, f"{key_id}_{secret}".encode(), hashlib.sha256)


def find_key(tx: BaseTransaction, key_id: str) -> StoredKey | None:
    """The key of this id."""
    row: Any = tx.execute(_FIND, {"id": key_id}).one_or_none()
    if row is None:
        return None
    return StoredKey(
        id=row.id,
        tenant=None if row.tenant_id is None else TenantId(row.tenant_id),
        tenant_state=row.tenant_state,
        secret_hash=bytes(row.secret_hash),
        scopes=frozenset(row.scopes),
        usable=not row.revoked and not row.expired,
        rate=row.requests_per_second,
    )


def touch_keys(tx: BaseTransaction, key_ids: Sequence[str]) -> None:
    """Note that keys were used; of each once a minute."""
    tx.execute(_TOUCH, {"ids": list(key_ids)})


def find_tenant(tx: BaseTransaction, tenant: str) -> TenantRecord | None:
    """The tenant of this id or name; an id goes before a name that looks like one."""
    row: Any = tx.execute(_FIND_TENANT, {"tenant": tenant}).first()
    return None if row is None else TenantRecord(TenantId(row.id), row.state)


class KeyTable:
    """The port `KeyRecords`: the keys that the transaction sees, a tenant's or the operators'."""

    def __init__(self, tx: BaseTransaction, tenant: TenantId | None) -> None:
        self._tx = tx
        self._tenant = tenant

    def lock(self) -> None:
        """Let nobody else make a key here until the transaction ends."""
        self._tx.execute(_LOCK, {"name": f"tickrail.keys {self._tenant}"})

    def live(self) -> int:
        """How many keys are valid now."""
        count: int = self._tx.execute(
            select(func.count()).select_from(api_keys).where(*_in_state("active"))
        ).scalar_one()
        return count

    def find(self, key_id: str, *, lock: bool = False) -> KeyRecord | None:
        """A key; `lock` holds its row until the transaction ends."""
        statement = select(*_SHOWN).where(_K.id == key_id)
        row = self._tx.execute(statement.with_for_update() if lock else statement).one_or_none()
        return None if row is None else _record(row)

    def page(self, state: str | None, page: PageRequest) -> Page[KeyRecord]:
        """Keys by the instant they were made and their id; `state` of `core.keys.STATES`."""
        statement = select(*_SHOWN).where(*_in_state(state))
        here = tuple_(_K.created_at, _K.id)
        if page.after is not None:
            edge = tuple_(
                bindparam(None, page.after.value, INSTANT), bindparam(None, page.after.id, NAME)
            )
            statement = statement.where(here > edge if page.ascending else here < edge)
        order: tuple[ColumnElement[Any], ...] = (_K.created_at, _K.id)
        if not page.ascending:
            order = tuple(c.desc() for c in order)
        rows = self._tx.execute(statement.order_by(*order).limit(page.limit + 1)).all()
        items = [_record(r) for r in rows[: page.limit]]
        if len(rows) <= page.limit:
            return Page(items)
        return Page(items, Position(items[-1].created_at, items[-1].id))

    def insert(self, record: KeyRecord, secret_hash: bytes) -> None:
        """Keep a new key."""
        self._tx.execute(
            insert(api_keys).values(
                id=record.id,
                tenant_id=self._tenant,
                name=record.name,
                description=record.description,
                secret_hash=secret_hash,
                scopes=list(record.scopes),
                requests_per_second=record.requests_per_second,
                created_at=record.created_at,
                created_by=record.created_by,
                expires_at=record.expires_at,
            )
        )

    def end(
        self,
        key_id: str,
        *,
        revoked_at: datetime | None = None,
        expires_at: datetime | None = None,
        replaced_by: str | None = None,
    ) -> None:
        """Write what ends a key, as far as it is given; the row is held by the caller."""
        given = {"revoked_at": revoked_at, "expires_at": expires_at, "replaced_by": replaced_by}
        values = {name: value for name, value in given.items() if value is not None}
        self._tx.execute(update(api_keys).where(_K.id == key_id).values(values))


def _in_state(state: str | None) -> list[ColumnElement[bool]]:
    now = func.now()
    if state == "revoked":
        return [_K.revoked_at.is_not(None)]
    if state == "expired":
        return [_K.revoked_at.is_(None), _K.expires_at <= now]
    if state == "active":
        return [_K.revoked_at.is_(None), or_(_K.expires_at.is_(None), _K.expires_at > now)]
    return []


def _record(row: Any) -> KeyRecord:  # noqa: ANN401 - a row of `api_keys`
    return KeyRecord(
        id=row.id,
        tenant=None if row.tenant_id is None else TenantId(row.tenant_id),
        name=row.name,
        description=row.description,
        scopes=tuple(row.scopes),
        requests_per_second=row.requests_per_second,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        replaced_by=row.replaced_by,
    )

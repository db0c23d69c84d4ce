"""API keys: make, rotate, revoke.

Each use case runs in the caller's transaction, of a tenant or, for operators' keys, of none. What
is audited is never a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any

from tickrail.core.definition import instant_text
from tickrail.core.errors import ConflictError, ForbiddenError, NotFoundError
from tickrail.core.keys import MAX_LIVE, KeyDraft, KeyRecord, KeyTransaction, Maker, NewKey


class Keys:
    """The use cases of keys."""

    def __init__(self, mint: Callable[[], NewKey]) -> None:
        """With what makes a new id and secret."""
        self._mint = mint

    def create(self, tx: KeyTransaction, draft: KeyDraft, by: Maker) -> tuple[KeyRecord, str]:
        """Make a key; the record and the whole key, which is not to be had again.

        Raises:
            ForbiddenError: it would have scopes that who asks does not have, a higher rate or a
                later end.
            ConflictError: there are as many keys as there may be.
        """
        _check_scopes(draft.scopes, by.scopes)
        _check_bounds(tx, draft, by)
        record, token = self._insert(tx, draft)
        tx.audit("key.create", f"key:{record.id}", None, _told(record))
        return record, token

    def rotate(
        self, tx: KeyTransaction, key_id: str, grace: timedelta, by: Maker
    ) -> tuple[KeyRecord, str]:
        """Put a new key in a key's place; the old one stays valid for a while.

        A key that rotates itself gets the same length of life once more.

        Raises:
            NotFoundError: there is no such key here.
            ForbiddenError: it is another one than that of `by`, and would have more.
            ConflictError: it is not valid any more, or was rotated before.
        """
        old = require_key(tx, key_id, lock=True)
        if (state := old.state(tx.now)) != "active":
            raise ConflictError(f"The key is {state}; make a new one.")
        if old.replaced_by is not None:
            raise ConflictError(f"The key was rotated already: {old.replaced_by} took its place.")
        _check_scopes(old.scopes, by.scopes)
        life = None if old.expires_at is None else old.expires_at - old.created_at
        draft = KeyDraft(
            old.name,
            old.scopes,
            old.description,
            old.requests_per_second,
            None if life is None else tx.now + life,
        )
        if by.key_id != old.id:
            _check_bounds(tx, draft, by)
        record, token = self._insert(tx, draft)
        ends = tx.now + grace
        if old.expires_at is not None:
            ends = min(ends, old.expires_at)
        tx.keys.end(old.id, expires_at=ends, replaced_by=record.id)
        tx.audit(
            "key.rotate",
            f"key:{old.id}",
            {"expires_at": None if old.expires_at is None else instant_text(old.expires_at)},
            {"expires_at": instant_text(ends), "replaced_by": record.id},
        )
        return record, token

    def _insert(self, tx: KeyTransaction, draft: KeyDraft) -> tuple[KeyRecord, str]:
        tx.keys.lock()
        if tx.keys.live() >= MAX_LIVE:
            raise ConflictError(
                f"There are {MAX_LIVE} valid keys, as many as there may be; revoke some first."
            )
        made = self._mint()
        record = KeyRecord(
            id=made.id,
            tenant=tx.tenant,
            name=draft.name,
            description=draft.description,
            scopes=draft.scopes,
            requests_per_second=draft.requests_per_second,
            created_at=tx.now,
            created_by=tx.actor,
            expires_at=draft.expires_at,
        )
        tx.keys.insert(record, made.secret_hash)
        return record, made.token


def require_key(tx: KeyTransaction, key_id: str, *, lock: bool = False) -> KeyRecord:
    """A key.

    Raises:
        NotFoundError: there is no such key here.
    """
    found = tx.keys.find(key_id, lock=lock)
    if found is None:
        raise NotFoundError(f"There is no API key with the id {key_id[:128]}.")
    return found


def revoke_key(tx: KeyTransaction, key_id: str) -> None:
    """End a key now; one that was revoked before stays so.

    Raises:
        NotFoundError: there is no such key here.
    """
    found = require_key(tx, key_id, lock=True)
    if found.revoked_at is None:
        tx.keys.end(found.id, revoked_at=tx.now)
        tx.audit("key.revoke", f"key:{found.id}", {"state": found.state(tx.now)})


def _check_scopes(wanted: Collection[str], holds: Collection[str]) -> None:
    missing = [s for s in wanted if s not in holds]
    if missing:
        raise ForbiddenError(
            f"A key hands out no scope that it lacks itself: {', '.join(missing)}."
        )


def _check_bounds(tx: KeyTransaction, draft: KeyDraft, by: Maker) -> None:
    most, last = by.requests_per_second, by.ends_at
    if by.key_id:
        own = require_key(tx, by.key_id)
        most, last = own.requests_per_second, own.expires_at
    rate, ends = draft.requests_per_second, draft.expires_at
    if most is not None and (rate is None or rate > most):
        raise ForbiddenError(
            f"A key hands out no higher rate than its own: requests_per_second is {most} at most."
        )
    if last is not None and (ends is None or ends > last):
        raise ForbiddenError(
            "No key outlives the key or token that makes it:"
            f" expires_at is {instant_text(last)} at the latest."
        )


def _told(record: KeyRecord) -> Mapping[str, Any]:
    """What the audit log keeps of a new key."""
    return {
        "name": record.name,
        "scopes": list(record.scopes),
        "requests_per_second": record.requests_per_second,
        "expires_at": None if record.expires_at is None else instant_text(record.expires_at),
    }

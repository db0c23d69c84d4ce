"""Who asks: API keys, checked within two seconds of any change."""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tickrail.core.clock import Clock
from tickrail.core.errors import ForbiddenError, NotFoundError, UnauthenticatedError
from tickrail.core.ids import TenantId
from tickrail.store.engine import ApiDatabase
from tickrail.store.keys import PREFIX, StoredKey, find_key, find_tenant, secret_hash

CACHE_SECONDS = 2.0
CACHE_KEYS = 10_000
_TOKEN = re.compile(rb"(?i:bearer) +" + PREFIX.encode() + rb"_([a-z0-9]{8,32})_([A-Za-z0-9_-]{43})")
_LONGEST = 256
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated key. `tenant` None: an operator's."""

    key_id: str
    tenant: TenantId | None
    scopes: frozenset[str]

    @property
    def operator(self) -> bool:
        """Whether this is an operator's key."""
        return self.tenant is None

    def demand(self, scope: str) -> None:
        """Go on only with this scope.

        Raises:
            ForbiddenError: the key lacks it.
        """
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            raise ForbiddenError(f"This needs the scope {scope!r}; the key has: {has}.")


class Authenticator:
    """Finds keys and compares secrets. Safe to use from threads."""

    def __init__(self, database: ApiDatabase, clock: Clock, pepper: bytes) -> None:
        self._database = database
        self._clock = clock
        self._pepper = pepper
        self._cache: dict[str, tuple[float, StoredKey]] = {}
        self._lock = threading.Lock()

    def authenticate(self, headers: Sequence[bytes]) -> Principal:
        """The key of a request, from the values of its Authorization headers.

        Raises:
            UnauthenticatedError: for every failure, with the same words.
            ForbiddenError: the tenant is suspended.
            UnavailableError: the database does not answer.
        """
        if len(headers) != 1 or len(headers[0]) > _LONGEST:
            raise _unauthenticated()
        found = _TOKEN.fullmatch(headers[0].strip())
        if found is None:
            raise _unauthenticated()
        key_id, secret = found[1].decode(), found[2].decode()
        key = self._find(key_id)
        # Hashed also where there is no such key, so that time tells nothing of which ids exist.
        wanted = secret_hash(key_id, secret, self._pepper)
        right = hmac.compare_digest(key.secret_hash if key is not None else b"", wanted)
        if key is None or not right or not key.usable or key.tenant_state == "deleted":
            raise _unauthenticated()
        if key.tenant_state == "suspended":
            raise ForbiddenError("The tenant is suspended.")
        return Principal(key.id, key.tenant, key.scopes)

    def tenant_named(self, name: str) -> TenantId:
        """The tenant that an operator names, by id or name.

        Raises:
            NotFoundError: there is none.
        """
        found = None
        if _TENANT.fullmatch(name):
            with self._database.installation() as tx:
                found = find_tenant(tx, name)
        if found is None or found.state == "deleted":
            raise NotFoundError(f"There is no tenant {name[:128]!r}.")
        return found.id

    def _find(self, key_id: str) -> StoredKey | None:
        now = self._clock.monotonic()
        with self._lock:
            kept = self._cache.get(key_id)
        if kept is not None and kept[0] > now:
            return kept[1]
        with self._database.installation() as tx:
            found = find_key(tx, key_id)
        with self._lock:
            if found is None:
                self._cache.pop(key_id, None)
            else:
                if len(self._cache) >= CACHE_KEYS:
                    self._cache.clear()
                self._cache[key_id] = (now + CACHE_SECONDS, found)
        return found


def _unauthenticated() -> UnauthenticatedError:
    return UnauthenticatedError("Send a valid API key: `Authorization: Bearer trk_...`.")

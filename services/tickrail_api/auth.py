"""Who asks: API keys and an issuer's tokens, checked within two seconds of any change."""

from __future__ import annotations

import hmac
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, Literal, TypeVar

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import (
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    TenantSuspendedError,
    UnauthenticatedError,
)
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.keys import PREFIX, parse_token
from tickrail.store.audit import write_operator_audit
from tickrail.store.engine import ApiDatabase
from tickrail.store.keys import (
    StoredKey,
    TenantRecord,
    find_key,
    find_tenant,
    secret_hash,
    touch_keys,
)
from tickrail.store.tenancy import Caller
from tickrail_api.guard import Guard
from tickrail_api.oidc import OPERATOR, Claims, EndedTokenError, TokenVerifier

CACHE_SECONDS: Final = 1.5
"""How long what the database said of a key or a tenant is believed."""
CACHE_SIZE: Final = 10_000
_KNOWN_SECONDS: Final = 600.0
_TOUCH_SECONDS: Final = 60.0
_NOTES_EVERY: Final = 5.0
_SLOWED_AT_ONCE: Final = 2
"""Keys of addresses that are slowed down that are looked up at a time."""
_SLOWED_PATIENCE: Final = 0.1
_BEARER = re.compile(rb"(?i:bearer) +([!-~]+)")
_LONGEST: Final = 16_384
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_log = structlog.get_logger("tickrail.api")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    Attributes:
        actor: `key:<id>`, `operator:<id>` or `subject:<issuer's host>/<sub>`.
        tenant: whose it is; None: an operator's.
        scopes: what it may do.
        kind: a key of a tenant or of an operator, or a token of the issuer.
        key_id: the key's; empty for a token.
        rate: requests in a second that it may make; None: as many as its tenant.
        ends_at: when a token ends; of a key the database says it.
    """

    actor: str
    tenant: TenantId | None
    scopes: frozenset[str]
    kind: Literal["key", "operator", "token"] = "key"
    key_id: str = ""
    rate: float | None = None
    ends_at: datetime | None = None

    @property
    def operator(self) -> bool:
        """Whether this is an operator."""
        return self.tenant is None

    def demand(self, scope: str) -> None:
        """Go on only with this scope.

        Raises:
            ForbiddenError: the key lacks it.
        """
        if scope not in self.scopes:
            has = ", ".join(sorted(self.scopes)) or "none"
            what = "token" if self.kind == "token" else "key"
            raise ForbiddenError(f"This needs the scope {scope!r}; the {what} has: {has}.")


class _Recent(Generic[T]):
    """What was seen a moment ago, by name; bounded. Safe to use from threads."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> T | None:
        with self._lock:
            kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] > self._clock.monotonic() else None

    def put(self, name: str, value: T, since: float) -> None:
        """Keep a value that was true at an instant of the monotonic clock."""
        with self._lock:
            self._kept[name] = (since + self._seconds, value)
            self._kept.move_to_end(name)
            if len(self._kept) > CACHE_SIZE:
                self._kept.popitem(last=False)


class Authenticator:
    """Finds keys and compares secrets, reads tokens. Safe to use from threads."""

    def __init__(
        self,
        database: ApiDatabase,
        clock: Clock,
        pepper: bytes,
        *,
        most_failures: int = 0,
        tokens: TokenVerifier | None = None,
    ) -> None:
        """Authenticate against a database.

        Args:
            database: where keys and tenants are.
            clock: the clock.
            pepper: mixed into the hashes of keys.
            most_failures: failures a minute of one address before it is slowed down; 0: any number.
            tokens: reads the tokens of an issuer; None: only keys are taken.
        """
        self._database = database
        self._clock = clock
        self._pepper = pepper
        self._guard = Guard(clock, most_failures)
        self._guesses = Guard(clock, most_failures)
        self._slowed = threading.BoundedSemaphore(_SLOWED_AT_ONCE)
        self._tokens = tokens
        self._keys: _Recent[StoredKey] = _Recent(clock, CACHE_SECONDS)
        self._tenants: _Recent[TenantRecord] = _Recent(clock, CACHE_SECONDS)
        self._right: _Recent[bytes] = _Recent(clock, _KNOWN_SECONDS)
        self._touched: _Recent[bool] = _Recent(clock, _TOUCH_SECONDS)
        self._used: set[str] = set()
        self._lock = threading.Lock()

    def authenticate(self, headers: Sequence[bytes], address: str = "") -> Principal:
        """Who makes a request.

        Args:
            headers: the values of its Authorization headers.
            address: where it comes from; failures are counted by it.

        Raises:
            UnauthenticatedError: for every failure, with the same words.
            RateLimitedError: too many failures came from the address.
            TenantSuspendedError: the tenant is suspended.
            UnavailableError: the database does not answer.
        """
        if not headers:
            raise _unauthenticated()
        try:
            return self._identify(headers, address)
        except (_EndedKeyError, EndedTokenError):
            raise _unauthenticated() from None
        except UnauthenticatedError:
            _slow_down(self._guard.failed(address))
            raise

    def tenant_named(self, name: str) -> TenantId:
        """The tenant that an operator names, by id or name.

        Raises:
            NotFoundError: there is none.
        """
        found = self._find_tenant(name)
        if found is None or found.state == "deleted":
            raise NotFoundError(f"There is no tenant {name[:128]!r}.")
        return found.id

    def run_once(self) -> float:
        """What goes on beside requests; seconds until it is to be called again.

        Raises:
            UnavailableError: the database does not answer.
        """
        if self._tokens is not None:
            self._tokens.refresh()
        self.write_notes()
        return _NOTES_EVERY

    def write_notes(self) -> None:
        """Write what requests left to be written: which keys were used, who was slowed down.

        Raises:
            UnavailableError: the database does not answer.
        """
        with self._lock:
            used, self._used = self._used, set()
        slowed = self._guard.take_notes()
        for key_id in self._guesses.take_notes():
            _log.warning("key_guessed", key_id=key_id)
        for address in slowed:
            _log.warning("authentication_slowed", address=address)
        if not used and not slowed:
            return
        now = self._clock.monotonic()
        # Not written where the database does not answer: a key that is used is noted again, and
        # the log has the addresses.
        with self._database.installation() as tx:
            if used:
                touch_keys(tx, sorted(used))
            for address in slowed:
                write_operator_audit(
                    tx,
                    Caller("anonymous", address=address),
                    uuid7(self._clock),
                    "authentication.slowed",
                    f"address:{address}",
                )
        for key_id in used:
            self._touched.put(key_id, True, now)

    def _identify(self, headers: Sequence[bytes], address: str) -> Principal:
        if len(headers) != 1 or len(headers[0]) > _LONGEST:
            raise _unauthenticated()
        found = _BEARER.fullmatch(headers[0].strip())
        if found is None:
            raise _unauthenticated()
        if found[1].startswith(PREFIX.encode() + b"_") or self._tokens is None:
            return self._of_key(found[1], address)
        claims = self._tokens.read(found[1].decode())
        if claims is None:
            raise _unauthenticated()
        return self._of_token(claims)

    def _of_key(self, token: bytes, address: str) -> Principal:
        parsed = parse_token(token)
        if parsed is None:
            raise _unauthenticated()
        key_id, secret = parsed
        # Hashed also where there is no such key, so that time tells nothing of which ids exist.
        wanted = secret_hash(key_id, secret, self._pepper)
        known = self._right.get(key_id)
        if known is not None and hmac.compare_digest(known, wanted):
            wait = None
        else:
            wait = self._guard.wait(address)
        key = self._find_key(key_id) if wait is None else self._find_slowed(key_id, wait)
        right = hmac.compare_digest(key.secret_hash if key is not None else b"", wanted)
        if key is not None and not right:
            self._guesses.failed(key_id)
        if key is None or not right:
            raise _unauthenticated()
        self._right.put(key_id, wanted, self._clock.monotonic())
        if not key.usable or key.tenant_state == "deleted":
            raise _EndedKeyError
        if key.tenant_state == "suspended":
            raise _suspended()
        if self._touched.get(key_id) is None:
            with self._lock:
                self._used.add(key_id)
        kind: Literal["key", "operator"] = "operator" if key.tenant is None else "key"
        return Principal(f"{kind}:{key_id}", key.tenant, key.scopes, kind, key_id, key.rate)

    def _of_token(self, claims: Claims) -> Principal:
        if OPERATOR in claims.scopes:
            scopes = claims.scopes - {OPERATOR}
            return Principal(claims.actor, None, scopes, "token", ends_at=claims.ends_at)
        tenant = self._find_tenant(claims.tenant) if claims.tenant else None
        if tenant is None or tenant.state == "deleted":
            raise _EndedKeyError
        if tenant.state == "suspended":
            raise _suspended()
        return Principal(claims.actor, tenant.id, claims.scopes, "token", ends_at=claims.ends_at)

    def _find_key(self, key_id: str) -> StoredKey | None:
        kept = self._keys.get(key_id)
        if kept is not None:
            return kept
        now = self._clock.monotonic()
        with self._database.installation() as tx:
            found = find_key(tx, key_id)
        if found is not None:
            self._keys.put(key_id, found, now)
        return found

    def _find_slowed(self, key_id: str, wait: int) -> StoredKey | None:
        """A key that an address sends that is slowed down.

        Others may be behind the same address, a balancer's perhaps, so a right key passes. Guesses
        are kept slow by the key they are for, and what looking up costs by how many do so at once.

        Raises:
            RateLimitedError: too many guesses of this key, or too many look-ups.
        """
        if self._guesses.wait(key_id) is not None:
            _slow_down(wait)
        if not self._slowed.acquire(timeout=_SLOWED_PATIENCE):
            _slow_down(wait)
        try:
            return self._find_key(key_id)
        finally:
            self._slowed.release()

    def _find_tenant(self, name: str) -> TenantRecord | None:
        if not _TENANT.fullmatch(name):
            return None
        kept = self._tenants.get(name)
        if kept is not None:
            return kept
        now = self._clock.monotonic()
        with self._database.installation() as tx:
            found = find_tenant(tx, name)
        if found is not None:
            self._tenants.put(name, found, now)
        return found


class _EndedKeyError(Exception):
    """What was sent is right and lets nobody in (any more): its sender guesses nothing."""


def _unauthenticated() -> UnauthenticatedError:
    return UnauthenticatedError("Send a valid API key: `Authorization: Bearer trk_...`.")


def _suspended() -> TenantSuspendedError:
    return TenantSuspendedError("The tenant is suspended.")


def _slow_down(wait: int | None) -> None:
    if wait is not None:
        raise RateLimitedError(
            "Too many wrong keys came from this address; wait before the next try.",
            retry_after=wait,
        )

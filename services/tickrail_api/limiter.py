"""How many requests a tenant and a key may make: tokens shared by all processes of the API.

A caller without such a quota costs a look at its tenant's quotas every two seconds, and no other
statement; one with a quota a statement for each slice of tokens (core/request_rate.py). Callers
are told by the RateLimit fields of draft-ietf-httpapi-ratelimit-headers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import RateLimitedError
from tickrail.core.ids import TenantId
from tickrail.core.limits import INSTALLATION
from tickrail.core.ports_metrics import Metrics
from tickrail.core.quotas import (
    Quota,
    Reached,
    RequestRate,
    reached_document,
    request_rate,
    window_of,
)
from tickrail.core.request_rate import SLICE_SECONDS, Slice
from tickrail.store.engine import ApiDatabase, ApiTransaction
from tickrail.store.quotas import take_tokens
from tickrail.store.tenancy import Caller
from tickrail_api.auth import Principal

KNOWN_SECONDS: Final = 2.0
"""For so long a tenant's quota of requests is known."""
MOST_KNOWN: Final = 10_000
TENANT: Final = "tenant"
KEY: Final = "key"
_SYSTEM: Final = Caller("system")
_NEAR: Final = 0.2
log = structlog.get_logger("tickrail.api")


@dataclass(slots=True)
class _Hold:
    """What this process holds of a bucket, used under its lock.

    Attributes:
        tokens: requests that may pass.
        until: until when, monotonic seconds.
        left: what the bucket held when they were taken.
        at: when that was.
        again: before this nothing is worth asking for.
        ready: when the next token comes.
        told: the level that the tenant was told of, and the day.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    tokens: int = 0
    until: float = 0.0
    left: float = 0.0
    at: float = 0.0
    again: float = 0.0
    ready: float = 0.0
    told: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A bucket that a request needs a token of."""

    name: str
    tenant: TenantId
    key_id: str
    rate: RequestRate


class RequestLimiter:
    """Lets requests pass, or not. Safe to use from threads."""

    def __init__(self, database: ApiDatabase, clock: Clock, metrics: Metrics) -> None:
        """A limiter that knows nothing yet.

        Args:
            database: where the buckets are.
            clock: for how long something is known.
            metrics: counts what is refused.
        """
        self._database = database
        self._clock = clock
        self._metrics = metrics
        self._lock = threading.Lock()
        self._rates: dict[TenantId, tuple[float, RequestRate | None]] = {}
        self._holds: dict[tuple[TenantId, str], _Hold] = {}

    def admit(self, principal: Principal) -> tuple[Mapping[bytes, bytes], RateLimitedError | None]:
        """Whether a request passes: what its answer says of the limits, and the refusal.

        Raises:
            UnavailableError: the database does not answer.
        """
        asks = self._asks(principal)
        if not asks:
            return {}, None
        now = self._clock.monotonic()
        taken: list[_Hold] = []
        refused: tuple[_Ask, float] | None = None
        holds = [self._hold(ask) for ask in asks]
        for ask, hold in zip(asks, holds, strict=True):
            wait = self._take(ask, hold, now)
            if wait is not None:
                refused = (ask, wait)
                break
            taken.append(hold)
        if refused is None:
            return _fields(asks, holds, now), None
        for hold in taken:
            # The request does not pass: what it had got already is for the next one.
            with hold.lock:
                hold.tokens += 1
        ask, wait = refused
        self._metrics.count("tenant_throttled_total", reason="requests")
        seconds = max(1, ceil(wait))
        error = RateLimitedError(
            f"The {ask.name} may make {ask.rate.per_second:g} requests a second,"
            f" {ask.rate.burst} at once.",
            retry_after=seconds,
        )
        return _fields(asks, holds, now), error

    def _asks(self, principal: Principal) -> Sequence[_Ask]:
        """The buckets of a caller; the narrower one first."""
        tenant = principal.tenant or INSTALLATION
        asks = []
        own = request_rate(principal.rate)
        if own is not None:
            asks.append(_Ask(KEY, tenant, principal.key_id, own))
        shared = None if principal.tenant is None else self._rate_of(principal.tenant)
        if shared is not None:
            asks.append(_Ask(TENANT, tenant, "", shared))
        return asks

    def _rate_of(self, tenant: TenantId) -> RequestRate | None:
        now = self._clock.monotonic()
        with self._lock:
            known = self._rates.get(tenant)
            if known is not None and known[0] > now:
                return known[1]
            if known is not None:
                # This one looks; the others go on with what was known until it has.
                self._rates[tenant] = (now + KNOWN_SECONDS, known[1])
        with self._database.tenant(tenant, _SYSTEM) as tx:
            found = tx.quotas.read().requests
        with self._lock:
            if len(self._rates) >= MOST_KNOWN:
                self._rates.clear()
            self._rates[tenant] = (now + KNOWN_SECONDS, found)
        return found

    def _hold(self, ask: _Ask) -> _Hold:
        with self._lock:
            found = self._holds.get((ask.tenant, ask.key_id))
            if found is None:
                if len(self._holds) >= MOST_KNOWN:
                    # What they hold comes back to the buckets with time.
                    self._holds.clear()
                found = self._holds[ask.tenant, ask.key_id] = _Hold()
            return found

    def _take(self, ask: _Ask, hold: _Hold, now: float) -> float | None:
        """Take a token; None: done, else the seconds until there is one."""
        with hold.lock:
            if hold.tokens > 0 and now < hold.until:
                hold.tokens -= 1
                return None
            if now < hold.again:
                return hold.ready - now
            got = self._slice(ask, hold)
            hold.at = now
            hold.until = now + SLICE_SECONDS
            hold.left = got.left
            hold.tokens = max(0, got.tokens - 1)
            hold.ready = now + got.wait
            # Another process may bring tokens back before that.
            hold.again = min(hold.ready, hold.until)
            return None if got.tokens else got.wait

    def _slice(self, ask: _Ask, hold: _Hold) -> Slice:
        with self._database.tenant(ask.tenant, _SYSTEM) as tx:
            got = take_tokens(tx.base, ask.key_id, ask.rate, hold.tokens)
            if ask.name == TENANT and got.left <= ask.rate.burst * _NEAR:
                self._tell(tx, ask, hold, got)
        return got

    def _tell(self, tx: ApiTransaction, ask: _Ask, hold: _Hold, got: Slice) -> None:
        """Tell the tenant, once a day for each level, that its bucket is near its end."""
        percent = 80 if got.tokens else 100
        window = window_of(Quota.REQUESTS_PER_SECOND, tx.now)
        day = window.starts_at.isoformat()
        if hold.told[0] == day and hold.told[1] >= percent:
            return
        hold.told = (day, percent)
        used = ask.rate.burst - int(got.left)
        level = Reached(Quota.REQUESTS_PER_SECOND, percent, ask.rate.burst, used, window)
        if tx.quotas.tell(level):
            log.info("quota_reached", tenant=str(ask.tenant), **reached_document(level))


def _fields(asks: Sequence[_Ask], holds: Sequence[_Hold], now: float) -> Mapping[bytes, bytes]:
    policies, limits = [], []
    for ask, hold in zip(asks, holds, strict=True):
        rate = ask.rate
        came = max(0.0, now - hold.at) * rate.per_second
        left = min(rate.burst, int(hold.tokens + hold.left + came))
        full = ceil((rate.burst - left) / rate.per_second)
        policies.append(f'"{ask.name}";q={rate.burst};w={ceil(rate.burst / rate.per_second)}')
        limits.append(f'"{ask.name}";r={left};t={full}')
    return {
        b"ratelimit-policy": ", ".join(policies).encode(),
        b"ratelimit": ", ".join(limits).encode(),
    }

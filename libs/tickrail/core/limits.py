"""How much may run at once and how much may start in a time: what a claim decides under limits.

Pure. The stores lock the limits, count what runs, ask `admit`, and write down what it says; so
what all workers together hold never exceeds a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from tickrail.core.ids import LaunchId, TenantId

INSTALLATION: Final = TenantId(UUID(int=0))
"""The tenant of limits that hold for everybody."""
QUEUE: Final = "queue"
TENANT: Final = "tenant"
KEY: Final = "key"

PAUSED: Final = "paused"
MAX_RUNNING: Final = "max_running"
CONCURRENCY: Final = "concurrency"
RATE: Final = "rate"
THROTTLED: Final = frozenset({PAUSED, MAX_RUNNING, CONCURRENCY, RATE})
"""Why a claim is refused although the launch could start."""

CLASS_WEIGHTS: Final = (6, 3, 1)
"""The shares of the classes, by rank."""
_BURST: Final = 1.0
_AGAIN: Final = 60.0
_AGAIN_MORE: Final = 6.0
_AGAIN_MOST: Final = 3600.0
_WINDOW: Final = 5


class Scope(NamedTuple):
    """What a limit is about: a queue, a tenant (no name) or a concurrency key."""

    tenant: TenantId
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in so many seconds, as a bucket of tokens that fills steadily.

    The bucket holds one token more than what comes in a second: that is how late a start may be
    without a token being lost, and by how much a minute may exceed its share: by 1.7 % and one
    start.
    """

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Tokens that come in a second."""
        return self.count / self.seconds

    @property
    def capacity(self) -> float:
        """Tokens that the bucket holds at most."""
        return 1.0 + _BURST * self.per_second

    def filled(self, tokens: float, since: datetime | None, now: datetime) -> float:
        """Tokens in the bucket now, of which it held so many then; never used: it is full."""
        if since is None:
            return self.capacity
        seconds = max(0.0, (now - since).total_seconds())
        return min(self.capacity, tokens + seconds * self.per_second)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit as stored. `tokens`: what the bucket held at `filled_at`; None: never used."""

    paused: bool = False
    max_running: int | None = None
    rate: Rate | None = None
    tokens: float = 0.0
    filled_at: datetime | None = None

    def window(self, running: int) -> int | None:
        """How many launches under it may be on their way to a claim; None: any number.

        As many as there are free places, or some for the next tokens, and not the whole backlog,
        which would be published only to be refused.
        """
        if self.paused:
            return 0
        sizes = []
        if self.max_running is not None:
            sizes.append(max(0, self.max_running - running))
        if self.rate is not None:
            sizes.append(int(_WINDOW * self.rate.per_second) + _WINDOW)
        return min(sizes, default=None)


class Asker(NamedTuple):
    """A launch that could start. `key`: its concurrency key, of which `key_limit` may run."""

    id: LaunchId
    tenant: TenantId
    queue: str
    key: str | None = None
    key_limit: int | None = None

    @property
    def scopes(self) -> Iterator[Scope]:
        """What it may be limited by."""
        yield from shared_scopes(self.tenant, self.queue)
        if self.key is not None:
            yield Scope(self.tenant, KEY, self.key)


def shared_scopes(tenant: TenantId, queue: str) -> Iterator[Scope]:
    """The limits that a tenant's launches in a queue fall under."""
    yield Scope(INSTALLATION, QUEUE, queue)
    yield Scope(tenant, QUEUE, queue)
    yield Scope(tenant, TENANT, "")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of each scope: what runs, how many wait for a place, how many for a token.

    Those that ask are not among those that wait.
    """

    running: Mapping[Scope, int] = field(default_factory=dict)
    waiting: Mapping[Scope, int] = field(default_factory=dict)
    owed: Mapping[Scope, int] = field(default_factory=dict)


class Refusal(NamedTuple):
    """Why a launch may not start, and in how many seconds it is tried again without being told.

    `scope` None: it waits for no place and is due as before.
    """

    reason: str
    scope: Scope | None = None
    delay: float = 0.0


@dataclass(slots=True)
class Admission:
    """What a claim under limits grants: by launch, the scopes in which it holds a place.

    `tokens`: what is left in the buckets.
    """

    granted: dict[LaunchId, Sequence[Scope]] = field(default_factory=dict)
    refused: dict[LaunchId, Refusal] = field(default_factory=dict)
    tokens: dict[Scope, float] = field(default_factory=dict)


def admit(
    askers: Sequence[Asker],
    limits: Mapping[Scope, Limit],
    usage: Usage,
    paused: frozenset[str],
    now: datetime,
) -> Admission:
    """Decide in the order of asking who may start.

    Args:
        askers: launches that could start if there were no limits.
        limits: of their scopes, those that there are.
        usage: of these scopes and of the concurrency keys.
        paused: queues that are paused for everybody.
        now: the database's clock.
    """
    rates = {s: x.rate for s, x in limits.items() if x.rate is not None}
    done = Admission(
        tokens={s: r.filled(limits[s].tokens, limits[s].filled_at, now) for s, r in rates.items()}
    )
    running, waiting, owed = Counter(usage.running), Counter(usage.waiting), Counter(usage.owed)
    for a in askers:
        most = {s: x.max_running for s in a.scopes if (x := limits.get(s)) and x.max_running}
        if a.key is not None:
            most[Scope(a.tenant, KEY, a.key)] = a.key_limit or 1
        full = next((s for s, n in most.items() if running[s] >= n), None)
        spent = next((s for s in a.scopes if s in rates and done.tokens[s] < 1 - 1e-9), None)
        if a.queue in paused or any(limits[s].paused for s in a.scopes if s in limits):
            done.refused[a.id] = Refusal(PAUSED)
        elif full is not None:
            reason = CONCURRENCY if full.kind == KEY else MAX_RUNNING
            again = min(_AGAIN_MOST, _AGAIN + _AGAIN_MORE * waiting[full])
            done.refused[a.id] = Refusal(reason, full, again)
            waiting[full] += 1
        elif spent is not None:
            ahead = owed[spent] + 1 - done.tokens[spent]
            again = min(_AGAIN_MOST, ahead / rates[spent].per_second)
            done.refused[a.id] = Refusal(RATE, spent, again)
            owed[spent] += 1
        else:
            for s in most:
                running[s] += 1
            for s in a.scopes:
                if s in rates:
                    done.tokens[s] -= 1
            done.granted[a.id] = tuple(most)
    return done

"""Limits at the claim on the tables in memory, as `tickrail/store/limits.py` has them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tests.support.memory_tables import HoldRow, LaunchRow, MemoryDatabase

from tickrail.core.ids import LaunchId, Partition, TenantId
from tickrail.core.limits import (
    CLASS_WEIGHTS,
    INSTALLATION,
    KEY,
    QUEUE,
    RATE,
    Admission,
    Asker,
    Limit,
    Scope,
    Usage,
    admit,
    shared_scopes,
)
from tickrail.core.ports import Load
from tickrail.core.states import State

_EARLIER = timedelta(microseconds=1)
_RNG = random.Random(1)
WAITING = frozenset({State.DUE, State.QUEUED})


def ask(db: MemoryDatabase, could: Sequence[LaunchRow], now: datetime) -> Admission:
    askers = [
        Asker(x.id, x.tenant_id, x.queue, x.concurrency_key, x.concurrency_limit) for x in could
    ]
    limits = {s: db.limits[s] for a in askers for s in a.scopes if s in db.limits}
    for scope, limit in limits.items():
        if limit.filled_at is None:
            _count_running(db, scope)
            tokens = limit.rate.capacity if limit.rate else 0.0
            db.limits[scope] = replace(limit, tokens=tokens, filled_at=now)
    ids = {a.id for a in askers}
    decided = admit(askers, limits, _usage(db, ids), frozenset(db.paused_queues), now)
    for scope, tokens in decided.tokens.items():
        db.limits[scope] = replace(db.limits[scope], tokens=tokens, filled_at=now)
    for launch, refusal in decided.refused.items():
        row = db.launches[launch]
        row.state = State.DUE
        row.due_at -= _EARLIER
        if refusal.scope is not None:
            _wait(db, row, refusal.scope, refusal.reason)
            row.due_at = now + timedelta(seconds=refusal.delay)
    for a in askers:
        for scope in a.scopes if a.id in decided.granted else ():
            db.holds.pop((scope, a.id), None)
    return decided


def _wait(db: MemoryDatabase, row: LaunchRow, scope: Scope, reason: str) -> None:
    waits = [k for k, h in db.holds.items() if k[1] == row.id and h.claim is None]
    before = [h for h in map(db.holds.pop, waits) if h.attempt == row.attempt]
    since = [h.due_at - _EARLIER for h in before if h.due_at is not None]
    asked = min((h.asked for h in before), default=_turn(db))
    due_at = min([row.due_at, *since])
    db.holds[scope, row.id] = HoldRow(asked, None, reason, due_at, row.attempt)


def _turn(db: MemoryDatabase) -> int:
    return max((h.asked for h in db.holds.values()), default=0) + 1


def place(db: MemoryDatabase, row: LaunchRow, scopes: Iterable[Scope]) -> None:
    for scope in scopes:
        db.holds[scope, row.id] = HoldRow(_turn(db), row.claim)


def leave(db: MemoryDatabase, ended: Iterable[LaunchRow], now: datetime) -> int:
    freed: Counter[Scope] = Counter()
    for row in ended:
        mine = [s for (s, i), h in db.holds.items() if i == row.id and h.claim is not None]
        for scope in mine:
            del db.holds[scope, row.id]
            freed[scope] += 1
    told = 0
    for scope, places in freed.items():
        asleep = [x for x in _waiters(db, scope) if x.state is State.DUE and x.due_at > now]
        turns = []
        for rank, weight in enumerate(CLASS_WEIGHTS):
            of_class = [x for x in asleep if x.priority == rank][:places]
            turns += [((n + _RNG.expovariate(1.0)) / weight, x) for n, x in enumerate(of_class)]
        for _, row in sorted(turns, key=lambda t: t[0])[:places]:
            told += _due_again(db, scope, row)
    return told


def rouse(db: MemoryDatabase, partitions: Collection[Partition], now: datetime) -> int:
    count = 0
    for (scope, launch), hold in list(db.holds.items()):
        row = db.launches.get(launch)
        if hold.reason == RATE and row is not None and row.partition in partitions:
            late = hold.due_at is not None and hold.due_at < row.due_at <= now
            if row.state is State.DUE and late and hold.attempt == row.attempt:
                count += _due_again(db, scope, row)
    count += _sooner(db, partitions, now)
    for scope in {s for (s, _), h in db.holds.items() if h.claim is None and h.reason != RATE}:
        waiters = sorted(_waiters(db, scope), key=lambda x: x.priority)
        most = db.limits.get(scope, Limit()).max_running
        asleep = [x for x in waiters if x.state is State.DUE and x.due_at > now]
        awake, turn = len(waiters) - len(asleep), 0
        for row in asleep:
            own = row.concurrency_limit or 1 if scope.kind == KEY else most
            places = len(waiters) if own is None else own - _running(db)[scope]
            turn += places > 0
            if 0 < turn <= places - awake and row.partition in partitions:
                count += _due_again(db, scope, row)
    return count


def _sooner(db: MemoryDatabase, partitions: Collection[Partition], now: datetime) -> int:
    """Shorten the waits for tokens that are longer than the rate asks for."""
    count = 0
    for scope in {s for (s, _), h in db.holds.items() if h.reason == RATE}:
        limit = db.limits.get(scope, Limit())
        waiters = sorted(_waiters(db, scope, rate=True), key=lambda x: x.due_at)
        for turn, row in enumerate(waiters, 1):
            if row.state is not State.DUE or row.due_at <= now or row.partition not in partitions:
                continue
            delay = 0.0
            if limit.rate is not None:
                tokens = limit.rate.filled(limit.tokens, limit.filled_at, now)
                delay = (turn - tokens) / limit.rate.per_second
            if delay <= 0:
                count += _due_again(db, scope, row)
            elif (row.due_at - now).total_seconds() > delay + 1:
                row.due_at = now + timedelta(seconds=delay)
                count += 1
    return count


def _due_again(db: MemoryDatabase, scope: Scope, row: LaunchRow) -> int:
    due = db.holds[scope, row.id].due_at
    assert due is not None
    row.due_at = due
    return 1


def _waiters(db: MemoryDatabase, scope: Scope, *, rate: bool = False) -> list[LaunchRow]:
    """Who waits for a place (or for a token), in the order of asking."""
    found = [
        (h.asked, i, h.attempt)
        for (s, i), h in db.holds.items()
        if s == scope and h.claim is None and (h.reason == RATE) is rate
    ]
    rows = [(db.launches[i], attempt) for _, i, attempt in sorted(found) if i in db.launches]
    return [x for x, attempt in rows if x.state in WAITING and x.attempt == attempt]


def _running(db: MemoryDatabase) -> Counter[Scope]:
    return Counter(
        scope
        for (scope, launch), h in db.holds.items()
        if h.claim is not None
        and (row := db.launches.get(launch)) is not None
        and row.state is State.RUNNING
        and row.claim == h.claim
    )


def _usage(db: MemoryDatabase, ids: Collection[LaunchId]) -> Usage:
    others = [(s, i, h) for (s, i), h in db.holds.items() if h.claim is None and i not in ids]
    return Usage(
        _running(db),
        Counter(s for s, _, h in others if h.reason != RATE),
        Counter(s for s, i, h in others if h.reason == RATE and db.launches[i].state in WAITING),
    )


def _count_running(db: MemoryDatabase, scope: Scope) -> None:
    for row in db.launches.values():
        if row.state is not State.RUNNING:
            continue
        if scope in set(shared_scopes(row.tenant_id, row.queue)):
            place(db, row, [scope])


def pauses(db: MemoryDatabase, tenant: TenantId, queue: str) -> bool:
    return db.limits.get(Scope(tenant, QUEUE, queue), Limit()).paused


def loads(
    db: MemoryDatabase,
    pairs: Iterable[tuple[TenantId, str]],
    partitions: Collection[Partition],
    now: datetime,
) -> Mapping[Scope, Load]:
    found: dict[Scope, Load] = {}
    mine = [x for x in db.launches.values() if x.partition in partitions]
    for tenant, queue in pairs:
        for scope in shared_scopes(tenant, queue):
            if scope in db.limits:
                under_way = sum(
                    (x.state is State.QUEUED and scope in set(shared_scopes(x.tenant_id, x.queue)))
                    or (
                        x.state is State.DUE
                        and x.due_at > now
                        and (h := db.holds.get((scope, x.id))) is not None
                        and h.claim is None
                        and h.attempt == x.attempt
                    )
                    for x in mine
                )
                found[scope] = Load(db.limits[scope], under_way, _running(db)[scope])
        if queue in db.paused_queues:
            found[Scope(INSTALLATION, QUEUE, queue)] = Load(Limit(paused=True), 0)
    return found

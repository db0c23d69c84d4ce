"""Limits on PostgreSQL: what a claim may grant, who waits, and who is told when a place is free.

Locks: rows of limits by their key, then keys of concurrency, then launches by id. The end of an
attempt takes no lock of a limit; it only deletes places, and the next claim under the limit counts
those that are left. Who waits is told by an update that passes over locked rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from tickrail.core.ids import LaunchId, Partition, TenantId
from tickrail.core.limits import (
    CLASS_WEIGHTS,
    INSTALLATION,
    KEY,
    QUEUE,
    Admission,
    Asker,
    Limit,
    Rate,
    Scope,
    Usage,
    admit,
    shared_scopes,
)
from tickrail.core.ports import Load
from tickrail.core.ports_worker import Claimed, ClaimRequest
from tickrail.store.queries import load
from tickrail.store.session import Cursor

_SQL = load("limits")
_KEYS_LOCK = 7_241_002
_SCOPES_A_PASS = 500
_PLACES_EVERY = timedelta(seconds=1)
_STALE_A_PASS = 20_000
_SLACK = 1.0
"""Seconds that a wait for a token may be too long before it is shortened."""
_START = Scope(INSTALLATION, "", "")


def ask(cursor: Cursor, requests: Sequence[ClaimRequest]) -> Admission | None:
    """Who of these may start under the limits that there are; None: there are none.

    Those that may not wait from now on. Where there are limits, all that could start is locked
    afterwards, in id order; what is in neither part of the answer could not start.
    """
    keys: dict[str, object] = {
        "id": [r.id for r in requests],
        "scheduled_at": [r.scheduled_at for r in requests],
    }
    row = cursor.execute(_SQL["is_limited"], {**keys, "installation": INSTALLATION}).fetchone()
    if row is None or not row[0]:
        return None
    found = cast("Any", cursor.execute(_SQL["askers"], keys).fetchall())
    concerned = [Asker(*r) for r in found]
    limits, now = _lock(cursor, concerned)
    rows = cursor.execute(
        _SQL["lock_claimable"], {**keys, "attempt": [r.attempt for r in requests]}
    ).fetchall()
    could = {r[0]: Asker(*r) for r in cast("Any", rows)}
    askers = [could[r.id] for r in requests if r.id in could]
    usage = _usage(cursor, askers, limits)
    rows = cursor.execute(
        _SQL["paused_queues"], {"queue": list({a.queue for a in askers})}
    ).fetchall()
    paused = frozenset(r[0] for r in cast("Any", rows))
    decided = admit(askers, limits, usage, paused, now)
    if decided.tokens:
        tokens = list(decided.tokens.values())
        given = {**_columns(decided.tokens), "tokens": tokens, "now": now}
        cursor.execute(_SQL["take_tokens"], given)
    slots = {r.id: r.scheduled_at for r in requests}
    _refuse(cursor, decided, slots)
    _end_waits(cursor, [could[i] for i in decided.granted])
    return decided


def place(cursor: Cursor, decided: Admission, granted: Iterable[Claimed]) -> None:
    """Note the places that granted claims hold."""
    pairs = [(c, s) for c in granted for s in decided.granted.get(c.id, ())]
    if pairs:
        cursor.execute(
            _SQL["place"],
            {
                **_columns(s for _, s in pairs),
                "id": [c.id for c, _ in pairs],
                "scheduled_at": [c.scheduled_at for c, _ in pairs],
            },
        )


def leave(cursor: Cursor, launches: Sequence[tuple[LaunchId, datetime]]) -> int:
    """Give the places of ended attempts back; how many that wait for one were told."""
    if not launches:
        return 0
    high, normal, low = CLASS_WEIGHTS
    cursor.execute(
        _SQL["leave"],
        {
            "id": [x[0] for x in launches],
            "scheduled_at": [x[1] for x in launches],
            "installation": INSTALLATION,
            "high": high,
            "normal": normal,
            "low": low,
        },
    )
    return cursor.rowcount


class OwnerLimits:
    """What an owner does about limits. Used by the owner's thread alone."""

    def __init__(self) -> None:
        self._after = _START
        self._looked: datetime | None = None

    def rouse(self, cursor: Cursor, partitions: Collection[Partition], now: datetime) -> int:
        """Make due what waited and whose time, or whose place, has come; how many."""
        keys: dict[str, object] = {"partitions": list(partitions)}
        cursor.execute(_SQL["tokens_come"], keys)
        count = cursor.rowcount
        if self._looked is None or not timedelta(0) <= now - self._looked < _PLACES_EVERY:
            self._looked = now
            cursor.execute(_SQL["tokens_sooner"], {**keys, "slack": _SLACK})
            count += cursor.rowcount
            tenant, scope, name = self._after
            keys |= {"tenant": tenant, "scope": scope, "name": name, "limit": _SCOPES_A_PASS}
            rows = cast("Any", cursor.execute(_SQL["places_free"], keys).fetchall())
            self._after = Scope(*rows[-1][:3]) if len(rows) == _SCOPES_A_PASS else _START
            count += rows[0][3] if rows else 0
        return count


def drop_stale(cursor: Cursor) -> None:
    """Forget places of attempts that are over, and waiters that wait no more; so many at most.

    In two statements: the second sees the rows as they are once nobody else can use them again.
    """
    rows = cast(
        "Any", cursor.execute(_SQL["maybe_stale_holds"], {"limit": _STALE_A_PASS}).fetchall()
    )
    if rows:
        given = {**_columns(Scope(*r[:3]) for r in rows), "id": [r[3] for r in rows]}
        cursor.execute(_SQL["drop_stale_holds"], given)


def are_limits(cursor: Cursor) -> tuple[bool, bool]:
    """Whether there is any limit or paused queue, and whether a launch waits at one."""
    row = cursor.execute(_SQL["are_limits"]).fetchone()
    return (bool(row[0]), bool(row[1])) if row else (False, False)


def loads(
    cursor: Cursor,
    pairs: Collection[tuple[TenantId, str]],
    partitions: Sequence[Partition],
    since: datetime,
) -> Mapping[Scope, Load]:
    """The limits of these tenants in these queues, and what is under way to each."""
    scopes = {s for tenant, queue in pairs for s in shared_scopes(tenant, queue)}
    if not scopes:
        return {}
    rows = cursor.execute(_SQL["loads"], {**_columns(scopes), "partitions": partitions}).fetchall()
    found = {Scope(*r[:3]): Load(_limit(*r[3:7]), r[7], r[8]) for r in cast("Any", rows)}
    queues = {"queue": list({queue for _, queue in pairs})}
    for (name,) in cast("Any", cursor.execute(_SQL["paused_queues"], queues).fetchall()):
        found[Scope(INSTALLATION, QUEUE, name)] = Load(Limit(paused=True), 0)
    if not found:
        return {}
    keys = {"partitions": partitions, "since": since}
    queued: dict[Scope, int] = {}
    for tenant, queue, count in cast(
        "Any", cursor.execute(_SQL["queued_by_tenant"], keys).fetchall()
    ):
        for scope in shared_scopes(tenant, queue):
            queued[scope] = queued.get(scope, 0) + count
    return {s: x._replace(under_way=x.under_way + queued.get(s, 0)) for s, x in found.items()}


def _lock(cursor: Cursor, concerned: Sequence[Asker]) -> tuple[Mapping[Scope, Limit], datetime]:
    """The limits of these launches, locked, and the database's clock once they are."""
    scopes = {s for a in concerned for s in shared_scopes(a.tenant, a.queue)}
    rows = cast("Any", cursor.execute(_SQL["lock_limits"], _columns(scopes)).fetchall())
    limits = {Scope(*r[:3]): _limit(*r[3:]) for r in rows}
    keyed = [f"{a.tenant}{a.key}" for a in concerned if a.key is not None]
    if keyed:
        cursor.execute(_SQL["lock_keys"], {"lock": _KEYS_LOCK, "key": keyed})
    fresh = [s for s, x in limits.items() if x.filled_at is None]
    if fresh:
        cursor.execute(_SQL["count_running"], {**_columns(fresh), "installation": INSTALLATION})
    row = cursor.execute("select clock_timestamp()").fetchone()
    now = cast("datetime", row[0] if row else None)
    if fresh:
        filled = [x.rate.capacity if x.rate else 0.0 for s, x in limits.items() if s in fresh]
        cursor.execute(_SQL["take_tokens"], {**_columns(fresh), "tokens": filled, "now": now})
    return limits, now


def _usage(cursor: Cursor, askers: Sequence[Asker], limits: Mapping[Scope, Limit]) -> Usage:
    scopes = {s for a in askers for s in a.scopes if s in limits or s.kind == KEY}
    if not scopes:
        return Usage()
    rows = cast(
        "Any",
        cursor.execute(
            _SQL["usage"], {**_columns(scopes), "id": [a.id for a in askers]}
        ).fetchall(),
    )
    counted = {Scope(*r[:3]): r[3:] for r in rows}
    return Usage(*({s: r[i] for s, r in counted.items()} for i in range(3)))


def _refuse(cursor: Cursor, decided: Admission, slots: Mapping[LaunchId, datetime]) -> None:
    waiting = [(i, r.scope, r) for i, r in decided.refused.items() if r.scope is not None]
    if waiting:
        cursor.execute(
            _SQL["wait"],
            {
                **_columns(s for _, s, _ in waiting),
                "installation": INSTALLATION,
                "id": [i for i, _, _ in waiting],
                "scheduled_at": [slots[i] for i, _, _ in waiting],
                "reason": [r.reason for _, _, r in waiting],
                "delay": [r.delay for _, _, r in waiting],
            },
        )
    back = [i for i, r in decided.refused.items() if r.scope is None]
    if back:
        cursor.execute(_SQL["give_back"], {"id": back, "scheduled_at": [slots[i] for i in back]})


def _end_waits(cursor: Cursor, granted: Sequence[Asker]) -> None:
    """Of launches that are granted: also where there is no limit any more."""
    pairs = [(a.id, s) for a in granted for s in a.scopes]
    if pairs:
        given = {**_columns(s for _, s in pairs), "id": [i for i, _ in pairs]}
        cursor.execute(_SQL["end_waits"], given)


def _columns(scopes: Iterable[Scope]) -> dict[str, object]:
    found = list(scopes)
    return {
        "tenant": [s.tenant for s in found],
        "scope": [s.kind for s in found],
        "name": [s.name for s in found],
    }


def _limit(
    paused: bool,
    max_running: int | None,
    rate_count: int | None,
    rate_seconds: float | None,
    tokens: float = 0.0,
    filled_at: datetime | None = None,
) -> Limit:
    rate = None if rate_count is None or rate_seconds is None else Rate(rate_count, rate_seconds)
    return Limit(paused, max_running, rate, tokens, filled_at)

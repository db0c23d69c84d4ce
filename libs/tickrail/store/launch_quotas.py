"""Quotas of launches, where launch records are made: held, counted and told of in one transaction.

Without SQLAlchemy, which the owner's process would load for this alone.

Whoever makes launches of a tenant that has such a quota first takes the tenant's lock
(`pg_advisory_xact_lock(LOCK, hash)`) and keeps it until the commit, so what is read of the counters
is what they are when they are written. A tick and a pass over backfills only try to take it, after
the rows of jobs and fences: where another transaction has it, the tenant's jobs stay due. A trigger
waits for it, with its job's row held and before it touches a launch; nobody who has the lock waits
for a job's row. So nobody waits in a circle. Tenants without such a quota have no lock and no row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from tickrail.core.clock import Clock
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.limits import INSTALLATION
from tickrail.core.ports_notice import MOST_A_MINUTE
from tickrail.core.quota_notices import reached_notice
from tickrail.core.quotas import (
    Counted,
    Quota,
    Reached,
    left_of,
    reached,
    reached_document,
    window_of,
)
from tickrail.store.queries import load
from tickrail.store.session import Cursor

LOCK: Final = 7_241_003
_SQL = load("quotas")


@dataclass(frozen=True, slots=True)
class HeldQuotas:
    """The quotas of launches of some tenants, held until the transaction ends.

    Attributes:
        counted: of each tenant that has some, what is used of them.
        busy: tenants whose quotas another transaction holds: nothing of theirs may be made now.
        rooms: how many launches of each tenant still fit; whoever plans takes from it.
    """

    counted: Mapping[TenantId, Sequence[Counted]] = field(default_factory=dict)
    busy: frozenset[TenantId] = frozenset()
    rooms: dict[TenantId, int] = field(default_factory=dict)


def hold_quotas(cursor: Cursor, tenants: Collection[TenantId], now: datetime) -> HeldQuotas:
    """Hold the quotas of launches that these tenants have; one statement where none has any.

    Args:
        cursor: a transaction that holds the rows of jobs and fences that it needs.
        tenants: of the launches to be made.
        now: the beginning of the transaction, by which the windows are told.
    """
    if not tenants:
        return HeldQuotas()
    keys = {"tenant": list(tenants), "installation": INSTALLATION, "lock": LOCK}
    rows = cast("Any", cursor.execute(_SQL["hold"], keys).fetchall())
    if not rows:
        return HeldQuotas()
    busy = frozenset(TenantId(row[0]) for row in rows if not row[3])
    wanted = [
        (TenantId(row[0]), Counted(quota, window_of(quota, now), int(amount)))
        for row in rows
        if row[3]
        for quota, amount in ((Quota.LAUNCHES_PER_MINUTE, row[1]), (Quota.LAUNCHES_PER_DAY, row[2]))
        if amount is not None
    ]
    found = cast("Any", cursor.execute(_SQL["used"], _columns(wanted)).fetchall())
    used = {(tenant, quota): (int(n), int(told)) for tenant, quota, n, told in found}
    counted: dict[TenantId, list[Counted]] = {}
    for tenant, one in wanted:
        n, told = used.get((tenant, one.quota.value), (0, 0))
        counted.setdefault(tenant, []).append(one._replace(used=n, told=told))
    return HeldQuotas(counted, busy, {t: left_of(c) for t, c in counted.items()})


def count_launches(
    cursor: Cursor, clock: Clock, held: HeldQuotas, made: Mapping[TenantId, int]
) -> list[tuple[TenantId, Reached]]:
    """Count launches that were made; the levels that this reached.

    The tenant's audit log has them, too, and its channels for that are told; `clock` makes the
    entries' ids.
    """
    more = [
        (tenant, one, made[tenant], reached(one, made[tenant]))
        for tenant in sorted(held.counted)
        if made.get(tenant)
        for one in held.counted[tenant]
    ]
    if not more:
        return []
    cursor.execute(
        _SQL["count"],
        {
            **_columns((tenant, one) for tenant, one, _, _ in more),
            "used": [n for _, _, n, _ in more],
            "told": [0 if level is None else level.percent for _, _, _, level in more],
        },
    )
    told = [(tenant, level) for tenant, _, _, level in more if level is not None]
    if told:
        cursor.execute(
            _SQL["note_reached"],
            {
                "id": [uuid7(clock) for _ in told],
                "tenant": [tenant for tenant, _ in told],
                "subject": [f"quota:{level.quota.value}" for _, level in told],
                "after": [json.dumps(reached_document(level)) for _, level in told],
            },
        )
        notices = [reached_notice(tenant, level, ()) for tenant, level in told]
        cursor.execute(
            _SQL["add_notices"],
            {
                "tenant": [n.tenant for n in notices],
                "about": [n.about for n in notices],
                "said": [n.text for n in notices],
                "data": [json.dumps(n.data) for n in notices],
                "most": MOST_A_MINUTE,
            },
        )
    return told


def _columns(counted: Iterable[tuple[TenantId, Counted]]) -> dict[str, object]:
    found = list(counted)
    return {
        "tenant": [tenant for tenant, _ in found],
        "quota": [one.quota.value for _, one in found],
        "starts_at": [one.window.starts_at for _, one in found],
    }

"""Quotas of launches in memory, as `store/launch_quotas.py` has them in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from tests.support.memory_notices import add_notices
from tests.support.memory_tables import MemoryDatabase

from tickrail.core.ids import TenantId
from tickrail.core.limits import INSTALLATION
from tickrail.core.on_failures import Channel
from tickrail.core.quota_notices import reached_notice
from tickrail.core.quotas import (
    WINDOWS,
    Counted,
    Quota,
    Quotas,
    Reached,
    left_of,
    quotas_of,
    reached,
    window_of,
)
from tickrail.core.states import State


def counted_of(db: MemoryDatabase, tenant: TenantId, now: datetime) -> list[Counted]:
    """What a tenant has used of its quotas of launches."""
    quotas = quotas_of(db.quotas.get(tenant, {}), db.quotas.get(INSTALLATION, {}))
    limits = {
        Quota.LAUNCHES_PER_MINUTE: quotas.launches_per_minute,
        Quota.LAUNCHES_PER_DAY: quotas.launches_per_day,
    }
    found = []
    for quota in WINDOWS:
        limit, window = limits[quota], window_of(quota, now)
        if limit is not None:
            used, told = db.quota_windows.get((tenant, quota, window.starts_at), (0, 0))
            found.append(Counted(quota, window, limit, used, told))
    return found


class MemoryQuotas:
    """`core.ports_quotas.QuotaRecords`, as far as use cases of jobs and launches need it."""

    def __init__(self, db: MemoryDatabase, tenant: TenantId, now: datetime) -> None:
        self._db = db
        self._tenant = tenant
        self._now = now
        self._jobs: int | None = None

    def read(self) -> Quotas:
        db = self._db
        return quotas_of(db.quotas.get(self._tenant, {}), db.quotas.get(INSTALLATION, {}))

    def hold_jobs(self, most: int) -> int:
        if self._jobs is None:
            self._jobs = min(most, self.live_jobs())
        return self._jobs

    def add_job(self) -> None:
        if self._jobs is not None:
            self._jobs += 1

    def hold_launches(self) -> list[Counted]:
        return counted_of(self._db, self._tenant, self._now)

    def used(self) -> list[Counted]:
        return counted_of(self._db, self._tenant, self._now)

    def count_launches(self, held: Sequence[Counted], more: int) -> None:
        for one in held:
            place = (self._tenant, one.quota, one.window.starts_at)
            used, told = self._db.quota_windows.get(place, (0, 0))
            self._db.quota_windows[place] = (used + more, told)

    def tell(self, reached: Reached) -> bool:
        place = (self._tenant, reached.quota, reached.window.starts_at)
        used, told = self._db.quota_windows.get(place, (0, 0))
        self._db.quota_windows[place] = (used, max(told, reached.percent))
        if reached.percent <= told:
            return False
        tell(self._db, self._tenant, reached, self._now)
        return True

    def channels(self) -> Sequence[Channel]:
        return self._db.quota_channels.get(self._tenant, ())

    def set_channels(self, channels: Sequence[Channel]) -> None:
        self._db.quota_channels[self._tenant] = tuple(channels)

    def running(self) -> tuple[int, int | None]:
        mine = [x for x in self._db.launches.values() if x.tenant_id == self._tenant]
        return sum(x.state is State.RUNNING for x in mine), None

    def live_jobs(self) -> int:
        mine = [j for j in self._db.jobs.values() if j.tenant_id == self._tenant]
        return sum(j.state != "deleted" for j in mine)

    def bucket(self) -> None:
        return None


def rooms_of(
    db: MemoryDatabase, tenants: Collection[TenantId], now: datetime
) -> dict[TenantId, int]:
    """How many launches of these tenants still fit, of those that have such a quota."""
    found = {t: counted_of(db, t, now) for t in tenants if t not in db.locked_quotas}
    return {t: left_of(counted) for t, counted in found.items() if counted}


def count_launches(
    db: MemoryDatabase, made: Mapping[TenantId, int], now: datetime
) -> list[tuple[TenantId, Reached]]:
    """Count launches that were made; the levels that this reached."""
    told = []
    for tenant, more in sorted(made.items()):
        for one in counted_of(db, tenant, now):
            level = reached(one, more)
            percent = one.told if level is None else level.percent
            db.quota_windows[tenant, one.quota, one.window.starts_at] = (one.used + more, percent)
            if level is not None:
                told.append((tenant, level))
                tell(db, tenant, level, now)
    return told


def tell(db: MemoryDatabase, tenant: TenantId, level: Reached, now: datetime) -> None:
    """Tell the channels that a tenant has for its quotas."""
    add_notices(db, [reached_notice(tenant, level, db.quota_channels.get(tenant, ()))], now)

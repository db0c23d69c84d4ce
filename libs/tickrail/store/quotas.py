"""The port `QuotaRecords` on PostgreSQL, quotas as operators set them, and tokens for requests.

Locks: `hold_jobs` and `hold_launches` take one lock of the tenant each, for as long as the
transaction lasts (`store/launch_quotas.py` says why nobody waits in a circle). A transaction that
makes jobs takes it after it has shared the rows of queues and calendars and before it writes a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Text, delete, func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert

from tickrail.core.clock import Clock
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.limits import INSTALLATION, TENANT
from tickrail.core.on_failures import Channel, parse_channel
from tickrail.core.ports_notice import MOST_A_MINUTE
from tickrail.core.quota_notices import reached_notice
from tickrail.core.quotas import (
    WINDOWS,
    Amounts,
    Counted,
    Quota,
    Quotas,
    Reached,
    RequestRate,
    quotas_of,
    reached_document,
    window_of,
)
from tickrail.core.request_rate import Bucket, Slice, take_slice
from tickrail.store.launch_quotas import LOCK
from tickrail.store.queries import json_text
from tickrail.store.quota_tables import quota_channels, quota_windows, quotas, request_buckets
from tickrail.store.tables import jobs, launches, limits
from tickrail.store.tenancy import BaseTransaction, TenantTransaction
from tickrail.store.tenant_tables import audit_log

_JOBS_LOCK: Final = 7_241_004
_SHARED_LOCK: Final = 7_241_005
_Q, _W, _B, _J, _L = quotas.c, quota_windows.c, request_buckets.c, jobs.c, launches.c
_C = quota_channels.c
_LOCK = text("select pg_advisory_xact_lock(:lock, hashtext(cast(:tenant as text)))")
# Written out, not a parameter: only so does a prepared statement match the partial index.
_LIVE = _J.state != literal_column("'deleted'", Text)
_TELL = text("select add_own_quota_notice(:about, :said, cast(:data as jsonb), :most)")
_KEYS = ("tenant_id", "quota", "starts_at")


class QuotaTable:
    """Quotas of the transaction's tenant, and what is used of them."""

    def __init__(self, tx: TenantTransaction, clock: Clock, known: Quotas | None = None) -> None:
        """Those that `tx` sees; `clock` makes the ids of audit entries.

        `known`: the quotas, where they were read at the beginning.
        """
        self._tx = tx
        self._clock = clock
        self._quotas = known
        self._jobs: int | None = None

    def read(self) -> Quotas:
        """What the tenant may have, as it was first read in this transaction."""
        if self._quotas is None:
            found = read_amounts_of(self._tx, [self._tx.tenant, INSTALLATION])
            self._quotas = quotas_of(found[self._tx.tenant], found[INSTALLATION])
        return self._quotas

    def hold_jobs(self, most: int) -> int:
        """How many live jobs there are, counted up to `most`; no other is made until the end."""
        if self._jobs is None:
            self._lock(_JOBS_LOCK)
            some = select(_J.id).where(_LIVE).limit(most).subquery()
            self._jobs = self._tx.execute(select(func.count()).select_from(some)).scalar_one()
        return self._jobs

    def add_job(self) -> None:
        """One more is made in this transaction."""
        if self._jobs is not None:
            self._jobs += 1

    def hold_launches(self) -> Sequence[Counted]:
        """What is used of the quotas of launches, those that there are; held until the end."""
        found = self.read()
        if found.launches_per_minute is None and found.launches_per_day is None:
            return ()
        self._lock(LOCK)
        return self.used()

    def count_launches(self, held: Sequence[Counted], more: int) -> None:
        """Count launches that were made."""
        for one in held:
            made = insert(quota_windows).values(
                tenant_id=self._tx.tenant,
                quota=one.quota.value,
                starts_at=one.window.starts_at,
                used=more,
            )
            changed = {"used": _W.used + made.excluded.used}
            self._tx.execute(made.on_conflict_do_update(index_elements=_KEYS, set_=changed))

    def tell(self, reached: Reached) -> bool:
        """Tell the tenant of a level, in its audit log and on its channels for that.

        False: it was told, in this window.
        """
        made = insert(quota_windows).values(
            tenant_id=self._tx.tenant,
            quota=reached.quota.value,
            starts_at=reached.window.starts_at,
            told=reached.percent,
        )
        statement = made.on_conflict_do_update(
            index_elements=_KEYS,
            set_={"told": made.excluded.told},
            where=_W.told < made.excluded.told,
        ).returning(_W.told)
        if self._tx.execute(statement).one_or_none() is None:
            return False
        self._tx.execute(
            insert(audit_log).values(
                id=uuid7(self._clock),
                tenant_id=self._tx.tenant,
                actor="system",
                action="quota.reached",
                subject=f"quota:{reached.quota.value}",
                after=reached_document(reached),
            )
        )
        notice = reached_notice(self._tx.tenant, reached, ())
        said = {"about": notice.about, "said": notice.text, "data": json_text(notice.data)}
        self._tx.execute(_TELL, {**said, "most": MOST_A_MINUTE})
        return True

    def channels(self) -> Sequence[Channel]:
        """The channels that are told of levels."""
        found = self._tx.execute(select(_C.channels)).scalar_one_or_none() or ()
        return [c for c in map(parse_channel, found) if c is not None]

    def set_channels(self, channels: Sequence[Channel]) -> None:
        """Write them."""
        names = [str(c) for c in channels]
        made = insert(quota_channels).values(tenant_id=self._tx.tenant, channels=names)
        changed = {"channels": made.excluded.channels, "updated_at": func.now()}
        self._tx.execute(made.on_conflict_do_update(index_elements=["tenant_id"], set_=changed))

    def used(self) -> Sequence[Counted]:
        """What is used of the quotas of launches, those that there are; nothing is held."""
        found, now = self.read(), self._tx.now
        limits_of = {
            Quota.LAUNCHES_PER_MINUTE: found.launches_per_minute,
            Quota.LAUNCHES_PER_DAY: found.launches_per_day,
        }
        counted = [
            Counted(quota, window_of(quota, now), limit)
            for quota in WINDOWS
            if (limit := limits_of[quota]) is not None
        ]
        if not counted:
            return ()
        rows: Sequence[Any] = self._tx.execute(
            select(_W.quota, _W.starts_at, _W.used, _W.told).where(
                _W.quota.in_([c.quota.value for c in counted]),
                _W.starts_at.in_([c.window.starts_at for c in counted]),
            )
        ).all()
        there = {(r.quota, r.starts_at): r for r in rows}
        return [
            c if (r := there.get((c.quota.value, c.window.starts_at))) is None
            else c._replace(used=r.used, told=r.told)
            for c in counted
        ]  # fmt: skip

    def running(self) -> tuple[int, int | None]:
        """How many launches run, and how many may at a time."""
        count: int = self._tx.execute(
            select(func.count()).where(_L.phase == text("2"), _L.state == "running")
        ).scalar_one()
        most: int | None = self._tx.execute(
            select(limits.c.max_running).where(
                limits.c.tenant_id == self._tx.tenant, limits.c.scope == TENANT, limits.c.name == ""
            )
        ).scalar_one_or_none()
        return count, most

    def live_jobs(self) -> int:
        """How many live jobs there are."""
        found: int = self._tx.execute(select(func.count()).where(_LIVE)).scalar_one()
        return found

    def bucket(self) -> Bucket | None:
        """The tokens for the tenant's requests; None: never used."""
        return find_bucket(self._tx, "")

    def _lock(self, lock: int) -> None:
        self._tx.execute(_LOCK, {"lock": lock, "tenant": str(self._tx.tenant)})


# --- as operators set them ------------------------------------------------------------------------
# The statements here name the tenant, as those on `limits` do: of these two tables a tenant sees
# the installation's rows beside its own, and an operator everybody's.


def read_amounts_of(tx: BaseTransaction, tenants: Sequence[TenantId]) -> Mapping[TenantId, Amounts]:
    """The quotas that are set for each of these; the installation's hold for everybody."""
    rows: Sequence[Any] = tx.execute(
        select(_Q.tenant_id, _Q.quota, _Q.amount).where(_Q.tenant_id.in_(tenants))
    ).all()
    return amounts_of(tenants, rows)


def amounts_of(
    tenants: Sequence[TenantId], rows: Iterable[Sequence[Any]]
) -> Mapping[TenantId, Amounts]:
    """The quotas of each of these, out of rows of tenant, quota and amount."""
    known = set(Quota)
    found: dict[TenantId, dict[Quota, float | None]] = {t: {} for t in tenants}
    for tenant, quota, amount in rows:
        # A newer version may know more of them.
        if quota in known:
            found[TenantId(UUID(str(tenant)))][Quota(quota)] = amount
    return found


def lock_quotas(tx: BaseTransaction) -> None:
    """Let nobody else change the installation's quotas until the transaction ends."""
    tx.execute(_LOCK, {"lock": _SHARED_LOCK, "tenant": ""})


def write_amounts(tx: BaseTransaction, tenant: TenantId, amounts: Amounts) -> None:
    """Set the quotas of a tenant, or the installation's; in an operator's transaction."""
    names = [q.value for q in amounts]
    tx.execute(delete(quotas).where(_Q.tenant_id == tenant, _Q.quota.not_in(names)))
    for quota, amount in amounts.items():
        made = insert(quotas).values(tenant_id=tenant, quota=quota.value, amount=amount)
        changed = {"amount": made.excluded.amount, "updated_at": func.now()}
        tx.execute(made.on_conflict_do_update(index_elements=["tenant_id", "quota"], set_=changed))


# --- tokens for requests --------------------------------------------------------------------------


def find_bucket(tx: TenantTransaction, key_id: str) -> Bucket | None:
    """The tokens of a key (empty: of the tenant); None: never used."""
    row: Any = tx.execute(select(_B.tokens, _B.filled_at).where(_B.key_id == key_id)).one_or_none()
    return None if row is None else Bucket(row.tokens, row.filled_at)


def take_tokens(tx: TenantTransaction, key_id: str, rate: RequestRate, returned: int) -> Slice:
    """Take a slice out of a bucket; its row is held until the transaction ends.

    Args:
        tx: a transaction of the tenant, or of the zero tenant for operators' keys.
        key_id: the key; empty: the bucket is the tenant's.
        rate: how the bucket fills.
        returned: tokens of the last slice that were not used.
    """
    held = (
        select(_B.tokens, _B.filled_at, func.clock_timestamp().label("now"))
        .where(_B.key_id == key_id)
        .with_for_update()
    )
    row: Any = tx.execute(held).one_or_none()
    if row is None:
        made = insert(request_buckets).values(
            tenant_id=tx.tenant, key_id=key_id, tokens=rate.burst, filled_at=func.now()
        )
        tx.execute(made.on_conflict_do_nothing())
        row = tx.execute(held).one()
    after, taken = take_slice(Bucket(row.tokens, row.filled_at), rate, row.now, returned)
    if taken.tokens or returned:
        tx.execute(
            update(request_buckets)
            .where(_B.key_id == key_id)
            .values(tokens=after.tokens, filled_at=after.filled_at)
        )
    return taken

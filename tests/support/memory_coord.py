"""The coordination service and the fence store in memory, with the faults that tests need.

`MemoryEtcd` is the server; each process has a `MemoryCoordinator` on it. Time is the clock's, so
leases end when a test advances it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.support.clock import FakeClock

from tickrail.core.clock import Clock
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import (
    Drain,
    LeaseGrant,
    LeaseLostError,
    Member,
    OwnerKey,
    RaiseOutcome,
    Snapshot,
)


@dataclass
class _Lease:
    ttl: int
    ends_at: float


class MemoryEtcd:
    """One etcd: keys with revisions, leases. `down` makes every call fail."""

    def __init__(self, clock: Clock, revision: int = 1) -> None:
        self.clock = clock
        self.down = False
        self.lock = threading.RLock()
        self.revision = revision
        self.members: dict[str, Member] = {}
        self.owners: dict[Partition, OwnerKey] = {}
        self.drains: dict[str, Drain] = {}
        self.leases: dict[int, _Lease] = {}
        self.watchers: list[Callable[[], None]] = []
        self._next_lease = 7000

    def new_lease(self, ttl: int) -> int:
        self._next_lease += 1
        self.leases[self._next_lease] = _Lease(ttl, self.clock.monotonic() + ttl)
        return self._next_lease

    def settle(self) -> None:
        """End the leases whose time is over."""
        with self.lock:
            now = self.clock.monotonic()
            for lease in [i for i, one in self.leases.items() if one.ends_at <= now]:
                self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        if self.leases.pop(lease, None) is None:
            return
        members = {n: m for n, m in self.members.items() if m.lease != lease}
        owners = {p: k for p, k in self.owners.items() if k.lease != lease}
        if len(members) != len(self.members) or len(owners) != len(self.owners):
            self.members, self.owners = members, owners
            self.changed()

    def changed(self) -> None:
        self.revision += 1
        for wake in self.watchers:
            wake()

    def restore(self, revision: int) -> None:
        """An old snapshot put back: all is gone and the revisions went back."""
        self.members, self.owners, self.leases, self.drains = {}, {}, {}, {}
        self.revision = revision


class MemoryCoordinator:
    """A `Coordinator` and a `Directory` on a `MemoryEtcd`.

    `fail_next` names calls whose next use fails without effect, `lose_reply` calls that take
    effect but whose answer is lost; `before` and `after` map a call's name to a function run once
    before it has its effect, or after that and before the answer.
    """

    def __init__(self, etcd: MemoryEtcd) -> None:
        self._etcd = etcd
        self._wake: Callable[[], None] | None = None
        self.cut = False
        self.fail_next: list[str] = []
        self.lose_reply: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[], object]] = {}
        self.calls: list[str] = []

    def grant(self, ttl: int) -> LeaseGrant:
        with self._call("grant"):
            return LeaseGrant(self._etcd.new_lease(ttl), float(ttl))

    def renew(self, lease: int) -> float:
        with self._call("renew"):
            one = self._etcd.leases.get(lease)
            if one is None:
                return 0.0
            one.ends_at = self._etcd.clock.monotonic() + one.ttl
            return float(one.ttl)

    def revoke(self, lease: int) -> None:
        with self._call("revoke"):
            self._etcd.end_lease(lease)

    def put_member(self, member: Member, lease: int) -> None:
        with self._call("put_member"):
            self._check(lease)
            self._etcd.members[member.identity] = replace(member, lease=lease)
            self._etcd.changed()

    def remove_member(self, identity: str) -> None:
        with self._call("remove_member"):
            if self._etcd.members.pop(identity, None) is not None:
                self._etcd.changed()

    def claim(self, partition: Partition, identity: str, lease: int) -> OwnerKey:
        with self._call("claim"):
            present = self._etcd.owners.get(partition)
            if present is not None:
                return present
            self._check(lease)
            self._etcd.changed()
            key = OwnerKey(partition, identity, lease, self._etcd.revision)
            self._etcd.owners[partition] = key
            return key

    def release(self, partition: Partition, create_revision: int) -> bool:
        with self._call("release"):
            present = self._etcd.owners.get(partition)
            if present is None or present.create_revision != create_revision:
                return False
            del self._etcd.owners[partition]
            self._etcd.changed()
            return True

    def snapshot(self) -> Snapshot:
        with self._call("snapshot"):
            etcd = self._etcd
            drains = dict(etcd.drains)
            return Snapshot(etcd.revision, dict(etcd.members), dict(etcd.owners), drains)

    def lease_remaining(self, lease: int) -> float:
        with self._call("lease_remaining"):
            one = self._etcd.leases.get(lease)
            return 0.0 if one is None else one.ends_at - self._etcd.clock.monotonic()

    def put_drain(self, drain: Drain) -> Drain:
        with self._call("put_drain"):
            if drain.name not in self._etcd.drains:
                self._etcd.drains[drain.name] = drain
                self._etcd.changed()
            return self._etcd.drains[drain.name]

    def remove_drain(self, name: str) -> bool:
        with self._call("remove_drain"):
            if self._etcd.drains.pop(name, None) is None:
                return False
            self._etcd.changed()
            return True

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._etcd.watchers.append(wake)

    def close(self) -> None:
        if self._wake is not None:
            self._etcd.watchers.remove(self._wake)
            self._wake = None

    def _check(self, lease: int) -> None:
        if lease not in self._etcd.leases:
            raise LeaseLostError(f"lease {lease} has ended")

    def _call(self, name: str) -> _Call:
        return _Call(self, self._etcd, name)


class _Call:
    """One call: the server's lock, its leases brought up to date, and the planned faults."""

    def __init__(self, coordinator: MemoryCoordinator, etcd: MemoryEtcd, name: str) -> None:
        self._coordinator = coordinator
        self._etcd = etcd
        self._name = name

    def __enter__(self) -> None:
        one, name = self._coordinator, self._name
        one.calls.append(name)
        before = one.before.pop(name, None)
        if before is not None:
            before()
        if name in one.fail_next:
            one.fail_next.remove(name)
            raise UnavailableError("etcd does not answer")
        if self._etcd.down or one.cut:
            raise UnavailableError("etcd does not answer")
        self._etcd.lock.acquire()
        self._etcd.settle()

    def __exit__(self, *exc: object) -> None:
        self._etcd.lock.release()
        after = self._coordinator.after.pop(self._name, None)
        if after is not None:
            after()
        if exc[0] is None and self._name in self._coordinator.lose_reply:
            self._coordinator.lose_reply.remove(self._name)
            raise UnavailableError("etcd did not answer in time")


class MemoryFenceStore:
    """A `FenceStore`. `down` makes every call fail, `locked` those on some fence rows."""

    def __init__(self, clock: FakeClock, partitions: int) -> None:
        self._clock = clock
        self.epochs = {Partition(p): Epoch(0) for p in range(partitions)}
        self.owners: dict[Partition, str] = {}
        self.stored_generation = 0
        self.claims_advanced = 0
        self.clock_ahead = 0.0
        self.down = False
        self.locked: set[Partition] = set()
        self.before_raise: Callable[[], None] = lambda: None

    def raise_epoch(self, partition: Partition, epoch: Epoch, owner: str) -> RaiseOutcome:
        self.before_raise()
        self._check()
        if partition in self.locked:
            raise UnavailableError(f"the fence row of partition {partition} is locked")
        if partition not in self.epochs:
            raise SetupError(f"there is no partition {partition}")
        stored = self.epochs[partition]
        if stored > epoch:
            return RaiseOutcome.HIGHER
        if stored == epoch:
            return RaiseOutcome.ALREADY
        self.epochs[partition] = epoch
        self.owners[partition] = owner
        return RaiseOutcome.RAISED

    def highest_epoch(self) -> Epoch:
        self._check()
        return max(self.epochs.values())

    def generation(self) -> int:
        self._check()
        return self.stored_generation

    def database_now(self) -> datetime:
        self._check()
        return self._clock.now() + timedelta(seconds=self.clock_ahead)

    def advance_claims(self) -> None:
        self._check()
        self.claims_advanced += 1

    def _check(self) -> None:
        if self.down:
            raise UnavailableError("PostgreSQL does not answer")

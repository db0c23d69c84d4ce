"""The contracts of the coordinator and of the fence store, and the memory adapters under them.

The real adapters run the same classes in tests/integration.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd, MemoryFenceStore

from tickrail.core.errors import SetupError
from tickrail.core.ids import Epoch, Partition
from tickrail.core.ports_ownership import (
    Coordinator,
    Directory,
    Drain,
    FenceStore,
    LeaseLostError,
    Member,
    RaiseOutcome,
)

P0, P1, P2 = Partition(0), Partition(1), Partition(2)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class CoordinatorContract:
    """Needs fixtures `coordinator`, `other` and `directory` (further ones on the same prefix), and
    `expire`, which lets a lease of 2 s end."""

    def test_an_empty_installation(self, coordinator: Coordinator) -> None:
        snapshot = coordinator.snapshot()
        assert snapshot.members == {}
        assert snapshot.owners == {}
        assert snapshot.revision > 0

    def test_a_lease_has_at_least_the_time_asked_for(self, coordinator: Coordinator) -> None:
        grant = coordinator.grant(5)
        assert grant.id != 0
        assert grant.ttl >= 5
        assert coordinator.renew(grant.id) >= 5
        assert coordinator.grant(5).id != grant.id

    def test_a_revoked_lease_is_lost_with_all_its_keys(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        coordinator.put_member(Member("a-1", "a"), lease)
        coordinator.claim(P0, "a-1", lease)
        coordinator.revoke(lease)
        assert coordinator.renew(lease) == 0
        assert coordinator.snapshot().members == {}
        assert coordinator.snapshot().owners == {}
        coordinator.revoke(lease)

    def test_a_lease_not_renewed_ends_with_all_its_keys(
        self, coordinator: Coordinator, expire: Callable[[], None]
    ) -> None:
        lease = coordinator.grant(2).id
        coordinator.put_member(Member("a-1", "a"), lease)
        coordinator.claim(P0, "a-1", lease)
        expire()
        assert coordinator.renew(lease) == 0
        assert coordinator.snapshot().members == {}
        assert coordinator.snapshot().owners == {}

    def test_nothing_is_put_under_an_ended_lease(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        coordinator.revoke(lease)
        with pytest.raises(LeaseLostError):
            coordinator.put_member(Member("a-1", "a"), lease)
        with pytest.raises(LeaseLostError):
            coordinator.claim(P0, "a-1", lease)

    def test_members_come_change_and_go(self, coordinator: Coordinator, other: Coordinator) -> None:
        lease = coordinator.grant(30).id
        coordinator.put_member(Member("a-1", "a", weight=2.0), lease)
        assert other.snapshot().members == {"a-1": Member("a-1", "a", 2.0, lease)}
        coordinator.put_member(Member("a-1", "a", weight=0.0), lease)
        assert other.snapshot().members == {"a-1": Member("a-1", "a", 0.0, lease)}
        other.remove_member("a-1")
        assert coordinator.snapshot().members == {}
        other.remove_member("a-1")

    def test_only_the_first_claim_wins(self, coordinator: Coordinator, other: Coordinator) -> None:
        mine, theirs = coordinator.grant(30).id, other.grant(30).id
        key = coordinator.claim(P0, "a-1", mine)
        assert (key.partition, key.identity, key.lease) == (P0, "a-1", mine)
        assert other.claim(P0, "b-1", theirs) == key
        assert other.snapshot().owners == {P0: key}

    def test_a_claim_again_tells_that_it_is_mine(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        assert coordinator.claim(P0, "a-1", lease) == coordinator.claim(P0, "a-1", lease)

    def test_each_new_owner_has_a_higher_revision(
        self, coordinator: Coordinator, other: Coordinator
    ) -> None:
        revisions = [coordinator.snapshot().revision]
        for one, partition in [(coordinator, P0), (other, P1), (coordinator, P0), (other, P0)]:
            key = one.claim(partition, "x-1", one.grant(30).id)
            revisions.append(key.create_revision)
            assert one.release(partition, key.create_revision)
        assert revisions == sorted(set(revisions))

    def test_a_member_key_put_again_does_not_change_owner_keys(
        self, coordinator: Coordinator
    ) -> None:
        lease = coordinator.grant(30).id
        key = coordinator.claim(P0, "a-1", lease)
        coordinator.put_member(Member("a-1", "a"), lease)
        coordinator.renew(lease)
        assert coordinator.snapshot().owners[P0] == key

    def test_release_deletes_only_the_key_of_that_revision(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        first = coordinator.claim(P0, "a-1", lease)
        assert coordinator.release(P0, first.create_revision)
        assert not coordinator.release(P0, first.create_revision)
        second = coordinator.claim(P0, "a-1", lease)
        assert not coordinator.release(P0, first.create_revision)
        assert coordinator.snapshot().owners == {P0: second}

    def test_the_snapshots_revision_is_not_below_any_key(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        keys = [coordinator.claim(p, "a-1", lease) for p in (P0, P1, P2)]
        snapshot = coordinator.snapshot()
        assert snapshot.revision >= max(k.create_revision for k in keys)
        assert snapshot.owners == {k.partition: k for k in keys}

    def test_a_member_says_since_when(self, coordinator: Coordinator) -> None:
        lease = coordinator.grant(30).id
        coordinator.put_member(Member("a-1", "a", since=NOON), lease)
        assert coordinator.snapshot().members["a-1"] == Member("a-1", "a", 1.0, lease, NOON)

    def test_what_a_lease_has_left(self, coordinator: Coordinator, directory: Directory) -> None:
        lease = coordinator.grant(30).id
        assert 28 <= directory.lease_remaining(lease) <= 30
        coordinator.revoke(lease)
        assert directory.lease_remaining(lease) == 0

    def test_a_drain_stays_as_it_was_first_asked_for_until_it_is_ended(
        self, coordinator: Coordinator, directory: Directory
    ) -> None:
        first = Drain("a", NOON, "key:x")
        assert directory.put_drain(first) == first
        assert directory.put_drain(Drain("a", NOON + timedelta(hours=1), "key:y")) == first
        directory.put_drain(Drain("b"))
        assert coordinator.snapshot().drains == {"a": first, "b": Drain("b")}
        assert directory.remove_drain("a")
        assert not directory.remove_drain("a")
        assert directory.snapshot().drains == {"b": Drain("b")}

    def test_a_drain_outlasts_its_member(
        self, coordinator: Coordinator, directory: Directory
    ) -> None:
        lease = coordinator.grant(30).id
        coordinator.put_member(Member("a-1", "a"), lease)
        key = coordinator.claim(P0, "a-1", lease)
        directory.put_drain(Drain("a"))
        assert coordinator.snapshot().owners == {P0: key}
        coordinator.revoke(lease)
        snapshot = coordinator.snapshot()
        assert (set(snapshot.drains), snapshot.members, snapshot.owners) == ({"a"}, {}, {})

    def test_the_watch_wakes_for_each_kind_of_change(
        self, coordinator: Coordinator, other: Coordinator, directory: Directory
    ) -> None:
        woken = threading.Event()
        coordinator.watch(woken.set)
        lease = other.grant(30).id
        key = other.claim(P1, "b-1", lease)
        assert woken.wait(5)
        changes: list[Callable[[], object]] = [
            lambda: other.put_member(Member("b-1", "b"), lease),
            lambda: other.claim(P0, "b-1", lease),
            lambda: other.release(P1, key.create_revision),
            lambda: other.revoke(lease),
            lambda: directory.put_drain(Drain("b")),
            lambda: directory.remove_drain("b"),
        ]
        for change in changes:
            self.quiet(woken)
            change()
            assert woken.wait(5)

    def quiet(self, woken: threading.Event) -> None:
        """Wait until the calls for earlier changes are over."""
        woken.clear()
        while woken.wait(0.1):
            woken.clear()


class FenceStoreContract:
    """Needs a fixture `store` with 4 partitions whose epochs are 0."""

    def test_epochs_only_go_up(self, store: FenceStore) -> None:
        assert store.highest_epoch() == 0
        assert store.raise_epoch(P0, Epoch(5), "a-1") is RaiseOutcome.RAISED
        assert store.raise_epoch(P0, Epoch(5), "a-1") is RaiseOutcome.ALREADY
        assert store.raise_epoch(P0, Epoch(4), "b-1") is RaiseOutcome.HIGHER
        assert store.highest_epoch() == 5
        assert store.raise_epoch(P0, Epoch(1 << 48 | 7), "b-1") is RaiseOutcome.RAISED
        assert store.raise_epoch(P1, Epoch(6), "b-1") is RaiseOutcome.RAISED
        assert store.highest_epoch() == 1 << 48 | 7

    def test_a_partition_that_is_not_there(self, store: FenceStore) -> None:
        with pytest.raises(SetupError):
            store.raise_epoch(Partition(99), Epoch(5), "a-1")

    def test_the_clock_is_aware_and_goes(self, store: FenceStore) -> None:
        first = store.database_now()
        assert first.utcoffset() == timedelta(0)
        assert store.database_now() >= first

    def test_the_generation_is_a_small_number(self, store: FenceStore) -> None:
        assert 0 <= store.generation() <= 31

    def test_claims_can_be_moved_on(self, store: FenceStore) -> None:
        store.advance_claims()
        store.advance_claims()


class TestMemoryCoordinator(CoordinatorContract):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def etcd(self, clock: FakeClock) -> MemoryEtcd:
        return MemoryEtcd(clock)

    @pytest.fixture
    def coordinator(self, etcd: MemoryEtcd) -> Coordinator:
        return MemoryCoordinator(etcd)

    @pytest.fixture
    def other(self, etcd: MemoryEtcd) -> Coordinator:
        return MemoryCoordinator(etcd)

    @pytest.fixture
    def directory(self, etcd: MemoryEtcd) -> Directory:
        return MemoryCoordinator(etcd)

    @pytest.fixture
    def expire(self, clock: FakeClock) -> Callable[[], None]:
        return lambda: clock.advance(2)


class TestMemoryFenceStore(FenceStoreContract):
    @pytest.fixture
    def store(self) -> FenceStore:
        return MemoryFenceStore(FakeClock(), 4)

"""The coordinator on a cluster of three whose members are killed, frozen and cut off."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import structlog
from tests.integration.coord.conftest import Connect
from tests.support.etcd_cluster import EtcdCluster
from tests.support.etcd_program import etcd
from tests.support.until import until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Member

LOG = structlog.get_logger()
CLOCK = SystemClock()
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
TRUST = 9.0
"""The trust window at the default lease: a renewal must succeed before it ends."""
RENEWED_WITHIN = 8.0
"""Seconds until the next members have noticed, elected and answered."""
DEADLINE = 2.5
"""What a call may take: its deadline, and a little for a busy machine."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("cluster"), proxied=True) as found:
        LOG.info("cluster", etcd=str(etcd()))
        yield found


@pytest.fixture
def cluster(whole: EtcdCluster) -> EtcdCluster:
    """All three agree on a leader."""
    until(lambda: len(whole.agreeing()) == 3, 30, 0.05)
    return whole


def connected(connect: Connect, cluster: EtcdCluster, first: int = 0) -> EtcdCoordinator:
    """A coordinator that talks to this member and knows the others."""
    coordinator = connect(*cluster.endpoints.split(","))
    coordinator._client._current = first
    return coordinator


def quick(call: object, *arguments: object) -> bool:
    """Whether the call was answered, which took no longer than its deadline in any case."""
    assert callable(call)
    began = CLOCK.monotonic()
    try:
        call(*arguments)
    except UnavailableError as error:
        LOG.info("not answered", error=str(error))
        return False
    finally:
        assert CLOCK.monotonic() - began < DEADLINE
    return True


@pytest.mark.parametrize("victim", ["leader", "follower"])
@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_the_member_in_use_is_lost(
    cluster: EtcdCluster, connect: Connect, fault: str, victim: str
) -> None:
    leader = cluster.leader()
    lost = leader if victim == "leader" else cluster.followers()[0]
    other = next(i for i in range(3) if i not in {lost, leader})
    coordinator = connected(connect, cluster, lost)
    woken = threading.Event()
    coordinator.watch(woken.set)
    watch = coordinator._watch
    assert watch is not None
    until(lambda: watch.connections == 1)
    lease = coordinator.grant(10).id
    key = coordinator.claim(Partition(0), "a-1", lease)

    getattr(cluster, fault)(lost)
    took = until(lambda: quick(coordinator.renew, lease), RENEWED_WITHIN, 0.1)
    LOG.info("measured", fault=fault, victim=victim, seconds_until_renewed=took)
    assert coordinator._client._current != lost
    until(lambda: quick(coordinator.snapshot), TRUST, 0.1)
    assert coordinator.snapshot().owners == {Partition(0): key}
    assert cluster.leader() != lost
    # Who starts now, and would begin at the lost one, finds another.
    assert connected(connect, cluster, lost).version() == cluster.version

    # The watch went over to another member with the calls.
    until(lambda: watch.connections >= 2, 10)
    woken.clear()
    control = connected(connect, cluster, other)
    until(lambda: quick(control.put_member, Member("b-1", "b"), lease), TRUST, 0.1)
    assert woken.wait(5)

    getattr(cluster, "start" if fault == "kill" else "thaw")(lost)
    coordinator.revoke(lease)


def test_a_leader_that_is_not_heard_is_replaced(cluster: EtcdCluster, connect: Connect) -> None:
    leader = cluster.leader()
    coordinator = connected(connect, cluster, leader)
    lease = coordinator.grant(10).id
    key = coordinator.claim(Partition(0), "a-1", lease)
    cluster.peers[leader].blackhole("to_client")  # it hears the others, they do not hear it
    try:
        until(lambda: cluster.leader() != leader, 15)
        until(lambda: quick(coordinator.renew, lease), TRUST, 0.1)
        until(lambda: quick(coordinator.snapshot), TRUST, 0.1)
        assert coordinator.snapshot().owners == {Partition(0): key}
        assert coordinator._client._current != leader
    finally:
        cluster.peers[leader].heal()
    coordinator.revoke(lease)


def test_without_a_majority_nothing_is_answered_and_with_it_all_goes_on(
    cluster: EtcdCluster, connect: Connect
) -> None:
    coordinator = connected(connect, cluster)
    woken = threading.Event()
    coordinator.watch(woken.set)
    watch = coordinator._watch
    assert watch is not None
    lease = coordinator.grant(30).id
    key = coordinator.claim(Partition(0), "a-1", lease)
    cluster.kill(0)
    cluster.freeze(1)
    for _ in range(3):
        assert not quick(coordinator.snapshot)
        assert not quick(coordinator.claim, Partition(1), "a-1", lease)
    assert cluster.servers[2].alive  # and it alone decides nothing
    until(lambda: watch._stream is None, 15)
    cluster.start(0)
    cluster.leader()
    assert until(lambda: quick(coordinator.snapshot), 10, 0.05) < 2 + DEADLINE
    cluster.thaw(1)
    assert coordinator.snapshot().owners[Partition(0)] == key
    assert coordinator.renew(lease) > 0
    until(lambda: watch._stream is not None, 10)
    woken.clear()
    coordinator.put_member(Member("b-1", "b"), lease)
    assert woken.wait(5)
    coordinator.revoke(lease)

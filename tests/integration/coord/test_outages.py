"""The coordinator while etcd is killed, frozen, restarted, compacted or one of several."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
from tests.integration.coord.conftest import Connect
from tests.support.clock import FakeClock
from tests.support.etcd_server import EtcdServer, free_port
from tests.support.memory_coord import MemoryFenceStore
from tests.support.ownership_threads import OwnershipThreads
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.stubs import message
from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Member
from tickrail.engine.ownership import OwnershipSettings

LOG = structlog.get_logger()
pytestmark = pytest.mark.integration
P0, P1 = Partition(0), Partition(1)


def answers(coordinator: EtcdCoordinator) -> bool:
    try:
        coordinator.snapshot()
    except UnavailableError:
        return False
    return True


def renews(coordinator: EtcdCoordinator, lease: int) -> bool:
    try:
        return coordinator.renew(lease) > 0
    except UnavailableError as error:
        LOG.info("not renewed", error=str(error))
        return False


def test_killed_and_restarted(own_etcd: EtcdServer, connect: Connect) -> None:
    coordinator = connect(own_etcd.endpoint)
    woken = threading.Event()
    coordinator.watch(woken.set)
    lease = coordinator.grant(60).id
    key = coordinator.claim(P0, "a-1", lease)
    own_etcd.kill()
    with pytest.raises(UnavailableError, match=own_etcd.endpoint):
        coordinator.renew(lease)
    with pytest.raises(UnavailableError):
        coordinator.claim(P1, "a-1", lease)
    pause(3)  # the watch is in its longer waits by now
    own_etcd.start()
    assert until(lambda: answers(coordinator), 5) < 2
    assert coordinator.renew(lease) > 0
    assert coordinator.snapshot().owners[P0] == key
    watch = coordinator._watch
    assert watch is not None
    assert until(lambda: watch.connections == 2, 5) < 3
    pause(0.2)
    woken.clear()
    coordinator.claim(P1, "a-1", lease)
    assert woken.wait(2)


def test_frozen_is_noticed_by_calls_and_by_the_idle_watch(
    own_etcd: EtcdServer, connect: Connect
) -> None:
    coordinator = connect(own_etcd.endpoint)
    coordinator.watch(lambda: None)
    lease = coordinator.grant(60).id
    watch = coordinator._watch
    assert watch is not None
    until(lambda: watch.connections == 1)
    own_etcd.freeze()
    assert until(lambda: watch._stream is None, 15) < 9  # nothing but pings tells the watch
    clock = SystemClock()
    began = clock.monotonic()
    with pytest.raises(UnavailableError, match="does not answer"):
        coordinator.renew(lease)
    assert clock.monotonic() - began < 2.5
    own_etcd.thaw()
    assert until(lambda: answers(coordinator), 5) < 2.5
    assert coordinator.renew(lease) > 0
    until(lambda: watch.connections >= 2)


def test_a_compacted_watch_begins_anew(own_etcd: EtcdServer, connect: Connect) -> None:
    coordinator, other = connect(own_etcd.endpoint), connect(own_etcd.endpoint)
    woken = threading.Event()
    coordinator.watch(woken.set)
    watch = coordinator._watch
    assert watch is not None
    until(lambda: watch.connections == 1)
    lease = other.grant(60).id
    other.claim(P0, "a-1", lease)
    until(lambda: watch._next_revision > 0)
    # As after a long disconnect: it resumes from a revision that is compacted away.
    for _ in range(3):
        other.put_member(Member("a-1", "a"), lease)
    revision = other.snapshot().revision
    other._client.unary("KV", "Compact", message("CompactionRequest")(revision=revision))
    watch._next_revision = 1
    watch.reconnect()
    until(lambda: watch.connections >= 2)
    until(lambda: watch._next_revision == 0 or watch.connections >= 3)
    pause(0.5)
    woken.clear()
    other.claim(P1, "a-1", lease)
    assert woken.wait(3)


def test_a_dead_server_among_several_costs_one_call(
    shared_etcd: EtcdServer, connect: Connect
) -> None:
    coordinator = connect(f"127.0.0.1:{free_port()}", shared_etcd.endpoint)
    woken = threading.Event()
    coordinator.watch(woken.set)
    until(lambda: answers(coordinator), 3)
    assert coordinator.grant(30).id
    watch = coordinator._watch
    assert watch is not None
    until(lambda: watch.connections == 1, 3)


def test_a_cluster_of_three_that_loses_its_leader(tmp_path: Path, connect: Connect) -> None:
    peers = {f"m{i}": free_port() for i in range(3)}
    cluster = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in peers.items())
    servers = [
        EtcdServer(tmp_path / name, name=name, peer_port=port, cluster=cluster)
        for name, port in peers.items()
    ]
    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait()
        coordinator = connect(*(s.endpoint for s in servers))
        until(lambda: answers(coordinator), 15)
        lease = coordinator.grant(30).id
        key = coordinator.claim(P0, "a-1", lease)
        leader = _leader(coordinator, servers)
        assert all(server.alive for server in servers)
        servers[leader].freeze()
        assert until(lambda: renews(coordinator, lease), 15) < 8
        until(lambda: answers(coordinator), 5)
        assert coordinator.snapshot().owners == {P0: key}
    finally:
        for server in servers:
            server.kill()


def _leader(coordinator: EtcdCoordinator, servers: list[EtcdServer]) -> int:
    """The leader's place, once all servers have joined and agree who it is."""
    client = coordinator._client
    found: list[int] = []

    def agreed() -> bool:
        leaders, members = set(), []
        for index in range(len(servers)):
            client._current = index
            try:
                status = client.unary("Maintenance", "Status", message("StatusRequest")())
            except UnavailableError:
                return False
            leaders.add(status.leader)
            members.append(status.header.member_id)
        found[:] = [members.index(one) for one in leaders if one in members]
        return len(leaders) == 1 and bool(found)

    until(agreed, 15)
    return found[0]


def test_while_etcd_is_down_next_to_no_cpu_is_used(own_etcd: EtcdServer, prefix: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.owner_process", own_etcd.endpoint, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "owned\n"
        own_etcd.kill()
        pause(3)  # the waits have their full length by now
        child.stdin.write("measure\n")
        child.stdin.flush()
        share = float(child.stdout.readline())
        child.kill()
    LOG.info("measured", cpu_share_while_etcd_is_down=share)
    assert share < 0.005


def test_the_end_of_an_outage_is_noticed_by_itself(own_etcd: EtcdServer, connect: Connect) -> None:
    settings = OwnershipSettings(
        name="a", partitions=8, ttl=4, renew_every=1.2, clock_tolerance=1e12
    )
    process = OwnershipThreads(
        settings, connect(own_etcd.endpoint), MemoryFenceStore(FakeClock(), 8)
    ).start()
    try:
        until(lambda: process.count == 8)
        first = process.ownership.status().identity
        own_etcd.kill()
        assert until(lambda: process.count == 0, 5, every=0.002) <= 3.2
        pause(3)
        own_etcd.start()
        control = connect(own_etcd.endpoint)
        until(lambda: answers(control))  # it has elected itself
        back = until(lambda: process.count == 8, 10)
        LOG.info("measured", seconds_until_back=back)
        assert back < 2
        assert process.ownership.status().identity != first
        assert process.errors == []
    finally:
        process.die()

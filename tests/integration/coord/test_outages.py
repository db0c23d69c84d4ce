"""The coordinator while etcd is killed, frozen, restarted, compacted or one of several."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import structlog
from tests.integration.coord.conftest import Connect
from tests.support.clock import FakeClock
from tests.support.cpu import cpu_seconds
from tests.support.etcd_server import EtcdServer
from tests.support.memory_coord import MemoryFenceStore
from tests.support.ownership_threads import OwnershipThreads
from tests.support.proxy import TcpProxy
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.stubs import message
from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Member
from tickrail.engine.ownership import OwnershipSettings
from tickrail.local.ports import any_free

LOG = structlog.get_logger()
pytestmark = pytest.mark.integration
CLOCK = SystemClock()
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
    began = CLOCK.monotonic()
    with pytest.raises(UnavailableError, match="does not answer"):
        coordinator.renew(lease)
    assert CLOCK.monotonic() - began < 2.5
    own_etcd.thaw()
    assert until(lambda: answers(coordinator), 5) < 2.5
    assert coordinator.renew(lease) > 0
    until(lambda: watch.connections >= 2)


def test_a_watch_resumes_after_what_it_saw_last(own_etcd: EtcdServer, connect: Connect) -> None:
    """C-09's neighbour: what happened while it was cut off comes when it is back."""
    host, _, port = own_etcd.endpoint.rpartition(":")
    with TcpProxy(host, int(port)) as network:
        coordinator, other = connect(network.address), connect(own_etcd.endpoint)
        coordinator.watch(lambda: None)
        watch = coordinator._watch
        assert watch is not None
        until(lambda: watch.connections == 1)
        lease = other.grant(60).id
        seen = other.claim(P0, "a-1", lease).create_revision
        until(lambda: watch._next_revision == seen + 1)
        network.cut()
        until(lambda: watch._stream is None)
        missed = other.claim(P1, "a-1", lease).create_revision
        own_etcd.kill()  # what it held in memory for its watchers is gone too
        own_etcd.start()
        network.heal()
        until(lambda: answers(coordinator), 15)
        until(lambda: watch._next_revision == missed + 1)
        assert missed > seen


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


def test_a_dead_server_among_several_costs_nothing(
    shared_etcd: EtcdServer, connect: Connect
) -> None:
    coordinator = connect(f"127.0.0.1:{any_free()}", shared_etcd.endpoint)
    coordinator._client._current = 0
    assert coordinator.version()
    coordinator._client._current = 0
    lease = coordinator.grant(30).id
    coordinator._client._current = 0
    assert coordinator.renew(lease) > 0
    coordinator._client._current = 0
    woken = threading.Event()
    coordinator.watch(woken.set)
    watch = coordinator._watch
    assert watch is not None
    until(lambda: watch.connections == 1, 3)
    woken.clear()
    coordinator.claim(P0, "a-1", lease)
    assert woken.wait(3)


def test_while_etcd_is_down_next_to_no_cpu_is_used_and_its_return_is_noticed(
    own_etcd: EtcdServer, connect: Connect, prefix: str
) -> None:
    control = connect(own_etcd.endpoint)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.owner_process", own_etcd.endpoint, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "owned\n"
        first = {key.identity for key in control.snapshot().owners.values()}
        own_etcd.kill()
        pause(3)  # the waits have their full length by now
        before, began = cpu_seconds(child.pid), CLOCK.monotonic()
        pause(20)
        share = (cpu_seconds(child.pid) - before) / (CLOCK.monotonic() - began)
        own_etcd.start()
        until(lambda: answers(control))  # it has elected itself
        back = until(lambda: owned_anew(control, first), 20)
        child.stdin.close()
        child.kill()
    LOG.info("measured", cpu_share_while_etcd_is_down=share, seconds_until_back=back)
    assert share < 0.005
    assert back < 2


def owned_anew(coordinator: EtcdCoordinator, before: set[str]) -> bool:
    """Whether all partitions are owned by a member that was none of these."""
    owners = {key.identity for key in coordinator.snapshot().owners.values()}
    return len(coordinator.snapshot().owners) == 8 and not owners & before


def test_the_token_is_the_revision_at_which_the_key_came_to_be(
    own_etcd: EtcdServer, connect: Connect
) -> None:
    """C-05: neither the lease, which is not ordered, nor the last change of the key."""
    coordinator = connect(own_etcd.endpoint)
    first = coordinator.grant(60).id
    claimed = coordinator.claim(P0, "a-1", first)
    key = coordinator._key("owners/0")
    put = message("PutRequest")(key=key, value=b'{"member": "a-1"}', lease=first)
    changed = coordinator._client.unary("KV", "Put", put).header.revision
    assert changed > claimed.create_revision
    assert coordinator.snapshot().owners[P0] == claimed
    assert coordinator.claim(P0, "a-1", first) == claimed
    coordinator.revoke(first)
    again = coordinator.claim(P0, "b-1", coordinator.grant(60).id)
    assert again.create_revision > changed


def test_a_restart_of_etcd_gives_a_dead_owners_lease_its_time_again(
    own_etcd: EtcdServer, connect: Connect
) -> None:
    """C-11: a takeover may take up to twice the lease, and a renewed lease is not lost."""
    coordinator = connect(own_etcd.endpoint)
    ttl = 3
    dead, alive = coordinator.grant(ttl).id, coordinator.grant(ttl).id
    coordinator.claim(P0, "dead-1", dead)
    key = coordinator.claim(P1, "alive-1", alive)
    began = CLOCK.monotonic()
    pause(0.7 * ttl)
    assert coordinator.renew(alive) == ttl
    own_etcd.kill()
    own_etcd.start()
    until(lambda: renews(coordinator, alive), 10)

    def freed() -> bool:
        assert renews(coordinator, alive)
        return P0 not in coordinator.snapshot().owners

    until(freed, 15, 0.2)
    took = CLOCK.monotonic() - began
    LOG.info("measured", seconds_until_a_dead_owner_was_free=took, ttl=ttl)
    assert 1.5 * ttl < took < 2 * ttl + 3
    assert coordinator.snapshot().owners == {P1: key}


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

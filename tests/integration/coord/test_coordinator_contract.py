"""The coordinator's contract on a real etcd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs
from tests.contract.test_ownership_port import CoordinatorContract
from tests.integration.coord.conftest import Connect
from tests.support.etcd_server import EtcdServer
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.stubs import message
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Coordinator, Directory, Drain, Member
from tickrail.runtime.log import _mask

pytestmark = pytest.mark.integration


class TestEtcdCoordinator(CoordinatorContract):
    @pytest.fixture
    def coordinator(self, connect: Connect, shared_etcd: EtcdServer) -> Coordinator:
        return connect(shared_etcd.endpoint)

    @pytest.fixture
    def other(self, connect: Connect, shared_etcd: EtcdServer) -> Coordinator:
        return connect(shared_etcd.endpoint)

    @pytest.fixture
    def directory(self, connect: Connect, shared_etcd: EtcdServer) -> Directory:
        return connect(shared_etcd.endpoint)

    @pytest.fixture
    def expire(self, coordinator: Coordinator) -> Callable[[], None]:
        def wait() -> None:
            pause(1)
            until(lambda: not coordinator.snapshot().members, 10)

        return wait


def put(one: EtcdCoordinator, key: str, value: bytes, lease: int = 0) -> None:
    """As an operator would with etcdctl."""
    request = message("PutRequest")(key=key.encode(), value=value, lease=lease)
    one._client.unary("KV", "Put", request)


def test_a_drains_key_that_was_put_by_hand_drains(
    connect: Connect, shared_etcd: EtcdServer, prefix: str
) -> None:
    one = connect(shared_etcd.endpoint)
    for name, value in {"a": b"", "b": b"[]", "c": b'{"since": "yesterday"}'}.items():
        put(one, f"{prefix}drains/{name}", value)
    assert one.snapshot().drains == {n: Drain(n) for n in "abc"}
    assert one.put_drain(Drain("a", by="key:x")) == Drain("a")


def test_a_member_key_without_a_lease_is_ignored_and_said_once(
    connect: Connect, shared_etcd: EtcdServer, prefix: str
) -> None:
    one = connect(shared_etcd.endpoint)
    lease = one.grant(30).id
    one.put_member(Member("a-1", "a"), lease)
    put(one, f"{prefix}members/ghost-0badf00d", b'{"name":"ghost","weight":1,"since":null}')
    with capture_logs() as logs:
        assert set(one.snapshot().members) == {"a-1"}
        assert set(one.snapshot().members) == {"a-1"}
    assert [(x["event"], x["etcd_name"]) for x in logs] == [
        ("member key without a lease ignored", f"{prefix}members/ghost-0badf00d")
    ]


@pytest.mark.parametrize("value", [b"garbage", b"[]", b"{}", b"\xff", b'{"member": "ghost-1"}'])
def test_an_owner_key_of_any_value_is_known_by_its_name_and_can_be_released(
    connect: Connect, shared_etcd: EtcdServer, prefix: str, value: bytes
) -> None:
    one = connect(shared_etcd.endpoint)
    put(one, f"{prefix}owners/9", value)
    with capture_logs() as logs:
        key = one.snapshot().owners[Partition(9)]
    assert key.lease == 0
    assert key.identity == ("ghost-1" if b"ghost" in value else "")
    assert len(logs) == (0 if b"ghost" in value else 1)
    assert one.claim(Partition(9), "a-1", one.grant(30).id) == key
    assert one.release(Partition(9), key.create_revision)
    assert one.snapshot().owners == {}


@pytest.mark.parametrize("name", ["owners/-1", "owners/09", "owners/x", "members/x", "more"])
def test_a_key_that_is_not_understood_is_named_in_the_log(
    connect: Connect, shared_etcd: EtcdServer, prefix: str, name: str
) -> None:
    one = connect(shared_etcd.endpoint)
    lease = one.grant(30).id
    put(one, prefix + name, b'{"member": "a-1"}', lease)
    with capture_logs() as logs:
        snapshot = one.snapshot()
    assert (snapshot.members, snapshot.owners) == ({}, {})
    (line,) = logs
    assert {k: _mask(k, v) for k, v in line.items()} == {
        "event": "key in etcd not understood",
        "etcd_name": prefix + name,
        "log_level": "warning",
    }
    one.revoke(lease)

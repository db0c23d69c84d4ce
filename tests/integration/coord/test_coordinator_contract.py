"""The coordinator's contract on a real etcd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.contract.test_ownership_port import CoordinatorContract
from tests.integration.coord.conftest import Connect
from tests.support.etcd_server import EtcdServer
from tests.support.until import pause, until

from tickrail.coord.stubs import message
from tickrail.core.ports_ownership import Coordinator, Directory, Drain

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


def test_a_drains_key_that_was_put_by_hand_drains(
    connect: Connect, shared_etcd: EtcdServer, prefix: str
) -> None:
    one = connect(shared_etcd.endpoint)
    for name, value in {"a": b"", "b": b"[]", "c": b'{"since": "yesterday"}'}.items():
        put = message("PutRequest")(key=f"{prefix}drains/{name}".encode(), value=value)
        one._client.unary("KV", "Put", put)
    assert one.snapshot().drains == {n: Drain(n) for n in "abc"}
    assert one.put_drain(Drain("a", by="key:x")) == Drain("a")

"""The coordinator's contract on a real etcd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.contract.test_ownership_port import CoordinatorContract
from tests.integration.coord.conftest import Connect
from tests.support.etcd_server import EtcdServer
from tests.support.until import pause, until

from tickrail.core.ports_ownership import Coordinator

pytestmark = pytest.mark.integration


class TestEtcdCoordinator(CoordinatorContract):
    @pytest.fixture
    def coordinator(self, connect: Connect, shared_etcd: EtcdServer) -> Coordinator:
        return connect(shared_etcd.endpoint)

    @pytest.fixture
    def other(self, connect: Connect, shared_etcd: EtcdServer) -> Coordinator:
        return connect(shared_etcd.endpoint)

    @pytest.fixture
    def expire(self, coordinator: Coordinator) -> Callable[[], None]:
        def wait() -> None:
            pause(1)
            until(lambda: not coordinator.snapshot().members, 10)

        return wait

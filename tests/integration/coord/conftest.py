"""Real etcd servers for the coordinator's tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.etcd_server import EtcdServer

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings

DATA = Path(__file__).parent / "data"

Connect = Callable[..., EtcdCoordinator]


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all tests that do not harm it."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.kill()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server that the test may kill."""
    server = EtcdServer(tmp_path / "etcd").start()
    yield server
    server.kill()


@pytest.fixture
def prefix() -> str:
    return f"/tickrail/{uuid.uuid4().hex}/"


@pytest.fixture
def connect(prefix: str) -> Iterator[Connect]:
    """Makes coordinators that are closed at the end."""
    made: list[EtcdCoordinator] = []

    def one(*endpoints: str, **settings: str) -> EtcdCoordinator:
        coordinator = EtcdCoordinator(EtcdSettings(endpoints, prefix=prefix, **settings))
        made.append(coordinator)
        return coordinator

    yield one
    for coordinator in made:
        coordinator.close()

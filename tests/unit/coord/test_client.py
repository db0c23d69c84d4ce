"""What a client says and where it goes, without a server."""

from __future__ import annotations

import socket

import pytest

from tickrail.coord.client import _NOT_CONNECTED, EtcdClient, _reason
from tickrail.coord.settings import EtcdSettings
from tickrail.coord.stubs import message
from tickrail.core.errors import UnavailableError


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            f"{_NOT_CONNECTED}UNKNOWN: ipv4:127.0.0.1:2379: Connection refused",
            "Connection refused",
        ),
        (
            f"{_NOT_CONNECTED}UNKNOWN: ipv6:%5B::1%5D:2379: Ssl handshake failed: certificate",
            "Ssl handshake failed: certificate",
        ),
        ("Stream removed (ping timeout)", "Stream removed (ping timeout)"),
        ("etcdserver: no leader", "etcdserver: no leader"),
    ],
)
def test_the_reason_is_said_without_the_address(said: str, reason: str) -> None:
    assert _reason(said) == reason


def test_clients_begin_at_different_servers() -> None:
    begun = set()
    for _ in range(60):
        client = EtcdClient(EtcdSettings(("a.invalid:1", "b.invalid:1", "c.invalid:1")))
        begun.add(client._current)
        client.close()
    assert begun == {0, 1, 2}


def test_where_none_can_be_reached_each_is_tried_once_in_a_call() -> None:
    with socket.socket() as one, socket.socket() as other:
        for reserved in (one, other):
            reserved.bind(("127.0.0.1", 0))  # and does not listen
        addresses = tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in (one, other))
        client = EtcdClient(EtcdSettings(addresses))
        begun = client._current
        moves: list[int] = []
        client.on_failover(lambda: moves.append(client._current))
        with pytest.raises(UnavailableError, match=rf"{addresses[1 - begun]} does not answer"):
            client.unary("Maintenance", "Status", message("StatusRequest")())
        assert moves == [1 - begun, begun]
        client.close()

"""The proxy of the fault tests does what each of its modes says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.proxy import CLOCK, TcpProxy
from tests.support.until import until


class Echo:
    """Sends back what comes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.received = b""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.received += data
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        if self.listener.fileno() < 0:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", echo.port) as made:
        yield made


@pytest.fixture
def client(proxy: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as made:
        yield made


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return read(client, len(data))


def read(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = client.recv(65536)
        assert more, "the connection has ended"
        found += more
    return found


def silent(client: socket.socket, seconds: float = 0.2) -> None:
    """Nothing comes."""
    client.settimeout(seconds)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(10)


def test_it_passes_everything_on(client: socket.socket, proxy: TcpProxy) -> None:
    block = bytes(range(256)) * 20_000
    sender = threading.Thread(target=client.sendall, args=(block,))
    sender.start()
    assert read(client, len(block)) == block
    sender.join()
    assert (proxy.connections, proxy.accepted) == (1, 1)


def test_an_end_is_passed_on(client: socket.socket, proxy: TcpProxy) -> None:
    client.sendall(b"last")
    client.shutdown(socket.SHUT_WR)
    assert read(client, 4) == b"last"
    assert client.recv(1) == b""
    until(lambda: proxy.connections == 0)


def test_a_delay_counts_both_ways(client: socket.socket, proxy: TcpProxy) -> None:
    ask(client, b"warm")
    proxy.delay(0.1)
    began = CLOCK.monotonic()
    assert ask(client, b"slow") == b"slow"
    assert CLOCK.monotonic() - began >= 0.2
    proxy.delay(600.0)
    proxy.heal()
    assert ask(client, b"quick") == b"quick"


def test_healing_brings_what_is_delayed_at_once(client: socket.socket, proxy: TcpProxy) -> None:
    proxy.delay(60.0)
    client.sendall(b"x")
    silent(client)
    proxy.heal()
    assert read(client, 1) == b"x"


def test_a_cut_resets_and_refuses_until_it_heals(
    client: socket.socket, proxy: TcpProxy, echo: Echo
) -> None:
    ask(client, b"warm")
    proxy.cut()
    assert proxy.connections == 0
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as again:
        assert ask(again, b"back") == b"back"
    assert echo.received == b"warmback"


def test_a_blackhole_keeps_connections_and_what_was_sent(
    client: socket.socket, proxy: TcpProxy, echo: Echo
) -> None:
    proxy.blackhole()
    client.sendall(b"held")
    silent(client)
    assert (proxy.connections, echo.received) == (1, b"")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as other:
        other.sendall(b"new")
        silent(other)
        proxy.heal()
        assert (read(client, 4), read(other, 3)) == (b"held", b"new")


def test_a_blackhole_of_one_direction(client: socket.socket, proxy: TcpProxy, echo: Echo) -> None:
    proxy.blackhole("to_client")
    client.sendall(b"heard")
    until(lambda: echo.received == b"heard")
    silent(client)
    proxy.blackhole("to_server")
    assert read(client, 5) == b"heard"
    client.sendall(b"unheard")
    silent(client)
    assert echo.received == b"heard"
    proxy.heal()
    assert read(client, 7) == b"unheard"


def test_bandwidth_is_shared_out(client: socket.socket, proxy: TcpProxy) -> None:
    proxy.bandwidth(100_000)
    began = CLOCK.monotonic()
    ask(client, b"x" * 30_000)
    assert CLOCK.monotonic() - began >= 0.25
    proxy.bandwidth(50)
    proxy.heal()
    ask(client, b"x" * 30_000)


def test_a_server_that_is_away_is_a_reset(proxy: TcpProxy, echo: Echo) -> None:
    echo.close()
    # The reset may come before or after the connection is seen to stand.
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client,
    ):
        client.recv(1)


def test_it_may_be_closed_twice(proxy: TcpProxy) -> None:
    proxy.close()
    proxy.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10)

"""A pooler in transaction mode, as far as its clients can tell: sessions of the server are swapped.

Each transaction of a client goes to the next of a few sessions that it shares with nobody else. It
does not know of prepared statements, and takes the client's startup options for its own business,
as poolers do.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psycopg
from psycopg import conninfo

_AUTHENTICATED = b"R" + struct.pack(">ii", 8, 0)
_STATUS = {
    "server_version": "18.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
}
_NO_TLS = (80877103, 80877104)
"""Requests for TLS and GSS, which are answered with no."""
_IDLE = b"I"


class Pooler:
    """Listens on a loopback port of its own until the block ends.

    Args:
        url: the server, and who its sessions are.
        sessions: sessions for each client.
    """

    def __init__(self, url: str, sessions: int = 2) -> None:
        self._target, self._sessions = url, sessions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._open: list[socket.socket] = []
        self.swaps = 0
        port = self._listener.getsockname()[1]
        self.url = conninfo.make_conninfo(url, host="127.0.0.1", port=port)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in (self._listener, *self._open):
            _end(one)
        for thread in self._threads:
            thread.join(10)
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        made = [psycopg.connect(self._target, autocommit=True) for _ in range(self._sessions)]
        servers = [socket.socket(fileno=os.dup(conn.pgconn.socket)) for conn in made]
        try:
            with suppress(OSError):  # the client has gone, or the block has ended
                self._relay(client, servers)
        finally:
            for one in servers:
                one.close()
            for conn in made:
                conn.close()
            _end(client)

    def _relay(self, client: socket.socket, servers: list[socket.socket]) -> None:
        for one in (client, *servers):
            one.setblocking(True)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _greet(client)
        while request := _request(client):
            servers[0].sendall(request)
            if _answer(servers[0], client) == _IDLE:
                servers.append(servers.pop(0))
                self.swaps += 1


def _greet(client: socket.socket) -> None:
    """The start of a session, its options passed over."""
    while True:
        (length,) = struct.unpack(">i", _exactly(client, 4))
        body = _exactly(client, length - 4)
        if struct.unpack(">i", body[:4])[0] not in _NO_TLS:
            break
        client.sendall(b"N")
    said = _AUTHENTICATED
    for name, value in _STATUS.items():
        text = f"{name}\0{value}\0".encode()
        said += b"S" + struct.pack(">i", len(text) + 4) + text
    client.sendall(
        said + b"K" + struct.pack(">iii", 12, 1, 1) + b"Z" + struct.pack(">i", 5) + _IDLE
    )


def _request(client: socket.socket) -> bytes:
    """What the client sends until it waits for an answer; empty when it leaves."""
    found = b""
    while True:
        kind, message = _message(client)
        if kind == b"X":
            return b""
        found += message
        if kind in {b"Q", b"S"}:
            return found


def _answer(server: socket.socket, client: socket.socket) -> bytes:
    """Hand the answer on; the state of the transaction after it."""
    while True:
        kind, message = _message(server)
        client.sendall(message)
        if kind == b"Z":
            return message[-1:]


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    (length,) = struct.unpack(">i", head[1:])
    return head[:1], head + _exactly(source, length - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            raise ConnectionResetError
        found += more
    return found


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)

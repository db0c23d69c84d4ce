"""An HTTP receiver of raw sockets that can do everything wrong that a server can."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

OK_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Request:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [v for n, v in self.headers if n.lower() == name.lower()]
        assert len(found) <= 1, f"{name} is there {len(found)} times"
        return found[0] if found else None


Behaviour = Callable[[socket.socket, Request], bool]
"""Answers a request; True keeps the connection open for the next."""


@dataclass
class Receiver:
    """Listens on loopback; `behave` answers, each connection on a thread of its own."""

    behave: Behaviour | None = None
    tls: ssl.SSLContext | None = None
    address: str = "127.0.0.1"
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def __enter__(self) -> Self:
        self._listener = socket.create_server((self.address, 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._accept, daemon=True)
        self._main.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.released.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._main.join()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def url(self, path: str = "/") -> str:
        return f"http{'s' if self.tls else ''}://{self.address}:{self.port}{path}"

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, 30)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket) -> None:
        with raw, contextlib.suppress(OSError):
            connection = self.tls.wrap_socket(raw, server_side=True) if self.tls else raw
            with connection, connection.makefile("rb") as stream:
                while True:
                    line = stream.readline().decode("latin-1").split()
                    if not line:
                        return
                    headers: list[tuple[str, str]] = []
                    while (text := stream.readline().decode("latin-1").strip()) != "":
                        name, _, value = text.partition(":")
                        headers.append((name, value.strip()))
                    request = Request(line[0], line[1], headers, b"")
                    request.body = stream.read(int(request.header("content-length") or 0))
                    with self.arrived:
                        self.requests.append(request)
                        self.arrived.notify_all()
                    if self.behave is None:
                        connection.sendall(OK_ANSWER)
                    elif not self.behave(connection, request):
                        return


def answer(status: str, headers: str = "", body: bytes = b"") -> Behaviour:
    """Always the same answer; the connection stays open."""
    head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode()

    def behave(connection: socket.socket, _: Request) -> bool:
        connection.sendall(head + body)
        return True

    return behave

"""Requests that take longer than a process that stops waits for them."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from tests.support.api import served
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail_api.edge import Edge, EdgeSettings
from tickrail_api.server import Bounds
from tickrail_api.threads import LATER

BOUNDS = Bounds(finish=1)


class Endless:
    """An application one path of which streams for ever, and one of which never answers."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.waits = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; on a thread of its own, as the routes are."""
        del receive, send
        if scope["path"] == "/stream":
            scope[LATER] = StreamingResponse(self._lines())
            return
        self.waits.set()
        self.free.wait(60)

    def _lines(self) -> Iterator[bytes]:
        while not self.free.wait(0.01):
            yield b"line\n"


def paths(path: str) -> tuple[str, list[str]]:
    """Each path is one."""
    return path, ["GET"]


@contextmanager
def asked(url: str, path: str) -> Iterator[socket.socket]:
    """A connection on which a request was sent."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 0), timeout=20) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        yield s


def rest_of(s: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with suppress(ConnectionResetError):
        while chunk := s.recv(65536):
            found += chunk
    return found


def test_a_stop_that_cuts_requests_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    app = Endless()
    edge = Edge(app, SystemClock(), PrometheusMetrics(), paths, lambda _: "anybody", EdgeSettings())
    ended: list[bytes] = []
    with capture_logs() as written, caplog.at_level(logging.ERROR), ExitStack() as sockets:
        with served(edge, BOUNDS) as url:
            stream = sockets.enter_context(asked(url, "/stream"))
            slow = sockets.enter_context(asked(url, "/slow"))
            assert stream.recv(65536).startswith(b"HTTP/1.1 200 ")
            until(app.waits.is_set)
            readers = [
                threading.Thread(target=lambda s=s: ended.append(rest_of(s)))
                for s in (stream, slow)
            ]
            for reader in readers:
                reader.start()
        # The server has stopped, both requests under way.
        for reader in readers:
            reader.join(20)
        app.free.set()
    assert not caplog.records
    [cut] = [entry for entry in written if entry["event"] == "requests_cut"]
    assert (cut["log_level"], cut["requests"]) == ("warning", 2)
    lines = {e["path"]: (e["status"], e["cut"]) for e in written if e["event"] == "request"}
    assert lines == {"/stream": (200, True), "/slow": (503, True)}
    assert not [entry for entry in written if entry["log_level"] == "error"]
    [refused] = [answer for answer in ended if answer.startswith(b"HTTP/1.1 503 ")]
    assert b"retry-after: 1" in refused.lower()

"""Clients that are slow, silent, too many or not HTTP: real sockets against the real server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from tests.support.api import served
from tests.support.clock import FakeClock
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail_api.edge import Edge, EdgeSettings
from tickrail_api.server import MAX_HEAD, Bounds

pytestmark = pytest.mark.integration
BOUNDS = Bounds(head=0.3, idle=1.0, drain=0.5, finish=5)
BODY_WITHIN = 0.4
LARGE = 8 * 1024 * 1024
REQUEST = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once: little, or more than any buffer between holds."""
    del receive
    body = b"x" * LARGE if scope["path"] == "/large" else b"small"
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", str(len(body)).encode())]})  # fmt: skip
    await send({"type": "http.response.body", "body": body})


def anybody(scope: Scope) -> str:
    """Everybody's key is right."""
    del scope
    return "anybody"


def paths(path: str) -> tuple[str, list[str]] | None:
    """Two paths."""
    return (path, ["GET", "POST", "HEAD", "OPTIONS"]) if path in {"/small", "/large"} else None


@pytest.fixture(scope="module")
def url() -> Iterator[httpx.URL]:
    """A server with small bounds."""
    settings = EdgeSettings(body_within=BODY_WITHIN)
    edge = Edge(application, SystemClock(), PrometheusMetrics(), paths, anybody, settings)
    with served(edge, BOUNDS) as address:
        yield httpx.URL(address)


@contextmanager
def connected(url: httpx.URL) -> Iterator[socket.socket]:
    with socket.create_connection((url.host, url.port or 0), timeout=20) as s:
        yield s


def all_of(s: socket.socket) -> bytes:
    """What the server sends until it closes."""
    found = b""
    with suppress(ConnectionResetError):
        while chunk := s.recv(65536):
            found += chunk
    return found


def answered(s: socket.socket) -> bool:
    """Whether a request on this connection has its answer."""
    s.sendall(REQUEST)
    found = b""
    while not found.endswith(b"small") and (chunk := s.recv(65536)):
        found += chunk
    return found.startswith(b"HTTP/1.1 200 ")


def refusal(answer: bytes) -> tuple[int, Any]:
    """The status and the document of an answer that ends the connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    assert b"x-content-type-options: nosniff" in head
    return int(head.split()[1]), json.loads(body)


def test_an_answer_comes_in_one_packet(url: httpx.URL) -> None:
    """A second one would wait for the client to acknowledge the first, which it puts off."""
    with connected(url) as s:
        for _ in range(20):
            s.sendall(REQUEST)
            assert s.recv(65536).endswith(b"\r\n\r\nsmall")


def test_a_head_that_does_not_end_is_cut_off(url: httpx.URL) -> None:
    with connected(url) as s:
        s.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        s.settimeout(0.05)
        answers = [b""]

        def answered() -> bytes:
            s.sendall(b"a")  # a byte now and then puts the end off for nobody
            with suppress(TimeoutError):
                answers.append(s.recv(65536))
            return answers[-1]

        until(answered)
        s.settimeout(20)
        status, problem = refusal(answers[-1] + all_of(s))
    assert (status, problem["code"]) == (408, "timeout")


def test_a_connection_that_says_nothing_is_closed(url: httpx.URL) -> None:
    with connected(url) as s:
        assert all_of(s) == b""


def test_the_second_request_of_a_connection_has_no_more_time(url: httpx.URL) -> None:
    with connected(url) as s:
        s.sendall(REQUEST)
        assert s.recv(65536).startswith(b"HTTP/1.1 200 ")
        s.sendall(b"GET /small HTTP/1.1\r\nHo")
        answer = all_of(s)
    assert refusal(answer[answer.index(b"HTTP/1.1 408") :])[0] == 408


def test_an_idle_connection_is_closed(url: httpx.URL) -> None:
    with connected(url) as s:
        s.sendall(REQUEST)
        assert all_of(s).endswith(b"small")


def test_a_body_that_does_not_come_is_told_and_no_longer_waited_for(url: httpx.URL) -> None:
    with connected(url) as s:
        s.sendall(b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
        answer = all_of(s)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"The body took longer than 0.4 s" in answer


def test_a_client_that_does_not_read_is_given_up(url: httpx.URL) -> None:
    with connected(url) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert s.recv(16).startswith(b"HTTP/1.1 200 ")
        until(lambda: gone(s))


def gone(s: socket.socket) -> bool:
    """Whether the other end has broken the connection off, seen without reading."""
    try:
        s.sendall(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_head_that_is_too_large(url: httpx.URL) -> None:
    for size in (MAX_HEAD, 100 * MAX_HEAD):
        with connected(url) as s:
            s.sendall(b"GET /small HTTP/1.1\r\nHost: x\r\nX: ")
            with suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(b"a" * size + b"\r\n\r\n")
            answer = all_of(s)
        if answer:  # a reset may overtake the answer to what was never read
            assert answer.startswith(b"HTTP/1.1 431 ")
        assert size > MAX_HEAD or answer


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a port that does not speak it
        b"GET /small HTTP/1.1\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: x\r\nX\x00: y\r\n\r\n",
        b"GET /sm all HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HELLO\r\n\r\n",
    ],
)
def test_what_is_no_request(url: httpx.URL, text: bytes) -> None:
    with connected(url) as s:
        s.sendall(text)
        status, problem = refusal(all_of(s))
    assert status in {400, 501}
    assert problem["code"] == "malformed"


def test_a_broken_body_is_refused(url: httpx.URL) -> None:
    with connected(url) as s:
        s.sendall(b"POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert refusal(all_of(s))[0] == 400


def test_requests_in_a_row_without_waiting_are_answered_in_order(url: httpx.URL) -> None:
    last = b"HEAD /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(url) as s:
        s.sendall(REQUEST * 3 + last)
        answers = all_of(s)
    assert answers.count(b"HTTP/1.1 200 ") == 4
    assert answers.count(b"small") == 3


def test_more_connections_than_allowed_are_told_so() -> None:
    edge = Edge(application, SystemClock(), PrometheusMetrics(), paths, anybody, EdgeSettings())
    with served(edge, Bounds(connections=2, finish=5)) as address:
        url = httpx.URL(address)
        with connected(url) as first, connected(url) as second:
            for s in (first, second):
                assert answered(s)
            with connected(url) as third:
                status, problem = refusal(all_of(third))
            assert (status, problem["code"]) == (503, "unavailable")
            assert answered(first)

        def served_again() -> bool:
            with connected(url) as s:
                return answered(s)

        until(served_again)


def test_a_clock_that_stands_still_does_not_matter() -> None:
    """Timers are the event loop's own; the clock only dates ids."""
    edge = Edge(application, FakeClock(), PrometheusMetrics(), paths, anybody, EdgeSettings())
    with served(edge, BOUNDS) as address:
        assert httpx.get(f"{address}/small", trust_env=False).text == "small"


def test_a_request_with_two_lengths_is_refused_and_the_connection_closed(url: httpx.URL) -> None:
    """What follows it may be of somebody else, whom a proxy sent on the same connection."""
    with connected(url) as s:
        s.sendall(
            b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + REQUEST
        )
        said = all_of(s)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in said.lower()

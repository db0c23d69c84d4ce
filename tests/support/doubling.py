"""A proxy between Tickrail and a receiver that delivers requests twice, late, or loses answers.

What becomes of the first request with a key, its mode says; later ones pass.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from tests.support.receiver import Receiver, Request

Mode = Literal["pass", "lose", "twice", "at_once", "hold"]
"""`lose`: the receiver gets it, its answer does not come back. `twice`: one after the other, the
second answer comes back. `at_once`: at the same moment, and what comes back is the answer that
turns away, if one does. `hold`: it is kept until `release`."""


@dataclass(frozen=True)
class Passed:
    """A request that reached the receiver, and what that answered."""

    key: str
    fence: int
    path: str
    status: int
    replayed: bool


@dataclass
class DoublingProxy:
    """Listens on loopback; `mode` says what becomes of the first request with a key."""

    target: str
    mode: Callable[[Request], Mode]
    passed: list[Passed] = field(default_factory=list)
    held: list[Request] = field(default_factory=list)
    modes: dict[str, Mode] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._receiver = Receiver(behave=self._behave).__enter__()
        self._pool = ThreadPoolExecutor(8)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._receiver.__exit__(kind, error, trace)
        self._pool.shutdown()

    def url(self, path: str) -> str:
        return self._receiver.url(path)

    def release(self, request: Request) -> Passed:
        """Let a held request pass; its sender hears nothing any more."""
        self._forward(request)
        return self.passed[-1]

    def _behave(self, connection: socket.socket, request: Request) -> bool:
        key = request.header("idempotency-key") or ""
        with self._lock:
            first = key not in self.modes
            mode = self.modes.setdefault(key, self.mode(request)) if first else "pass"
        if mode == "hold":
            with self._lock:
                self.held.append(request)
            self._receiver.released.wait(120)
            return False
        if mode == "at_once":
            answers = list(self._pool.map(self._forward, [request, request]))
            answer = next((a for a in answers if b" 409 " in a.split(b"\r\n", 1)[0]), answers[0])
        else:
            answer = self._forward(request)
            if mode == "twice":
                answer = self._forward(request)
        if mode == "lose":
            return False
        connection.sendall(answer)
        return True

    def _forward(self, request: Request) -> bytes:
        """Hand it to the receiver; the answer's bytes."""
        url = urlsplit(self.target)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        try:
            connection.putrequest(
                request.method, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.endheaders(request.body)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        replayed = response.getheader("idempotent-replay") == "true"
        with self._lock:
            self.passed.append(
                Passed(
                    request.header("idempotency-key") or "",
                    int(request.header("fencing-token") or 0),
                    request.path,
                    response.status,
                    replayed,
                )
            )
        head = f"HTTP/1.1 {response.status} {response.reason}\r\n"
        kept = ("retry-after", "content-type")
        found = [f"{n}: {v}\r\n" for n, v in response.getheaders() if n.lower() in kept]
        return (head + "".join(found) + f"Content-Length: {len(body)}\r\n\r\n").encode() + body

"""A TCP proxy on loopback that delays, throttles, cuts and swallows what passes through it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from tickrail.core.clock import SystemClock
from tickrail.local.ports import any_free

CLOCK = SystemClock()
Direction = Literal["both", "to_server", "to_client"]
_CHUNK = 65536
_HELD_BYTES = 1 << 20
"""So much of a direction is read ahead; beyond it the sender feels the back-pressure."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass(eq=False)
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    sink: socket.socket
    name: Direction
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    size: int = 0
    ended: bool = False
    """The source sent its end."""
    told: bool = False
    """And the sink was told."""

    def take(self, ready_at: float) -> None:
        data = self.source.recv(_CHUNK)
        if data:
            self.waiting.append((ready_at, data))
            self.size += len(data)
        else:
            self.ended = True

    def give(self, most: int) -> int:
        """Hand on at most so many bytes of the first chunk; how many the sink took."""
        ready_at, data = self.waiting.popleft()
        sent = 0
        try:
            sent = self.sink.send(data[:most])
        except BlockingIOError:
            pass
        finally:
            if sent < len(data):
                self.waiting.appendleft((ready_at, data[sent:]))
            self.size -= sent
        return sent


class TcpProxy:
    """Listens on a loopback port of its own and hands on to a server.

    A connection is made to the server for each that comes. What is delayed or swallowed is kept in
    order and not lost: a stream goes on where it was after `heal`, as TCP does after a network was
    away. Everything may be called from any thread and holds when the call returns.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        # Bound and not listening: keeps the port while new connections are refused.
        self._reserve = _bound(any_free())
        self.port: int = self._reserve.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._pipes: list[tuple[_Pipe, _Pipe]] = []
        self._delay = 0.0
        self._rate: float | None = None
        self._swallowed: frozenset[str] = frozenset()
        self._allowance: dict[str, float] = {}
        self._allowed_at = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._closed = False
        self._listener: socket.socket | None = None
        self.accepted = 0
        """Connections that came so far."""
        self._listen()
        self._thread = threading.Thread(target=self._run, name=f"proxy {port}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        with self._lock:
            return len(self._pipes)

    def delay(self, seconds: float) -> None:
        """Each byte arrives this much later, in both directions."""
        with self._changed():
            self._delay = seconds

    def bandwidth(self, bytes_per_second: float) -> None:
        """So many bytes pass in a second in each direction, over all connections."""
        with self._changed():
            self._rate = bytes_per_second
            self._allowance = {}
            self._allowed_at = CLOCK.monotonic()

    def blackhole(self, direction: Direction = "both") -> None:
        """Connections stay, and new ones are taken, but nothing passes in this direction."""
        with self._changed():
            both = frozenset({"to_server", "to_client"})
            self._swallowed = both if direction == "both" else frozenset({direction})

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        with self._changed():
            if self._listener is not None:
                # A close alone leaves it listening for as long as the other thread's wait holds it,
                # and `heal` could not bind the port again.
                self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                self._listener = None
            self._drop_all()

    def heal(self) -> None:
        """Pass everything on again, at once."""
        with self._changed():
            self._delay, self._rate, self._swallowed = 0.0, None, frozenset()
            for pair in self._pipes:
                for pipe in pair:
                    pipe.waiting = deque((0.0, data) for _, data in pipe.waiting)
            if self._listener is None:
                self._listen()

    def close(self) -> None:
        """End everything; may be called again."""
        with self._changed():
            self._closed = True
        self._thread.join(10)
        with self._lock:
            for one in (self._listener, self._reserve, self._wake_in, self._wake_out):
                if one is not None:
                    one.close()
            self._listener = None
            self._drop_all()

    @contextlib.contextmanager
    def _changed(self) -> Iterator[None]:
        with self._lock:
            yield
            if not self._closed or self._thread.is_alive():
                with contextlib.suppress(OSError):
                    self._wake_out.send(b"x")

    def _listen(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(256)
        self._listener.setblocking(False)

    def _drop_all(self) -> None:
        for pair in self._pipes:
            _reset(pair)
        self._pipes = []

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                selector, timeout = self._interest()
            with selector:
                try:
                    events = selector.select(timeout)
                except OSError:
                    continue  # a socket was closed meanwhile
            with self._lock:
                if self._closed:
                    return
                for key, _ in events:
                    if key.fileobj is self._wake_in:
                        with contextlib.suppress(BlockingIOError):
                            self._wake_in.recv(4096)
                    elif key.fileobj is self._listener:
                        self._accept()
                self._pump()

    def _interest(self) -> tuple[selectors.BaseSelector, float | None]:
        """What to wait for now, and for how long at most."""
        wanted: dict[socket.socket, int] = {self._wake_in: selectors.EVENT_READ}
        if self._listener is not None:
            wanted[self._listener] = selectors.EVENT_READ
        now = CLOCK.monotonic()
        timeout: float | None = None
        for pipe in (pipe for pair in self._pipes for pipe in pair):
            if pipe.name in self._swallowed:
                continue
            if not pipe.ended and pipe.size < _HELD_BYTES:
                wanted[pipe.source] = wanted.get(pipe.source, 0) | selectors.EVENT_READ
            if pipe.waiting:
                after = max(pipe.waiting[0][0] - now, self._until_allowed(pipe.name))
                if after <= 0:
                    wanted[pipe.sink] = wanted.get(pipe.sink, 0) | selectors.EVENT_WRITE
                else:
                    timeout = after if timeout is None else min(timeout, after)
        selector = selectors.PollSelector()
        for one, events in wanted.items():
            if one.fileno() >= 0:
                selector.register(one, events)
        return selector, timeout

    def _until_allowed(self, name: str) -> float:
        if self._rate is None or self._allowance.get(name, 0.0) >= 1:
            return 0.0
        return 0.02

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        self.accepted += 1
        server = socket.socket()
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._server)
        to_server, to_client = (
            _Pipe(client, server, "to_server"),
            _Pipe(server, client, "to_client"),
        )
        self._pipes.append((to_server, to_client))

    def _pump(self) -> None:
        now = CLOCK.monotonic()
        if self._rate is not None:
            more = (now - self._allowed_at) * self._rate
            self._allowed_at = now
            for name in ("to_server", "to_client"):
                self._allowance[name] = min(self._rate, self._allowance.get(name, 0.0) + more)
        for pair in list(self._pipes):
            try:
                for pipe in pair:
                    if pipe.name not in self._swallowed:
                        self._pass_on(pipe, now)
            except OSError:
                _reset(pair)
                self._pipes.remove(pair)
                continue
            if all(pipe.told for pipe in pair):
                for pipe in pair:
                    pipe.source.close()
                self._pipes.remove(pair)

    def _pass_on(self, pipe: _Pipe, now: float) -> None:
        with contextlib.suppress(BlockingIOError):
            while not pipe.ended and pipe.size < _HELD_BYTES:
                pipe.take(now + self._delay)
        while pipe.waiting and pipe.waiting[0][0] <= now:
            most = _CHUNK
            if self._rate is not None:
                most = min(most, int(self._allowance.get(pipe.name, 0.0)))
                if most < 1:
                    return
            sent = pipe.give(most)
            if self._rate is not None:
                self._allowance[pipe.name] -= sent
            if sent < most and pipe.waiting and pipe.waiting[0][0] <= now:
                return
        if pipe.ended and not pipe.told and not pipe.waiting:
            pipe.sink.shutdown(socket.SHUT_WR)
            pipe.told = True


def _bound(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind(("127.0.0.1", port))
    except OSError:
        one.close()
        raise
    return one


def _reset(pair: tuple[_Pipe, _Pipe]) -> None:
    for pipe in pair:
        with contextlib.suppress(OSError):
            pipe.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        pipe.source.close()

"""The HTTP server: uvicorn, with bounds on what a slow, silent or overwhelming client may hold.

Uvicorn bounds how long a connection may idle between requests, not how long a client takes to send
a request's head, to read its answer, or to end a body that was refused. Every timer here runs from
when the wait began and is not put off by single bytes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tickrail.core.clock import Clock
from tickrail.core.errors import (
    HeadersTooLargeError,
    MalformedError,
    SlowRequestError,
    TickrailError,
    UnavailableError,
)
from tickrail.core.ids import uuid7
from tickrail.runtime.http import listen_error
from tickrail_api.edge import SAFE
from tickrail_api.problems import error_response

MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers."""
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_BACKLOG = 1024
_CUT_WITHIN = 2.0
"""Seconds that requests which are cut get to end in."""
_CORK = 64 * 1024
"""Bytes that are not held back for what may follow them."""
_log = structlog.get_logger("tickrail.api")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a client may hold, in seconds unless said otherwise.

    Attributes:
        connections: open at once.
        head: for the line and headers of a request, from the connection or the first byte on.
        idle: between two requests of a connection.
        drain: for reading an answer that is waiting to be sent.
        finish: for requests under way when the process is asked to stop.
    """

    connections: int = 1000
    head: float = 10.0
    idle: float = 65.0
    drain: float = 30.0
    finish: int = 20


class Server:
    """Uvicorn behind these bounds."""

    def __init__(self, app: ASGIApp, bounds: Bounds, clock: Clock) -> None:
        """Make it; `run` serves."""

        def protocol(
            config: uvicorn.Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> Connection:
            return Connection(config, server_state, app_state, _loop, bounds=bounds, clock=clock)

        self._server = _Stoppable(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type] # uvicorn calls it, whatever it is
                ws="none",
                lifespan="off",
                # Lines are written by the edge, in this project's form.
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                # The peer is who the connection says; the edge decides which proxies to believe.
                proxy_headers=False,
                timeout_keep_alive=round(bounds.idle),
                h11_max_incomplete_event_size=MAX_HEAD,
            ),
            bounds.finish,
        )

    def run(self, listener: socket.socket) -> None:
        """Serve until `stop`; then take no more connections and finish what is under way."""
        self._server.run([listener])

    def stop(self) -> None:
        """Ask it to end."""
        self._server.should_exit = True


class _Stoppable(uvicorn.Server):
    """Uvicorn that cuts what does not end in time, and says how much that was.

    By itself it writes an error with a trace for each request that an ordinary stop cuts.
    """

    def __init__(self, config: uvicorn.Config, finish: float) -> None:
        super().__init__(config)
        self._finish = finish

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let requests end for `finish` seconds, and cut the rest."""
        ending = asyncio.ensure_future(super().shutdown(sockets))
        _, late = await asyncio.wait({ending}, timeout=self._finish)
        if late:
            await self._cut()
            _, late = await asyncio.wait({ending}, timeout=_CUT_WITHIN)
        if late:
            ending.cancel()
        else:
            await ending

    async def _cut(self) -> None:
        """End the requests under way: the edge answers those that have no answer yet."""
        tasks = set(self.server_state.tasks)
        if tasks:
            _log.warning("requests_cut", requests=len(tasks), after=self._finish)
        for connection in self.server_state.connections:
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and cycle.response_started:
                cycle.disconnected = True  # nothing more of this answer is sent
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT_WITHIN)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _Corked:
    """A transport that sends what is written to it in one turn of the loop by one call.

    An answer is written as a head and a body: by itself each would be a packet, which also wakes
    the client once more.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport offers
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it, at the end of this turn at the latest."""
        if not data:
            return
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)
        if len(data) > _CORK:
            self._send()

    def close(self) -> None:
        """Send what waits, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        data, self._waiting = b"".join(self._waiting), []
        if data and not self._transport.is_closing():
            self._transport.write(data)


class Connection(H11Protocol):
    """One connection of a client."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None,
        *,
        bounds: Bounds,
        clock: Clock,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._clock = clock
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        # A stream, or a body larger than `_CORK`, is written in several turns of the loop. Without
        # this the kernel holds a small write back until the client has acknowledged the one before,
        # which it puts off for up to 40 ms. asyncio sets it only on sockets that were made with
        # the protocol's number, and those of listen() are not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        corked: Any = _Corked(transport, self.loop)
        super().connection_made(corked)
        if len(self.connections) > self._bounds.connections:
            _log.warning("too_many_connections", open=len(self.connections))
            self._refuse(UnavailableError("Too many connections are open; try again."))
            return
        self._start("head", self._bounds.head, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        for name in list(self._timers):
            self._end(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """An answer was handed to the transport."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # The rest of a body that was refused: read away for a moment, so that the client sees
            # the answer, but no longer.
            self._start("rest", self._bounds.head, self.transport.abort)
        self._look()

    def pause_writing(self) -> None:
        """The client does not read its answer, or not fast enough."""
        super().pause_writing()
        self._start("drain", self._bounds.drain, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        self._end("drain")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """No further request has come."""
        super().timeout_keep_alive_handler()
        # What still waits to be sent then is not waited for for ever.
        self._start("drain", self._bounds.drain, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """What has come is no request; called while the parser's error is handled."""
        del msg
        error = sys.exc_info()[1]
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE:
            self._refuse(HeadersTooLargeError(f"The head is larger than {MAX_HEAD} bytes."))
        else:
            self._refuse(MalformedError("This is not a request of HTTP/1.1."))

    def _look(self) -> None:
        """Time the head of a request that has begun and not ended."""
        if self.conn.their_state is not h11.SEND_BODY:
            self._end("rest")
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._start("head", self._bounds.head, self._head_is_late)
        elif self.conn.their_state is not h11.IDLE or self.cycle is not None:
            self._end("head")

    def _head_is_late(self) -> None:
        if self.conn.trailing_data[0] and not self.transport.is_closing():
            seconds = self._bounds.head
            self._refuse(SlowRequestError(f"The head took longer than {seconds:g} s to arrive."))
        else:
            self.transport.abort()

    def _refuse(self, error: TickrailError) -> None:
        """Answer in place of the application, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        request_id = str(uuid7(self._clock))
        response = error_response(error, request_id)
        headers = [
            *((n, v) for n, v in response.raw_headers),
            *SAFE.items(),
            (b"x-request-id", request_id.encode()),
            (b"connection", b"close"),
        ]
        _log.info("refused", code=error.code, status=error.status, request_id=request_id)
        phrase = HTTPStatus(response.status_code).phrase.encode()
        event = h11.Response(status_code=response.status_code, headers=headers, reason=phrase)
        self.transport.write(self.conn.send(event) or b"")
        self.transport.write(self.conn.send(h11.Data(data=bytes(response.body))) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()
        self._start("drain", self._bounds.drain, self.transport.abort)

    def _start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, self._ran_out, name, then)

    def _ran_out(self, name: str, then: Callable[[], None]) -> None:
        self._timers.pop(name, None)
        then()

    def _end(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def listen(host: str, port: int, *, reuse: bool = False) -> socket.socket:
    """The socket that requests come to.

    Args:
        host: an address of this machine.
        port: 0 takes any free one.
        reuse: share the port with other processes that say so, too; the kernel spreads connections.

    Raises:
        SettingsError: the address cannot be listened on; names the setting.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=reuse)
    except OSError as e:
        raise listen_error(e, host, port, ("api_host", "api_port")) from e

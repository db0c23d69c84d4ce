"""Network streams for httpcore on plain asyncio transports.

httpcore's own go through another layer, which costs as much time as the HTTP itself. A request is
written in one piece: what httpcore writes is kept until it reads the answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

_HIGH, _LOW = 256 * 1024, 64 * 1024
_SHUTDOWN_SECONDS = 1.0


class _Incoming(asyncio.Protocol):
    """What has come and was not read yet, within bounds."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.ended = False
        self.error: Exception | None = None
        self.paused = False
        self.transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.buffer += data
        if len(self.buffer) > _HIGH and not self.paused and self.transport is not None:
            self.paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Nothing more comes, so nothing more goes."""
        self.ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more comes."""
        self.ended = True
        self.error = exc
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until something has come, or will not."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def take(self, most: int) -> bytes:
        """The start of what has come."""
        found = bytes(self.buffer[:most])
        del self.buffer[:most]
        if self.paused and len(self.buffer) < _LOW and self.transport is not None:
            self.paused = False
            self.transport.resume_reading()
        return found


class Stream(httpcore.AsyncNetworkStream):
    """`httpcore.AsyncNetworkStream` of one connection. Its time limits are the caller's."""

    def __init__(self, transport: asyncio.Transport, incoming: _Incoming) -> None:
        self._transport = transport
        self._incoming = incoming
        self._unsent: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        """What comes next; empty at the end.

        Raises:
            httpcore.ReadError: the connection is lost.
        """
        del timeout
        if self._unsent:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()
        incoming = self._incoming
        if not incoming.buffer and not incoming.ended:
            await incoming.wait()
        if incoming.buffer:
            return incoming.take(max_bytes)
        if incoming.error is not None:
            raise httpcore.ReadError(str(incoming.error)) from incoming.error
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        """Send it with the next read."""
        del timeout
        self._unsent.append(buffer)

    async def aclose(self) -> None:
        """Close the connection, within a moment."""
        self._transport.close()
        await asyncio.sleep(0)
        self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> Stream:
        """The same connection under TLS.

        Raises:
            httpcore.ConnectError: no TLS came about.
        """
        del timeout
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                self._transport,
                self._incoming,
                ssl_context,
                server_hostname=server_hostname,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError) as error:
            raise httpcore.ConnectError(str(error)) from error
        if transport is None:
            raise httpcore.ConnectError("the connection was closed")
        self._incoming.transport = transport
        return Stream(transport, self._incoming)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's signature
        """`is_readable`: of an idle connection, that the peer has closed it."""
        if info == "is_readable":
            return bool(self._incoming.buffer) or self._incoming.ended
        return None


class Backend(httpcore.AsyncNetworkBackend):
    """Connects to addresses."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Stream:
        """A connection to an address.

        Raises:
            httpcore.ConnectError: there is none.
        """
        del timeout, local_address, socket_options
        loop = asyncio.get_running_loop()
        try:
            transport, incoming = await loop.create_connection(_Incoming, host, port)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return Stream(transport, incoming)

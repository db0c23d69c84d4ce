"""Connections of webhooks: kept idle by origin, made to checked addresses. Lives on one loop.

httpcore's own pool looks through every connection for every request, which is too much work with
thousands of them. What shares connections is one origin under one egress policy with the same
certificates: a call never gets a connection that its own tenant could not have made.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import httpcore

from tickrail.executors.egress import EgressGuard, RefusedError, UnresolvedError, is_address
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.http_rules import Endpoint
from tickrail.executors.lookups import Lookups, Question
from tickrail.executors.streams import Backend
from tickrail.executors.tls import Certificates, own_context, usual_context
from tickrail.executors.webhook_request import CertainError, invalid

_CONTEXTS = 64
_INTERIM = 10
"""Interim answers (100 Continue, 103 Early Hints) that may come before an answer: each is read on
the one loop of all calls, so a receiver that sends them without end would take it from the rest."""
_DIALS = 64
"""Connections that are being made to one origin at a time: a crowd of them would only fill the
queue of its listener, and what does not fit there waits for seconds."""
BUSY_WAIT = 5.0
"""Seconds that a call waits for its turn at an origin before it is put off."""
_PUT_OFF = 2.0


class Connection(httpcore.AsyncHTTP11Connection):
    """A connection that takes no more than a few interim answers for each request.

    httpcore takes as many as come. It bounds the head of each answer, at 100 KiB.
    """

    _interim = 0

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send the request and read the head of its answer.

        Raises:
            httpcore.RemoteProtocolError: what comes is no answer.
        """
        self._interim = 0
        return await super().handle_async_request(request)

    async def _receive_event(self, timeout: float | None = None) -> Any:  # noqa: ANN401, ASYNC109 - httpcore's signature
        event = await super()._receive_event(timeout)
        status = getattr(event, "status_code", None)
        if status is not None and status < 200:  # noqa: PLR2004 - 1xx
            self._interim += 1
            if self._interim > _INTERIM:
                raise httpcore.RemoteProtocolError(f"more than {_INTERIM} interim answers (1xx)")
        return event


class Door(NamedTuple):
    """What a connection is good for."""

    scheme: str
    host: str
    port: int
    policy: EgressPolicy
    certificates: Certificates | None = None


class _Origin:
    """What an origin gets at a time: calls, and attempts to connect."""

    __slots__ = ("calls", "dials", "users")

    def __init__(self, calls: int) -> None:
        self.calls = asyncio.Semaphore(calls)
        self.dials = asyncio.Semaphore(_DIALS)
        self.users = 0


class Connections:
    """Idle connections, the making of new ones, and how many calls an origin gets at a time."""

    def __init__(
        self,
        guard: EgressGuard,
        threads: Executor,
        *,
        connect_timeout: float,
        keep_alive: float,
        idle_per_origin: int,
        per_origin: int,
        ca_file: str,
    ) -> None:
        """No connections yet; as `WebhookSettings` says.

        Raises:
            SettingsError: the file of authorities cannot be read.
        """
        self._guard = guard
        self._threads = threads
        self._connect_timeout = connect_timeout
        self._keep_alive = keep_alive
        self._idle_per_origin = idle_per_origin
        self._per_origin = per_origin
        self._ca_file = ca_file
        self._idle: dict[Door, deque[Connection]] = {}
        self._origins: dict[tuple[str, str, int], _Origin] = {}
        self._backend = Backend()
        self._tls = usual_context(ca_file)
        self._contexts: OrderedDict[Certificates, ssl.SSLContext] = OrderedDict()
        self._lookups = Lookups(guard)
        self._sweeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def place(self, to: Endpoint) -> AsyncIterator[None]:
        """One of the calls that the origin gets at a time.

        Raises:
            CertainError: none became free; the call is to be put off.
        """
        origin = self._origins.setdefault(to.origin, _Origin(self._per_origin))
        origin.users += 1
        try:
            if origin.calls.locked():
                await self._wait(origin.calls, to)
            else:
                await origin.calls.acquire()
            try:
                yield
            finally:
                origin.calls.release()
        finally:
            origin.users -= 1
            if not origin.users:
                del self._origins[to.origin]

    async def _wait(self, semaphore: asyncio.Semaphore, to: Endpoint) -> None:
        try:
            async with asyncio.timeout(BUSY_WAIT) as limit:
                await semaphore.acquire()
        except TimeoutError as error:
            if limit.expired():
                raise CertainError(
                    "origin_busy",
                    f"{to.host} has {self._per_origin} calls open from this worker",
                    snooze=_PUT_OFF,
                ) from error
            raise

    async def take(self, door: Door, tenant: UUID) -> Connection:
        """A connection that no other call uses; inside `place`.

        Raises:
            CertainError: there is none to be had.
        """
        if (found := await self._reused(door)) is not None:
            return found
        async with self._origins[door[:3]].dials:
            # While this call waited, another may have ended.
            if (found := await self._reused(door)) is not None:
                return found
            try:
                async with asyncio.timeout(self._connect_timeout) as limit:
                    return await self._connect(door, tenant)
            except TimeoutError as error:
                if limit.expired():
                    message = f"no connection to {door.host}"
                    raise CertainError("connect_timed_out", message) from error
                raise

    async def _reused(self, door: Door) -> Connection | None:
        idle = self._idle.get(door)
        while idle:
            connection = idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def give_back(self, door: Door, connection: Connection) -> None:
        """Keep a connection that can be used again, close any other."""
        idle = self._idle.setdefault(door, deque())
        if connection.is_idle() and len(idle) < self._idle_per_origin:
            idle.append(connection)
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        else:
            await connection.aclose()

    async def close(self) -> None:
        """Close every idle connection."""
        self._lookups.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for idle in self._idle.values():
            while idle:
                await idle.pop().aclose()

    async def _connect(self, door: Door, tenant: UUID) -> Connection:
        addresses = await self._addresses(door, tenant)
        context = await self._context(door) if door.scheme == "https" else None
        stream = await self._dial(addresses, door)
        if context is not None:
            stream = await self._secure(stream, door, context)
        return Connection(
            origin=httpcore.Origin(door.scheme.encode(), door.host.encode(), door.port),
            stream=stream,
            keepalive_expiry=self._keep_alive,
        )

    async def _addresses(self, door: Door, tenant: UUID) -> list[str]:
        place = (door.host, door.port, door.policy)
        found = self._guard.known(*place)
        if found is not None:
            return found
        try:
            if is_address(door.host):  # nobody is asked: no thread is needed
                return self._guard.lookup(*place)
            return await self._lookups.get(Question(tenant, *place))
        except RefusedError as error:
            raise CertainError("refused_egress", str(error), retryable=False) from error
        except UnresolvedError as error:
            raise CertainError("dns_failed", str(error)) from error

    async def _context(self, door: Door) -> ssl.SSLContext:
        if door.certificates is None:
            return self._tls
        found = self._contexts.get(door.certificates)
        if found is None:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(
                    self._threads, own_context, door.certificates, self._ca_file
                )
            except ValueError as error:
                raise invalid(f"in tls, {error}") from error
            self._contexts[door.certificates] = found
            if len(self._contexts) > _CONTEXTS:
                self._contexts.popitem(last=False)
        return found

    async def _dial(self, addresses: list[str], door: Door) -> httpcore.AsyncNetworkStream:
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._backend.connect_tcp(address, door.port)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise CertainError(
            "connect_failed", f"no connection to {door.host}:{door.port}: {reason_of(last)}"
        ) from last

    async def _secure(
        self, stream: httpcore.AsyncNetworkStream, door: Door, context: ssl.SSLContext
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await stream.start_tls(context, server_hostname=door.host)
        except (httpcore.ConnectError, httpcore.ConnectTimeout, ssl.SSLError) as error:
            await stream.aclose()
            message = f"no TLS with {door.host}: {reason_of(error)}"
            raise CertainError("tls_failed", message) from error
        except BaseException:
            await stream.aclose()
            raise

    async def _sweep(self) -> None:
        """Close what has been idle for too long, so that no peer waits on a dead connection."""
        while True:
            await asyncio.sleep(self._keep_alive)
            for door, idle in list(self._idle.items()):
                while idle and idle[0].has_expired():
                    await idle.popleft().aclose()
                if not idle:
                    del self._idle[door]


def reason_of(error: BaseException | None) -> str:
    """The innermost reason of a wrapped error."""
    while error is not None and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

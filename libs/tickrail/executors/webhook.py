"""The webhook target: thousands of open HTTP/1.1 calls on an event loop in a thread of its own.

The one file with asyncio in it; outside it is an ordinary Executor. Connections are kept per origin
and reused for a moment. Each call either gets a connection that was just made to an address that
the egress guard let through, or one that was made so before.

Certain and uncertain: until the connection stands nothing was sent, so whatever goes wrong is
certain. From the first byte sent until the status line the effect may have happened. An answer is
certain, also when its body does not come: the status decides.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpcore
import httpx
import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import InvalidInputError, Problem, SettingsError
from tickrail.core.execution import (
    BODY_BYTES,
    INTERRUPTED,
    TIMED_OUT,
    Done,
    Outcome,
    Run,
    one_line,
)
from tickrail.core.target_webhook import Webhook
from tickrail.core.targets import parse_target
from tickrail.executors.egress import EgressGuard, RefusedError, UnresolvedError
from tickrail.executors.http_rules import (
    Endpoint,
    endpoint,
    outcome_of,
    request_body,
    request_headers,
)

_log = structlog.get_logger(__name__)

_RESOLVERS = 16


@dataclass(frozen=True, kw_only=True)
class WebhookSettings:
    """How webhooks are called.

    Attributes:
        user_agent: sent where the target names none.
        connect_timeout: seconds for name, connection and TLS together, within the run's timeout.
        body_timeout: seconds that the start of an answer's body is waited for.
        keep_alive: seconds that an idle connection is kept; below what servers keep theirs, so
            that a call seldom meets one that is being closed.
        idle_per_origin: idle connections kept for one origin.
        ca_file: PEM of authorities trusted besides the usual ones.
    """

    user_agent: str = "Tickrail"
    connect_timeout: float = 10.0
    body_timeout: float = 5.0
    keep_alive: float = 3.0
    idle_per_origin: int = 256
    ca_file: str = ""


class _CertainError(Exception):
    """The call failed before anything was sent."""

    def __init__(self, outcome: str, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.outcome = Outcome(
            ok=False, outcome=outcome, retryable=retryable, message=one_line(message)
        )


class _Call:
    """One run under way."""

    __slots__ = ("done", "reason", "run", "sent", "task")

    def __init__(self, run: Run, done: Done) -> None:
        self.run = run
        self.done = done
        self.sent = False
        self.reason = INTERRUPTED
        self.task: asyncio.Task[None] | None = None


class WebhookExecutor:
    """`core.execution.Executor` for `webhook`. `done` is called on the loop's thread."""

    kinds = frozenset({"webhook"})

    def __init__(
        self, guard: EgressGuard, clock: Clock, settings: WebhookSettings | None = None
    ) -> None:
        """Starts its thread.

        Args:
            guard: says which addresses may be dialled.
            clock: reads the present for `Retry-After` dates.
            settings: how to call.

        Raises:
            SettingsError: the file of authorities cannot be read.
        """
        self._settings = settings or WebhookSettings()
        self._clock = clock
        self._calls: dict[Run, _Call] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pool = _Connections(guard, self._settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webhooks", daemon=True)
        self._thread.start()

    def start(self, run: Run, done: Done) -> None:
        """Begin the call."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(self._begin, _Call(run, done))
                return
        done(run, Outcome(ok=False, outcome=INTERRUPTED, message="this worker is stopping"))

    def cancel(self, run: Run, reason: str) -> None:
        """Close the call's connection."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(self._stop, run, reason)

    def close(self, grace: float) -> None:
        """Wait `grace` seconds for open calls, then close them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut_down(grace), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def open_calls(self) -> int:
        """Calls under way."""
        return len(self._calls)

    # --- on the loop's thread --------------------------------------------------------------------

    def _begin(self, call: _Call) -> None:
        self._calls[call.run] = call
        call.task = self._loop.create_task(self._handle(call))

    def _stop(self, run: Run, reason: str) -> None:
        call = self._calls.get(run)
        if call is not None and call.task is not None:
            call.reason = reason
            call.task.cancel()

    async def _shut_down(self, grace: float) -> None:
        # A `start` just before `close` has only queued its call: let it become a task.
        await asyncio.sleep(0)
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(0.0, grace))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._pool.close()

    async def _handle(self, call: _Call) -> None:
        try:
            outcome = await self._outcome(call)
        except asyncio.CancelledError:
            outcome = Outcome(
                ok=False,
                outcome=call.reason,
                certain=not call.sent,
                message="the call was closed before it was answered",
            )
        except Exception as error:  # noqa: BLE001 - the border of one run
            # A bug here must cost one run, not the worker.
            _log.exception("webhook failed inside", launch=str(call.run.launch_id))
            outcome = Outcome(
                ok=False,
                outcome="internal",
                certain=not call.sent,
                message=one_line(f"{type(error).__name__}: {error}"),
            )
        self._calls.pop(call.run, None)
        try:
            call.done(call.run, outcome)
        except Exception:  # noqa: BLE001 - the border to the caller
            _log.exception("an outcome was not taken", launch=str(call.run.launch_id))

    async def _outcome(self, call: _Call) -> Outcome:
        try:
            async with asyncio.timeout(call.run.timeout):
                return await self._call(call)
        except TimeoutError:
            return _timed_out(call)
        except _CertainError as error:
            return error.outcome
        except httpcore.RemoteProtocolError as error:
            return _lost(call, "bad_response", f"no valid HTTP answer: {error}")
        except httpcore.LocalProtocolError as error:
            return Outcome(
                ok=False,
                outcome="invalid_target",
                retryable=False,
                message=one_line(f"HTTP cannot carry this request: {error}"),
            )
        except (httpcore.NetworkError, OSError) as error:
            return _lost(call, "connection_lost", f"the connection was lost: {_why(error)}")

    async def _call(self, call: _Call) -> Outcome:
        run = call.run
        try:
            target = parse_target(run.target)
        except InvalidInputError as error:
            raise _CertainError("invalid_target", str(error), retryable=False) from error
        if not isinstance(target, Webhook):
            raise _CertainError("invalid_target", "not a webhook", retryable=False)
        to = endpoint(target.url)
        body = request_body(run, target)
        request = httpcore.Request(
            target.method,
            httpcore.URL(
                scheme=to.scheme.encode(), host=to.host.encode(), port=to.port, target=to.path
            ),
            headers=request_headers(run, target, to, body, self._settings.user_agent),
            content=body or None,
        )
        connection = await self._pool.take(to)
        try:
            call.sent = True
            response = await connection.handle_async_request(request)
            try:
                start = await self._read_start(response)
            finally:
                await response.aclose()
        finally:
            await self._pool.give_back(to, connection)
        return outcome_of(target, response.status, response.headers, start, self._clock.now())

    async def _read_start(self, response: httpcore.Response) -> bytes:
        """The start of the body; what does not come in time, or breaks off, is left out."""
        start = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                async for chunk in response.aiter_stream():
                    start += chunk
                    if len(start) >= BODY_BYTES:
                        break
        except (TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
            pass
        return bytes(start[:BODY_BYTES])


class _Connections:
    """Idle connections by origin, and the making of new ones. Lives on the loop's thread.

    httpcore's own pool looks through every connection for every request, which is too much work
    with thousands of them.
    """

    def __init__(self, guard: EgressGuard, settings: WebhookSettings) -> None:
        self._guard = guard
        self._settings = settings
        self._idle: dict[tuple[str, str, int], deque[httpcore.AsyncHTTP11Connection]] = {}
        self._backend = httpcore.AnyIOBackend()
        self._tls = _tls_context(settings.ca_file)
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, "resolve")
        self._sweeper: asyncio.Task[None] | None = None

    async def take(self, to: Endpoint) -> httpcore.AsyncHTTP11Connection:
        """A connection that no other call uses.

        Raises:
            _CertainError: there is none to be had.
        """
        idle = self._idle.get(to[:3])
        while idle:
            connection = idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        try:
            async with asyncio.timeout(self._settings.connect_timeout) as limit:
                return await self._connect(to)
        except TimeoutError as error:
            if limit.expired():
                raise _CertainError("connect_timed_out", f"no connection to {to.host}") from error
            raise

    async def give_back(self, to: Endpoint, connection: httpcore.AsyncHTTP11Connection) -> None:
        """Keep a connection that can be used again, close any other."""
        idle = self._idle.setdefault(to[:3], deque())
        if connection.is_idle() and len(idle) < self._settings.idle_per_origin:
            idle.append(connection)
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        else:
            await connection.aclose()

    async def close(self) -> None:
        """Close every idle connection."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for idle in self._idle.values():
            while idle:
                await idle.pop().aclose()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _connect(self, to: Endpoint) -> httpcore.AsyncHTTP11Connection:
        addresses = self._guard.known(to.host, to.port)
        if addresses is None:
            loop = asyncio.get_running_loop()
            try:
                addresses = await loop.run_in_executor(
                    self._resolvers, self._guard.lookup, to.host, to.port
                )
            except RefusedError as error:
                raise _CertainError("refused_egress", str(error), retryable=False) from error
            except UnresolvedError as error:
                raise _CertainError("dns_failed", str(error)) from error
        stream = await self._dial(addresses, to)
        if to.scheme == "https":
            stream = await self._secure(stream, to)
        return httpcore.AsyncHTTP11Connection(
            origin=httpcore.Origin(to.scheme.encode(), to.host.encode(), to.port),
            stream=stream,
            keepalive_expiry=self._settings.keep_alive,
        )

    async def _dial(self, addresses: list[str], to: Endpoint) -> httpcore.AsyncNetworkStream:
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._backend.connect_tcp(address, to.port)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise _CertainError(
            "connect_failed", f"no connection to {to.host}:{to.port}: {_why(last)}"
        ) from last

    async def _secure(
        self, stream: httpcore.AsyncNetworkStream, to: Endpoint
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await stream.start_tls(self._tls, server_hostname=to.host)
        except (httpcore.ConnectError, httpcore.ConnectTimeout, ssl.SSLError) as error:
            await stream.aclose()
            raise _CertainError("tls_failed", f"no TLS with {to.host}: {_why(error)}") from error
        except BaseException:
            await stream.aclose()
            raise

    async def _sweep(self) -> None:
        """Close what has been idle for too long, so that no peer waits on a dead connection."""
        while True:
            await asyncio.sleep(self._settings.keep_alive)
            for origin, idle in list(self._idle.items()):
                while idle and idle[0].has_expired():
                    await idle.popleft().aclose()
                if not idle:
                    del self._idle[origin]


def _tls_context(ca_file: str) -> ssl.SSLContext:
    # The usual authorities from httpx, those of this system, and the operator's.
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                "The webhook settings are not valid.",
                [Problem("/webhook/ca_file", f"cannot be read: {error}", "a PEM file")],
            ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def _timed_out(call: _Call) -> Outcome:
    what = "no answer" if call.sent else "no connection"
    return Outcome(
        ok=False,
        outcome=TIMED_OUT,
        certain=not call.sent,
        message=f"{what} within {call.run.timeout:g} s",
    )


def _lost(call: _Call, outcome: str, message: str) -> Outcome:
    return Outcome(ok=False, outcome=outcome, certain=not call.sent, message=one_line(message))


def _why(error: BaseException | None) -> str:
    """The innermost reason of a wrapped error."""
    while error is not None and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

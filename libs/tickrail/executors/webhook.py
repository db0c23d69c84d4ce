"""The webhook target: thousands of open HTTP/1.1 calls on an event loop in a thread of its own.

Outside it is an ordinary Executor. Connections are kept per origin and reused for a moment. Each
call either gets a connection that was just made to an address that the egress guard let through, or
one that was made so before.

Certain and uncertain: until the connection stands nothing was sent, so whatever goes wrong is
certain. From the first byte sent until the status line the effect may have happened. An answer is
certain, also when its body does not come: the status decides. An answer that is a redirect says
that nothing was done: the next request begins anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from traceback import format_tb

import httpcore
import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.execution import (
    BODY_BYTES,
    INTERRUPTED,
    TIMED_OUT,
    Done,
    Outcome,
    Run,
    one_line,
)
from tickrail.core.ports_metrics import Metrics, NullMetrics
from tickrail.core.secrets import Masker
from tickrail.executors.breaker import Breaker, BreakerSettings, Refusal
from tickrail.executors.connections import Connections, Door, reason_of
from tickrail.executors.egress import EgressGuard
from tickrail.executors.http_rules import Endpoint, answer_text, outcome_of
from tickrail.executors.tenants import NoFacts, TargetFacts, Tenants
from tickrail.executors.tls import Certificates
from tickrail.executors.webhook_request import (
    CertainError,
    Outgoing,
    Prepared,
    is_redirect,
    outgoing,
    prepare,
    redirected,
)

_log = structlog.get_logger(__name__)

_THREADS = 16
_PREPARED = 2000
_WAIT_FOR_FACTS = 2.0
_SERVER_ERRORS = range(500, 600)
_NO_MASKER = Masker(())
_FAILURES = frozenset(
    {
        "connect_failed", "connect_timed_out", "tls_failed", "dns_failed", "connection_lost",
        "bad_response", TIMED_OUT,
    }
)  # fmt: skip
"""Outcomes without an answer that count against a receiver."""


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
        per_origin: calls that one origin gets at a time.
        breaker: when an origin that fails is left alone.
        ca_file: PEM of authorities trusted besides the usual ones.
    """

    user_agent: str = "Tickrail"
    connect_timeout: float = 10.0
    body_timeout: float = 5.0
    keep_alive: float = 3.0
    idle_per_origin: int = 256
    per_origin: int = 2048
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    ca_file: str = ""


class _Call:
    """One run under way."""

    __slots__ = ("begun", "done", "hops", "masker", "reason", "run", "sent", "stopped", "task")

    def __init__(self, run: Run, done: Done) -> None:
        self.run = run
        self.done = done
        self.sent = False
        self.begun = False
        self.stopped = False
        self.hops = 0
        self.masker = _NO_MASKER
        self.reason = INTERRUPTED
        self.task: asyncio.Task[None] | None = None


class WebhookExecutor:
    """`core.execution.Executor` for `webhook`. `done` is called on the loop's thread."""

    kinds = frozenset({"webhook"})

    def __init__(
        self,
        guard: EgressGuard,
        clock: Clock,
        settings: WebhookSettings | None = None,
        *,
        facts: TargetFacts | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Starts its thread.

        Args:
            guard: says which addresses may be dialled.
            clock: reads the present for signatures and `Retry-After` dates.
            settings: how to call.
            facts: tenants' secrets and egress lists.
            metrics: where calls and circuits are told.

        Raises:
            SettingsError: the file of authorities cannot be read.
        """
        self._settings = settings or WebhookSettings()
        self._user_agent = self._settings.user_agent.encode()
        self._clock = clock
        self._metrics = metrics or NullMetrics()
        self._calls: dict[Run, _Call] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._threads = ThreadPoolExecutor(_THREADS, "webhooks")
        self._prepared: OrderedDict[int, tuple[Mapping[str, object], Prepared]] = OrderedDict()
        self._breaker = Breaker(self._settings.breaker)
        self._tenants = Tenants(facts or NoFacts(), guard.policy, self._threads, clock)
        self._pool = Connections(
            guard,
            self._threads,
            connect_timeout=self._settings.connect_timeout,
            keep_alive=self._settings.keep_alive,
            idle_per_origin=self._settings.idle_per_origin,
            per_origin=self._settings.per_origin,
            ca_file=self._settings.ca_file,
        )
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
        self._metrics.gauge("webhook_calls_open", len(self._calls))
        call.task = self._loop.create_task(self._handle(call))

    def _stop(self, run: Run, reason: str) -> None:
        call = self._calls.get(run)
        if call is not None and call.task is not None:
            call.reason = reason
            call.stopped = True
            # A task that is cancelled before its first step never runs, and would tell nobody.
            if call.begun:
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
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, call: _Call) -> None:
        call.begun = True
        try:
            if call.stopped:
                raise asyncio.CancelledError  # noqa: TRY301 - ends as one that was stopped later
            outcome = await self._guarded(call)
        except asyncio.CancelledError:
            outcome = Outcome(
                ok=False,
                outcome=call.reason,
                certain=not call.sent,
                message="the call was closed before it was answered",
            )
        except Exception as error:  # noqa: BLE001 - the border of one run
            # A bug here must cost one run, not the worker. Its message may hold anything.
            name = type(error).__name__
            trace = "".join(format_tb(error.__traceback__))
            launch = str(call.run.launch_id)
            _log.error("webhook failed inside", launch=launch, error=name, trace=trace)
            outcome = Outcome(
                ok=False, outcome="internal", certain=not call.sent, message=f"{name} inside"
            )
        if call.masker:
            outcome = replace(outcome, message=call.masker.mask(outcome.message))
        self._calls.pop(call.run, None)
        self._metrics.gauge("webhook_calls_open", len(self._calls))
        try:
            call.done(call.run, outcome)
        except Exception:  # noqa: BLE001 - the border to the caller
            _log.exception("an outcome was not taken", launch=str(call.run.launch_id))

    async def _guarded(self, call: _Call) -> Outcome:
        """The call, unless its receiver is left alone for a while."""
        try:
            # A notice comes once: it is not to push targets out of what is kept.
            given = call.run.target
            prepared = self._read(given) if call.run.secrets is None else prepare(given)
        except CertainError as error:
            return error.outcome
        key = (call.run.tenant_id, prepared.to.origin)
        answer = self._breaker.ask(key, self._clock.monotonic())
        if isinstance(answer, Refusal):
            return _left_alone(prepared.to, answer)
        ok: bool | None = None
        try:
            outcome = await self._outcome(call, prepared)
            ok = None if call.hops else _worked(outcome)
        finally:
            opened = self._breaker.opened
            self._breaker.tell(key, ok, self._clock.monotonic(), probe=answer)
            self._metrics.gauge("webhook_circuits_open", self._breaker.open)
            if self._breaker.opened > opened:
                self._metrics.count("webhook_circuits_opened_total")
                _log.warning("circuit_opened", host=prepared.to.host)
        return outcome

    def _read(self, document: Mapping[str, object]) -> Prepared:
        """A target, read once: runs of one version of a job share one document."""
        kept = self._prepared.get(id(document))
        if kept is not None and kept[0] is document:
            return kept[1]
        found = prepare(document)
        self._prepared[id(document)] = (document, found)
        if len(self._prepared) > _PREPARED:
            self._prepared.popitem(last=False)
        return found

    async def _outcome(self, call: _Call, prepared: Prepared) -> Outcome:
        try:
            async with asyncio.timeout(call.run.timeout):
                return await self._call(call, prepared)
        except TimeoutError:
            return _timed_out(call)
        except (CertainError, UnavailableError, SetupError) as error:
            return _nothing_done(error)
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
            return _lost(call, "connection_lost", f"the connection was lost: {reason_of(error)}")

    async def _call(self, call: _Call, prepared: Prepared) -> Outcome:
        run, target = call.run, prepared.target
        policy = await self._tenants.policy(run.tenant_id)
        secrets: Mapping[str, bytes] = {}
        if run.secrets is not None:
            secrets, call.masker = run.secrets, Masker(run.secrets.values())
        elif prepared.secrets:
            # From here on, their values are masked in what is kept of the run.
            secrets, call.masker = await self._tenants.secrets(run.tenant_id, prepared.secrets)
        request = outgoing(prepared, run, secrets, self._clock.now())
        certificates = None
        if target.tls is not None:
            parts = (target.tls.ca, target.tls.certificate, target.tls.key)
            certificates = Certificates(*(None if p is None else secrets[p.name] for p in parts))
        first = request.to.origin
        while True:
            shown = certificates if request.to.origin == first else None
            door = Door(*request.to.origin, policy, shown)
            status, headers, text = await self._exchange(call, request, door)
            if not target.redirects or target.succeeds(status) or not is_redirect(status, headers):
                return outcome_of(target, status, headers, text, self._clock.now())
            call.sent = False
            call.hops += 1
            if call.hops > target.redirects:
                raise CertainError(
                    "too_many_redirects", f"HTTP {status} after {target.redirects} redirects"
                )
            request = redirected(request, status, headers[b"location"])

    async def _exchange(
        self, call: _Call, request: Outgoing, door: Door
    ) -> tuple[int, dict[bytes, bytes], str]:
        """One request and its answer: status, headers by lower name, the start of the body."""
        to = request.to
        async with self._pool.place(to):
            connection = await self._pool.take(door, call.run.tenant_id)
            try:
                call.sent = True
                response = await connection.handle_async_request(
                    httpcore.Request(
                        request.method,
                        httpcore.URL(
                            scheme=to.scheme.encode(),
                            host=to.host.encode(),
                            port=to.port,
                            target=to.path,
                        ),
                        headers=request.headers(self._user_agent),
                        content=request.body or None,
                    )
                )
                try:
                    body, cut = await self._read_start(response, BODY_BYTES + call.masker.longest)
                finally:
                    await response.aclose()
            finally:
                await self._pool.give_back(door, connection)
        text = answer_text(body, cut=cut, masker=call.masker)
        return response.status, {n.lower(): v for n, v in response.headers}, text

    async def _read_start(self, response: httpcore.Response, most: int) -> tuple[bytes, bool]:
        """The start of the body, and whether there may be more.

        What does not come in time, or breaks off, is left out.
        """
        start = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                async for chunk in response.aiter_stream():
                    start += chunk
                    if len(start) > most:
                        return bytes(start[:most]), True
        except (TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
            return bytes(start), True
        return bytes(start), False


def _nothing_done(error: CertainError | UnavailableError | SetupError) -> Outcome:
    if isinstance(error, CertainError):
        return error.outcome
    if isinstance(error, SetupError):
        return CertainError("secret_unreadable", str(error)).outcome
    message = "what the call needs of its tenant cannot be read: the database is away"
    return CertainError("unavailable", message, snooze=_WAIT_FOR_FACTS).outcome


def _left_alone(to: Endpoint, refusal: Refusal) -> Outcome:
    message = f"{to.host} failed too often in a row; it is left alone for {refusal.seconds:.0f} s"
    if refusal.patient:
        return CertainError("circuit_open", message, snooze=max(1.0, refusal.seconds)).outcome
    return CertainError("circuit_open", message).outcome


def _worked(outcome: Outcome) -> bool | None:
    """Whether an outcome speaks for the receiver, against it, or tells nothing of it."""
    if outcome.code is not None:
        return outcome.ok or outcome.code not in _SERVER_ERRORS
    return False if outcome.outcome in _FAILURES else None


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

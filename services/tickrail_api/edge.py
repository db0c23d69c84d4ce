"""The edge of the API: the one file that speaks ASGI, and so the one that is asynchronous.

Reads each body within its bound before anything else runs, gives each request an id, turns HEAD
into GET without a body, and lets no exception out: the routes are plain functions on threads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickrail.core.clock import Clock
from tickrail.core.errors import (
    HeadersTooLargeError,
    MalformedError,
    MethodNotAllowedError,
    NotFoundError,
    SlowRequestError,
    TickrailError,
    TooLargeError,
    UnavailableError,
)
from tickrail.core.ids import uuid7
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import NO_TRACER, NOTHING, TRACEPARENT, Span, SpanKind, Tracer
from tickrail_api.bodies import LARGER_BODIES, MAX_BODY
from tickrail_api.places import MOST_LARGE, Places
from tickrail_api.problems import error_response, is_hidden, status_response
from tickrail_api.threads import LATER, Threads, answer_of

MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers."""
ANYBODYS_BODY = 64 * 1024
"""Bytes of a body that are read before it is known that the caller's key is right."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_QUIET = frozenset({"/healthz", "/readyz"})
SAFE = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
"""What every answer says unless it says something else there itself."""
_INTERNAL = 500
_GONE = 499
"""What the log says of a request whose client left before it was whole; nothing is sent."""
ERROR: Final = "tickrail.error"
"""In a request's scope: the error of ours that it was answered with."""
_CUT = UnavailableError("The process stopped first; whether the request took effect is not known.")
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_log = structlog.get_logger("tickrail.api")

PathFinder = Callable[[str], tuple[str, list[str]] | None]
CallerCheck = Callable[[Scope], str]
"""Whose a request is; raises what a caller is answered whose key is not right. On a thread."""


class _Gone(Exception):  # noqa: N818 - not an error: the client left
    """The client went away before its body was here."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """How the edge meets its clients.

    Attributes:
        origins: of pages in browsers that may read answers (CORS); `*`: any. None by default.
        hsts: seconds that browsers are told to speak TLS alone; 0: they are not told.
        body_within: seconds that a client may take to send a body.
        most_large: bodies larger than `MAX_BODY` that are held at a time.
    """

    origins: frozenset[str] = frozenset()
    hsts: int = 0
    body_within: float = 30.0
    most_large: int = MOST_LARGE

    def safe(self) -> Mapping[bytes, bytes]:
        """The headers of every answer."""
        found = dict(SAFE)
        if self.hsts:
            found[b"strict-transport-security"] = b"max-age=%d; includeSubDomains" % self.hsts
        return found

    def shared(self, scope: Scope) -> Mapping[bytes, bytes]:
        """The headers that let a page of another origin read the answer."""
        if not self.origins:
            return {}
        found = {b"vary": b"Origin"}
        origin = next((v for n, v in scope["headers"] if n == b"origin"), b"")
        if origin and self.origins & {"*", origin.decode("latin-1")}:
            found[b"access-control-allow-origin"] = origin
            found[b"access-control-expose-headers"] = _EXPOSED
            found[b"cross-origin-resource-policy"] = b"cross-origin"
            if any(name == b"access-control-request-method" for name, _ in scope["headers"]):
                found[b"access-control-allow-methods"] = ", ".join(sorted(_METHODS)).encode()
                found[b"access-control-allow-headers"] = _TAKEN
                found[b"access-control-max-age"] = b"600"
        return found


_EXPOSED = (
    b"ETag, Location, Retry-After, X-Request-Id, Idempotent-Replay, RateLimit, RateLimit-Policy"
)
_TAKEN = (
    b"Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Tickrail-Tenant,"
    b" X-Request-Id"
)


class Edge:
    """The outermost application."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        metrics: Metrics,
        paths: PathFinder,
        check_caller: CallerCheck,
        settings: EdgeSettings,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            clock: for request ids and durations.
            metrics: counts requests.
            paths: the template of a path and its methods; None: there is no such path.
            check_caller: whether a request's key is right, and whose, before its body is here.
            settings: how it meets its clients.
            tracer: traces requests.
        """
        self._tracer = tracer
        self._app = app
        self._clock = clock
        self._metrics = metrics
        self._paths = paths
        self._check_caller = check_caller
        self._settings = settings
        self._places = Places(settings.most_large)
        self._safe = settings.safe()
        self._threads = Threads()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._request_id(scope)
        scope["tickrail.request_id"] = request_id
        more = {**self._safe, **self._settings.shared(scope)}
        # What the routes add, too: every answer to a limited caller says how much is left.
        scope["tickrail.fields"] = more
        answer = _Answer(send, request_id, more, head=scope["method"] == "HEAD")
        span = self._span(scope)
        with self._tracer.inside(span):
            await self._served(scope, receive, answer, request_id)
        span.note(http_response_status_code=answer.status)
        span.end(None if answer.status < _INTERNAL else f"answered {answer.status}")

    def _span(self, scope: Scope) -> Span:
        """The request in a trace: the caller's, or a new one."""
        if self._tracer is NO_TRACER or scope["path"] in _QUIET:
            return NOTHING
        given = (v for n, v in scope["headers"] if n == TRACEPARENT.encode())
        template = (self._paths(scope["path"]) or ("",))[0]
        method = scope["method"] if scope["method"] in _METHODS else "other"
        return self._tracer.begin(
            f"{method} {template}".strip(),
            next(given, b"").decode("latin-1") or None,
            SpanKind.SERVER,
            http_request_method=method,
            http_route=template or None,
            request_id=scope["tickrail.request_id"],
        )

    async def _served(
        self, scope: Scope, receive: Receive, answer: _Answer, request_id: str
    ) -> None:
        began = self._clock.monotonic()
        try:
            await self._answer(scope, receive, answer, request_id)
        except _Gone:
            answer.status = _GONE
        except asyncio.CancelledError:
            # The process stops and waits no longer. The task ends here: nobody waits for it.
            answer.cut = True
            await answer.plain(error_response(_CUT, request_id), scope, receive)
        except TickrailError as e:
            scope[ERROR] = e
            await answer.plain(error_response(e, request_id), scope, receive)
        except Exception:  # noqa: BLE001 - the outermost door: a client sees no trace
            _log.exception("request_failed", path=scope["path"], request_id=request_id)
            text = "The request failed; the log says why."
            await answer.plain(status_response(_INTERNAL, text, request_id), scope, receive)
        self._report(scope, answer, request_id, self._clock.monotonic() - began)

    async def _answer(
        self, scope: Scope, receive: Receive, answer: _Answer, request_id: str
    ) -> None:
        method = scope["method"]
        _check_size(scope)
        if {b"transfer-encoding", b"content-length"} <= {name for name, _ in scope["headers"]}:
            await answer.plain(_two_lengths(request_id), scope, receive)
            return
        template, known = self._paths(scope["path"]) or ("none", [])
        scope["tickrail.template"] = template
        if known and method == "OPTIONS":
            allow = {"Allow": ", ".join(known)}
            await answer.plain(Response(None, HTTPStatus.NO_CONTENT, allow), scope, receive)
            return
        if not known:
            raise NotFoundError(f"There is no path {scope['path'][:200]}.")
        if method not in known:
            await answer.plain(_not_allowed(method, known, request_id), scope, receive)
            return
        await self._serve(scope, receive, answer)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Read the body of a request, and let the application answer it on a thread."""
        method = scope["method"]
        most = LARGER_BODIES.get((method, scope["tickrail.template"]), MAX_BODY)
        body = _Body(scope, receive, most, self._settings.body_within)
        owner, holds = "", None

        async def grown(size: int) -> None:
            """What is asked of a body before more of it is held than this."""
            nonlocal owner, holds
            if size == ANYBODYS_BODY:
                owner = await self._threads.run(self._check_caller, scope)
            else:
                self._places.take(owner)
                holds = owner

        try:
            scope["tickrail.body"] = await body.read((ANYBODYS_BODY, MAX_BODY), grown)
            if method == "HEAD":
                scope["method"] = "GET"

            for message in await self._threads.run(answer_of, self._app, scope):
                await answer.send(message)
            if LATER in scope:
                await scope[LATER](scope, receive, answer.send)
        finally:
            self._places.give_back(holds)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return str(value.decode())
        return str(uuid7(self._clock))

    def _report(self, scope: Scope, answer: _Answer, request_id: str, seconds: float) -> None:
        status = answer.status
        route = scope.get("tickrail.template", "none")
        # The routes have answered a HEAD as a GET.
        method = "HEAD" if answer.head else scope["method"]
        # A client may send any word as a method; a label has a fixed set of values.
        label = method if method in _METHODS else "other"
        labels = {"method": label, "route": route, "status": str(status)}
        self._metrics.count("http_requests_total", **labels)
        self._metrics.observe("http_request_seconds", seconds, route=route)
        error = scope.get(ERROR)
        hidden = error if error is not None and is_hidden(error) else None
        if hidden is not None and not hidden.public:
            _log.error(
                "request_failed",
                error=str(hidden),
                path=scope["path"],
                request_id=request_id,
                exc_info=hidden,
            )
        if scope["path"] in _QUIET:
            return
        write = _log.warning if status >= _INTERNAL else _log.info
        more: dict[str, Any] = {} if hidden is None else {"error": str(hidden)}
        if answer.cut:
            more["cut"] = True
        write(
            "request",
            method=method,
            path=scope["path"],
            route=route,
            status=status,
            ms=round(seconds * 1000, 1),
            bytes_in=len(scope.get("tickrail.body", b"")),
            bytes_out=answer.size,
            request_id=request_id,
            caller=scope.get("tickrail.caller", ""),
            address=scope.get("tickrail.address") or (scope.get("client") or ("",))[0],
            **more,
        )


def _check_size(scope: Scope) -> None:
    size = len(scope["raw_path"]) + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD:
        raise HeadersTooLargeError(f"The line and headers are larger than {MAX_HEAD} bytes.")


def _two_lengths(request_id: str) -> Response:
    """A proxy in front may have taken the other one: what follows may be somebody else's.

    RFC 9112, 6.1.
    """
    refused = MalformedError("The request has Content-Length and Transfer-Encoding.")
    response = error_response(refused, request_id)
    response.headers["Connection"] = "close"
    return response


def _not_allowed(method: str, known: Sequence[str], request_id: str) -> Response:
    refused = MethodNotAllowedError(f"{method[:40]} is not for this path.")
    response = error_response(refused, request_id)
    response.headers["Allow"] = ", ".join(known)
    return response


class _Answer:
    """Sends an answer: adds the request's id, leaves a HEAD's body out, remembers the status."""

    def __init__(
        self, send: Send, request_id: str, more: Mapping[bytes, bytes], *, head: bool
    ) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self._more = more
        self.head = head
        self.status = _INTERNAL
        self.size = 0
        self.started = False
        self.cut = False

    async def send(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = int(message["status"])
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id)]
            given = {name.lower() for name, _ in headers}
            headers += [(n, v) for n, v in self._more.items() if n not in given]
            message = {**message, "headers": headers}
        elif self.head:
            message = {**message, "body": b""}
        self.size += len(message.get("body", b""))
        await self._send(message)

    async def plain(self, response: Response, scope: Scope, receive: Receive) -> None:
        """Send a whole response, unless one has begun."""
        if not self.started:
            await response(scope, receive, self.send)


@dataclass(frozen=True, slots=True)
class _Body:
    """A body on its way: `most` bytes, within so many seconds."""

    scope: Scope
    receive: Receive
    most: int
    within: float

    async def read(self, steps: Sequence[int], grown: Callable[[int], Awaitable[None]]) -> bytes:
        """The whole body, refused as soon as it is too large.

        Args:
            steps: sizes, in order; `grown` is asked with each of them before more is read.
            grown: lets it go on, or raises.

        Raises:
            TooLargeError: more than `most` bytes.
            MalformedError: compressed.
            SlowRequestError: not here in time.
        """
        headers: dict[bytes, Any] = dict(self.scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 12 or int(length) > self.most):  # noqa: PLR2004 - digits of far too much
            raise self._too_large()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise MalformedError("The body is compressed; send it as it is.")
        chunks: list[bytes] = []
        size, more, left = 0, True, list(steps)
        try:
            async with asyncio.timeout(self.within):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > self.most:
                        raise self._too_large()
                    while left and size > left[0]:
                        await grown(left.pop(0))
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            text = f"The body took longer than {self.within:g} s to arrive."
            raise SlowRequestError(text) from None
        return b"".join(chunks)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"The body is larger than {self.most} bytes.")

"""The edge of the API: the one file that speaks ASGI, and so the one that is asynchronous.

Reads each body within its bound before anything else runs, gives each request an id, turns HEAD
into GET without a body, and lets no exception out: the routes are plain functions on threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import anyio
import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickrail.core.clock import Clock
from tickrail.core.errors import MalformedError, TickrailError, TooLargeError
from tickrail.core.ids import uuid7
from tickrail.core.ports_metrics import Metrics
from tickrail_api.bodies import MAX_BODY
from tickrail_api.problems import error_response, status_response

BODY_SECONDS = 30.0
"""How long a client may take to send its body."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_QUIET = frozenset({"/healthz", "/readyz"})
_SAFE = {
    b"cache-control": b"no-store",
    b"x-content-type-options": b"nosniff",
}
_INTERNAL = 500
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_log = structlog.get_logger("tickrail.api")

PathFinder = Callable[[str], tuple[str, list[str]] | None]


class _Gone(Exception):  # noqa: N818 - not an error: the client left
    """The client went away before its body was here."""


class Edge:
    """The outermost application."""

    def __init__(self, app: ASGIApp, clock: Clock, metrics: Metrics, paths: PathFinder) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            clock: for request ids and durations.
            metrics: counts requests.
            paths: the template of a path and its methods; None: there is no such path.
        """
        self._app = app
        self._clock = clock
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._request_id(scope)
        scope["tickrail.request_id"] = request_id
        answer = _Answer(send, request_id, head=scope["method"] == "HEAD")
        began = self._clock.monotonic()
        try:
            await self._answer(scope, receive, answer, request_id)
        except _Gone:
            return
        except TickrailError as e:
            await answer.plain(error_response(e, request_id), scope, receive)
        except Exception:  # noqa: BLE001 - the outermost door: a client sees no trace
            _log.exception("request_failed", path=scope["path"], request_id=request_id)
            text = "The request failed; the log says why."
            await answer.plain(status_response(_INTERNAL, text, request_id), scope, receive)
        self._report(scope, answer.status, request_id, self._clock.monotonic() - began)

    async def _answer(
        self, scope: Scope, receive: Receive, answer: _Answer, request_id: str
    ) -> None:
        method = scope["method"]
        template, known = self._paths(scope["path"]) or ("none", [])
        scope["tickrail.template"] = template
        if known and method == "OPTIONS":
            allow = {"Allow": ", ".join(known)}
            await answer.plain(Response(None, HTTPStatus.NO_CONTENT, allow), scope, receive)
            return
        if not known or method not in known:
            status, text = HTTPStatus.NOT_FOUND, f"There is no path {scope['path'][:200]}."
            headers = {}
            if known:
                status, text = HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not for this path."
                headers = {"Allow": ", ".join(known)}
            await answer.plain(status_response(status, text, request_id, headers), scope, receive)
            return
        scope["tickrail.body"] = await _read_body(scope, receive)
        if method == "HEAD":
            scope["method"] = "GET"

        async def nothing_more() -> Message:
            message = await receive()
            return message if message["type"] == "http.disconnect" else _EMPTY

        await self._app(scope, nothing_more, answer.send)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return str(value.decode())
        return str(uuid7(self._clock))

    def _report(self, scope: Scope, status: int, request_id: str, seconds: float) -> None:
        route = scope.get("tickrail.template", "none")
        # A client may send any word as a method; a label has a fixed set of values.
        method = scope["method"] if scope["method"] in _METHODS else "other"
        labels = {"method": method, "route": route, "status": str(status)}
        self._metrics.count("http_requests_total", **labels)
        self._metrics.observe("http_request_seconds", seconds, route=route)
        if scope["path"] in _QUIET:
            return
        write = _log.warning if status >= _INTERNAL else _log.info
        write(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            ms=round(seconds * 1000, 1),
            request_id=request_id,
            caller=scope.get("tickrail.caller", ""),
        )


_EMPTY: Message = {"type": "http.request", "body": b"", "more_body": False}


class _Answer:
    """Sends an answer: adds the request's id, leaves a HEAD's body out, remembers the status."""

    def __init__(self, send: Send, request_id: str, *, head: bool) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self._head = head
        self.status = _INTERNAL
        self.started = False

    async def send(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = int(message["status"])
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id)]
            given = {name.lower() for name, _ in headers}
            headers += [(n, v) for n, v in _SAFE.items() if n not in given]
            message = {**message, "headers": headers}
        elif self._head:
            message = {**message, "body": b""}
        await self._send(message)

    async def plain(self, response: Response, scope: Scope, receive: Receive) -> None:
        """Send a whole response, unless one has begun."""
        if not self.started:
            await response(scope, receive, self.send)


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body, refused as soon as it is too large.

    Raises:
        TooLargeError: more than MAX_BODY bytes.
        MalformedError: compressed, or sent too slowly.
    """
    headers: dict[bytes, Any] = dict(scope["headers"])
    length = headers.get(b"content-length", b"")
    if length.isdigit() and (len(length) > 12 or int(length) > MAX_BODY):  # noqa: PLR2004 - digits of far too much
        raise TooLargeError(f"The body is larger than {MAX_BODY} bytes.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise MalformedError("The body is compressed; send it as it is.")
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        with anyio.fail_after(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > MAX_BODY:
                    raise TooLargeError(f"The body is larger than {MAX_BODY} bytes.")
                chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError:
        raise MalformedError(f"The body took longer than {BODY_SECONDS:g} s to arrive.") from None
    return b"".join(chunks)

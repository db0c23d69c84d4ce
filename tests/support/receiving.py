"""Receivers of webhooks as users build them, with FastAPI and with Flask: one behaviour, twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from flask import Flask
from flask import Response as FlaskResponse
from flask import request as flask_request
from tests.support.api import served
from werkzeug.serving import make_server

from tickrail.sdk.receiver import (
    AsgiReceiver,
    Delivery,
    ReceiverRules,
    WsgiReceiver,
    delivery_of,
)

FRAMEWORKS = ("fastapi", "flask")


@dataclass
class Reply:
    """What a handler answers. `chunks` above 1: the body comes in so many parts."""

    status: int = 200
    body: bytes = b"done"
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/plain"})
    chunks: int = 1


@dataclass
class Handler:
    """Counts what reaches it; `act` is the effect."""

    act: Callable[[Delivery | None, bytes], Reply] = lambda _delivery, _body: Reply()
    calls: list[Delivery | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __call__(self, delivery: Delivery | None, body: bytes) -> Reply:
        self.calls.append(delivery)
        self.bodies.append(body)
        return self.act(delivery, body)


def parts(reply: Reply) -> Iterator[bytes]:
    """The body in its chunks; an empty one stands for a failure on the way."""
    size = max(1, -(-len(reply.body) // reply.chunks))
    for at in range(0, len(reply.body), size):
        chunk = reply.body[at : at + size]
        if chunk.startswith(b"!"):
            raise RuntimeError("the handler fails while it answers")
        yield chunk


def fastapi_app(rules: ReceiverRules, handler: Handler) -> FastAPI:
    """An application whose `/hooks/...` are deliveries, and `/other` is none."""
    app = FastAPI()
    app.add_middleware(AsgiReceiver, rules=rules)

    def serve(request: Request, body: bytes) -> Response:
        reply = handler(delivery_of(request.scope), body)
        if reply.chunks > 1:
            return StreamingResponse(parts(reply), reply.status, reply.headers)
        return Response(reply.body, reply.status, reply.headers)

    @app.post("/hooks/{name}")
    async def hook(name: str, request: Request) -> Response:
        del name
        return await run_in_threadpool(serve, request, await request.body())

    @app.get("/hooks/{name}")
    async def look(name: str, request: Request) -> Response:
        del name
        return serve(request, b"")

    @app.post("/other")
    async def other(request: Request) -> Response:
        return await run_in_threadpool(serve, request, await request.body())

    return app


def flask_app(rules: ReceiverRules, handler: Handler) -> Flask:
    """The same with Flask."""
    app = Flask("receiver")
    app.wsgi_app = WsgiReceiver(app.wsgi_app, rules)  # type: ignore[method-assign]

    @app.route("/hooks/<name>", methods=["GET", "POST"])
    @app.route("/other", methods=["POST"])
    def hook(**_: Any) -> FlaskResponse:
        reply = handler(delivery_of(flask_request.environ), flask_request.get_data())
        body = parts(reply) if reply.chunks > 1 else reply.body
        return FlaskResponse(body, reply.status, reply.headers)

    return app


@contextmanager
def serve_flask(app: Flask) -> Iterator[str]:
    """The application behind a server with threads; its address."""
    logging.getLogger("werkzeug").disabled = True
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="flask", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


@contextmanager
def serve(framework: str, rules: ReceiverRules, handler: Handler) -> Iterator[str]:
    """A receiver of that framework; its address."""
    if framework == "fastapi":
        with served(fastapi_app(rules, handler)) as url:
            yield url
    else:
        with serve_flask(flask_app(rules, handler)) as url:
            yield url

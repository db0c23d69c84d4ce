"""Receivers of webhooks as users build them, with FastAPI and with Flask: one behaviour, twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from flask import Flask
from flask import Response as FlaskResponse
from flask import request as flask_request

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
        return serve(request, await request.body())

    @app.get("/hooks/{name}")
    async def look(name: str, request: Request) -> Response:
        del name
        return serve(request, b"")

    @app.post("/other")
    async def other(request: Request) -> Response:
        return serve(request, await request.body())

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


Headers = Sequence[tuple[str, str]]

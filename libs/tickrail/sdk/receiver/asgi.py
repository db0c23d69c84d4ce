"""The middleware for FastAPI, Starlette and every other ASGI application.

    app.add_middleware(AsgiReceiver, rules=ReceiverRules(store=store, paths=["/hooks/*"]))

Needs no framework, and asyncio as the event loop. The store is called on threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tickrail.sdk.receiver.delivery import DELIVERY, Delivery
from tickrail.sdk.receiver.guard import (
    Guard,
    Headers,
    ReceiverRules,
    problem,
    too_large,
)
from tickrail.sdk.receiver.store import Answer, FencedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiReceiver:
    """Lets each delivery's handler run once, and answers the others from the store."""

    def __init__(self, app: App, rules: ReceiverRules) -> None:
        """Around an application.

        Args:
            app: the application.
            rules: what is concerned and how.
        """
        self._app = app
        self._guard = Guard(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not self._guard.concerns(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await _read(receive, self._guard.rules.max_body)
        if body is None:
            return  # the sender is gone
        if isinstance(body, Answer):
            await _answer(send, body)
            return
        headers = _decoded(scope["headers"])
        admitted = await asyncio.to_thread(self._guard.admit, headers, body)
        if isinstance(admitted, Answer):
            await _answer(send, admitted)
            return
        receive = _again(body, receive)
        if admitted is None:
            await self._app(scope, receive, send)
            return
        # Without extensions: a file or trailers sent past `send` could not be kept.
        inner = {**scope, DELIVERY: admitted, "extensions": {}}
        answering = _Answering(self._guard, admitted, send)
        try:
            await self._app(inner, receive, answering.send)
        except FencedError as error:
            await self._release(answering)
            if answering.begun:
                raise
            await _answer(send, problem(412, f"{error}."))
        except Exception:
            # Not so when the task is cancelled: the handler may go on in a thread of its own. Then
            # the key stays until its lease is over.
            await self._release(answering)
            raise
        else:
            await self._release(answering)

    async def _release(self, answering: _Answering) -> None:
        """Free the key where no whole answer came."""
        if not answering.settled:
            await asyncio.to_thread(self._guard.release, answering.delivery)


class _Answering:
    """Holds an answer back until it is kept."""

    def __init__(self, guard: Guard, delivery: Delivery, send: Send) -> None:
        self.delivery = delivery
        self.settled = False
        self.begun = False
        self._guard = guard
        self._send = send
        self._held: list[Message] = []
        self._status = 0
        self._headers: Headers = ()
        self._body = bytearray()
        self._large = False

    async def send(self, message: Message) -> None:
        """Take a message of the application's."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = _decoded(message.get("headers", ()))
            self._held.append(message)
            return
        if message["type"] != "http.response.body" or self.settled:
            await self._send(message)
            return
        if not self._large:
            self._body += message.get("body", b"")
            self._large = len(self._body) > self._guard.rules.max_answer
        self._held.append(message)
        last = not message.get("more_body", False)
        if last and (instead := await self._settle()) is not None and not self.begun:
            self._held.clear()
            await _answer(self._send, instead)
        elif last or self._large:
            await self._flush()

    async def _settle(self) -> Answer | None:
        body = None if self._large else bytes(self._body)
        self.settled = True
        return await asyncio.to_thread(
            self._guard.settle, self.delivery, self._status, self._headers, body
        )

    async def _flush(self) -> None:
        self.begun = True
        held, self._held = self._held, []
        for message in held:
            await self._send(message)


async def _read(receive: Receive, limit: int) -> bytes | Answer | None:
    """The whole body; an answer where it is too large; None where the sender is gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then what the server has to say."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return messages.pop() if messages else await receive()

    return read


async def _answer(send: Send, answer: Answer) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _decoded(headers: Any) -> Headers:  # noqa: ANN401 - pairs of bytes, as servers give them
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]

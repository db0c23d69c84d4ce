"""One thread for each request.

The routes, what they depend on and the handlers of errors are plain functions that wait for
PostgreSQL. The framework would take each of them to a thread and back, three times a request, and a
change of threads costs about as much as a statement does. So all that it does of a request happens
on one thread: nothing there waits for the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

P = ParamSpec("P")
T = TypeVar("T")
LATER: Final = "tickrail.later"
"""In a request's scope: the response that the edge is to send by itself."""
MOST_THREADS: Final = 40
"""Requests that are answered at a time by a process; others wait for a thread. Most of them wait
for PostgreSQL, to which there are fewer connections."""
_NO_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}


def directly(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A plain function in the form that the framework calls where it is."""

    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    return called


class Routes(APIRouter):
    """Routes that are plain functions."""

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:  # noqa: ANN401 - the framework's own
        """Add one, as the decorators do."""
        super().add_api_route(path, directly(endpoint), **more)


class Later(Response):
    """A response that takes long to send: the edge sends it, and no thread is held for it."""

    def __init__(self, response: Response) -> None:
        """Put off a response."""
        super().__init__()
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Note it for the edge."""
        del receive, send
        scope[LATER] = self._response


def answer_of(app: ASGIApp, scope: Scope) -> list[Message]:
    """What an application of plain functions answers; its body is in the scope.

    Raises:
        RuntimeError: something in it waits for the event loop.
    """
    sent: list[Message] = []

    async def receive() -> Message:
        return _NO_BODY

    async def send(message: Message) -> None:
        sent.append(message)

    work = app(scope, receive, send).__await__()
    try:
        waited = next(work)
    except StopIteration:
        return sent
    raise RuntimeError(f"{scope['path']} waits for the event loop: {waited!r}")


class Threads:
    """The threads that requests are answered on."""

    def __init__(self) -> None:
        """None is there before it is needed."""
        self._pool = ThreadPoolExecutor(MOST_THREADS, "request")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function returns that runs on one of them, in the caller's context.

        When the wait for it is cancelled, the function itself goes on.
        """
        context = copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, lambda: context.run(function, *args, **kwargs)
        )

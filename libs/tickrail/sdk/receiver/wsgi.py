"""The middleware for Flask and every other WSGI application.

    app.wsgi_app = WsgiReceiver(app.wsgi_app, ReceiverRules(store=store, paths=["/hooks/*"]))

Needs no framework.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
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

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiReceiver:
    """Lets each delivery's handler run once, and answers the others from the store."""

    def __init__(self, app: App, rules: ReceiverRules) -> None:
        """Around an application.

        Args:
            app: the application; `app.wsgi_app` of a Flask one.
            rules: what is concerned and how.
        """
        self._app = app
        self._guard = Guard(rules)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if not self._guard.concerns(environ["REQUEST_METHOD"], path or "/"):
            return self._app(environ, start_response)
        body = _read(environ, self._guard.rules.max_body)
        if isinstance(body, Answer):
            return _answer(start_response, body)
        environ = {
            **environ,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
        }
        admitted = self._guard.admit(_headers(environ), body)
        if isinstance(admitted, Answer):
            return _answer(start_response, admitted)
        if admitted is None:
            return self._app(environ, start_response)
        environ[DELIVERY] = admitted
        try:
            return self._run(environ, start_response, admitted)
        except FencedError as error:
            self._guard.release(admitted)
            return _answer(start_response, problem(412, f"{error}."))
        except Exception:
            self._guard.release(admitted)
            raise

    def _run(
        self, environ: Environ, start_response: StartResponse, delivery: Delivery
    ) -> Iterable[bytes]:
        """Run the handler; its answer is kept before the sender hears it."""
        head = _Head()
        chunks = self._app(environ, head.start)
        whole = False
        try:
            body = bytearray()
            rest = iter(chunks)
            for chunk in rest:
                body += chunk
                if len(body) + len(head.written) > self._guard.rules.max_answer:
                    break
            else:
                whole = True
        except BaseException:
            _close(chunks)
            raise
        start = bytes(head.written + body)
        if not whole:
            start_response(head.status, head.headers)
            return _Large(self._guard, delivery, head, start, rest, chunks)
        _close(chunks)
        instead = self._guard.settle(delivery, head.code, head.headers, start)
        if instead is not None:
            return _answer(start_response, instead)
        start_response(head.status, head.headers)
        return [start]


class _Head:
    """Takes what an application says by `start_response`."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.written = bytearray()

    @property
    def code(self) -> int:
        return int(self.status.split(" ", 1)[0])

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], object]:
        """`start_response`; a later call, after an error, takes the place of the first."""
        del exc_info
        self.status, self.headers = status, headers
        return self.written.extend


class _Large:
    """An answer that is too large to keep: passed on as it comes, its end kept without a body."""

    def __init__(
        self,
        guard: Guard,
        delivery: Delivery,
        head: _Head,
        start: bytes,
        rest: Iterator[bytes],
        chunks: Iterable[bytes],
    ) -> None:
        self._settle = lambda: guard.settle(delivery, head.code, head.headers, None)
        self._release = lambda: guard.release(delivery)
        self._start: bytes | None = start
        self._rest = rest
        self._chunks = chunks
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._start is not None:
            start, self._start = self._start, None
            return start
        try:
            return next(self._rest)
        except StopIteration:
            self._end(self._settle)
            raise
        except Exception:
            self._end(self._release)
            raise

    def close(self) -> None:
        """The server has no more use for it: all is sent, or the sender is gone."""
        _close(self._chunks)
        self._end(self._settle)

    def _end(self, how: Callable[[], object]) -> None:
        if self._open:
            self._open = False
            how()


def _close(chunks: Iterable[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


def _read(environ: Environ, limit: int) -> bytes | Answer:
    """The whole body, or an answer where it is too large or does not come."""
    stream = environ["wsgi.input"]
    text = environ.get("CONTENT_LENGTH") or ""
    if text:
        if not (text.isascii() and text.isdigit()):
            return problem(400, "Content-Length is not a number.")
        size = int(text)
        if size > limit:
            return too_large(limit)
        body: bytes = stream.read(size)
        return body if len(body) == size else problem(400, "The body did not come as a whole.")
    if not environ.get("wsgi.input_terminated"):
        return b""  # a server that would wait for ever for more
    body = stream.read(limit + 1)
    return body if len(body) <= limit else too_large(limit)


def _headers(environ: Environ) -> Headers:
    """The request's headers; a server joins those of one name with a comma."""
    return [
        (name[5:].replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    ]


def _answer(start_response: StartResponse, answer: Answer) -> Iterable[bytes]:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Status"
    headers = [*answer.headers, ("content-length", str(len(answer.body)))]
    start_response(f"{answer.status} {phrase}", headers)
    return [answer.body]

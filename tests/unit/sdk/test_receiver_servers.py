"""The middlewares against servers that hang up, and what is imported for them."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tickrail.sdk.receiver import (
    AsgiReceiver,
    InProgress,
    MemoryStore,
    ReceiverRules,
    Started,
    WsgiReceiver,
)

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/",
    "headers": [(b"idempotency-key", b"k"), (b"fencing-token", b"5")],
    "extensions": {"http.response.pathsend": {}},
}


async def serve(
    receiver: AsgiReceiver, messages: Sequence[dict[str, Any]], scope: dict[str, Any] = SCOPE
) -> list[dict[str, Any]]:
    """Serve one request; what the server was told to send."""
    incoming, sent = list(messages), list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await receiver(dict(scope), receive, send)
    return sent


def test_asgi_a_sender_that_hangs_up_before_its_body_is_whole_begins_nothing() -> None:
    store = MemoryStore()

    async def app(*_: Any) -> None:
        raise AssertionError("no handler is to run")

    part = {"type": "http.request", "body": b"half", "more_body": True}
    receiver = AsgiReceiver(app, ReceiverRules(store=store))
    assert asyncio.run(serve(receiver, [part])) == []
    assert len(store) == 0


def test_asgi_the_handler_gets_the_body_and_then_the_server_itself() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["extensions"])
        seen.append(await receive())
        seen.append(await receive())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    parts = [
        {"type": "http.request", "body": b"ha", "more_body": True},
        {"type": "http.request", "body": b"lf"},
    ]
    receiver = AsgiReceiver(app, ReceiverRules(store=MemoryStore()))
    sent = asyncio.run(serve(receiver, parts))
    assert seen == [
        {},
        {"type": "http.request", "body": b"half", "more_body": False},
        {"type": "http.disconnect"},
    ]
    assert [m["type"] for m in sent] == ["http.response.start", "http.response.body"]


def test_asgi_a_cancelled_task_keeps_the_key_since_its_handler_may_go_on() -> None:
    store = MemoryStore()

    async def cancelled() -> None:
        inside = asyncio.Event()

        async def app(*_: Any) -> None:
            inside.set()
            await asyncio.Event().wait()

        receiver = AsgiReceiver(app, ReceiverRules(store=store))
        task = asyncio.create_task(serve(receiver, [{"type": "http.request"}]))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert isinstance(store.begin("k", 5, 300), InProgress)


def test_asgi_an_application_that_answers_nothing_frees_the_key() -> None:
    store = MemoryStore()

    async def app(*_: Any) -> None:
        pass

    receiver = AsgiReceiver(app, ReceiverRules(store=store))
    assert asyncio.run(serve(receiver, [{"type": "http.request"}])) == []
    assert store.begin("k", 5, 300) == Started()


def test_asgi_what_is_no_request_is_left_alone() -> None:
    seen: list[str] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["type"])

    receiver = AsgiReceiver(app, ReceiverRules(store=MemoryStore()))
    for kind in ("lifespan", "websocket"):
        asyncio.run(serve(receiver, [], {**SCOPE, "type": kind}))
    assert seen == ["lifespan", "websocket"]


def environ(body: bytes, **more: Any) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "HTTP_IDEMPOTENCY_KEY": "k",
        "HTTP_FENCING_TOKEN": "5",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **more,
    }


class Heard:
    """What a WSGI server was told."""

    def __init__(self, receiver: WsgiReceiver, given: dict[str, Any]) -> None:
        self.status = ""
        self.chunks = receiver(given, self._start)

    def _start(self, status: str, _headers: object, _info: object = None) -> Any:
        self.status = status
        return None

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"CONTENT_LENGTH": "9"}, 400),
        ({"CONTENT_LENGTH": "four"}, 400),
        ({"CONTENT_LENGTH": "999999999999"}, 413),
        ({"CONTENT_LENGTH": "", "wsgi.input": io.BytesIO(b"x" * 101),
          "wsgi.input_terminated": True}, 413),
    ],
)  # fmt: skip
def test_wsgi_a_body_that_is_not_whole_or_too_large_begins_nothing(
    more: dict[str, Any], status: int
) -> None:
    store = MemoryStore()

    def app(*_: Any) -> Iterable[bytes]:
        raise AssertionError("no handler is to run")

    heard = Heard(
        WsgiReceiver(app, ReceiverRules(store=store, max_body=100)), environ(b"x", **more)
    )
    assert heard.status.startswith(f"{status} ")
    assert b"detail" in heard.body
    assert len(store) == 0


def test_wsgi_a_body_without_a_length_is_read_only_where_the_server_ends_it() -> None:
    seen: list[bytes] = []

    def app(given: Any, start: Any) -> Iterable[bytes]:
        seen.append(given["wsgi.input"].read())
        start("204 No Content", [])
        return []

    receiver = WsgiReceiver(app, ReceiverRules(store=MemoryStore()))
    chunked = {"CONTENT_LENGTH": "", "wsgi.input": io.BytesIO(b"abc")}
    Heard(receiver, environ(b"", **chunked, HTTP_IDEMPOTENCY_KEY="a"))
    Heard(receiver, environ(b"", **chunked, **{"wsgi.input_terminated": True}))
    assert seen == [b"", b"abc"]


def test_wsgi_what_is_written_and_an_answer_that_takes_the_place_of_another_count() -> None:
    def app(given: Any, start: Any) -> Iterable[bytes]:
        del given
        start("200 OK", [])
        write = start("201 Created", [("content-type", "text/plain")], (None, None, None))
        write(b"one ")
        return [b"two"]

    receiver = WsgiReceiver(app, ReceiverRules(store=MemoryStore()))
    for _ in range(2):
        heard = Heard(receiver, environ(b""))
        assert (heard.status, heard.body) == ("201 Created", b"one two")


@pytest.mark.parametrize("whole", [True, False])
def test_wsgi_a_large_answer_is_closed_and_its_end_kept_also_when_the_sender_hangs_up(
    whole: bool,
) -> None:
    store, closed = MemoryStore(), list[bool]()

    class Chunks:
        def __init__(self) -> None:
            self._left = 4

        def __iter__(self) -> Chunks:
            return self

        def __next__(self) -> bytes:
            if not self._left:
                raise StopIteration
            self._left -= 1
            return b"x" * 100

        def close(self) -> None:
            closed.append(True)

    def app(_given: Any, start: Any) -> Iterable[bytes]:
        start("200 OK", [])
        return Chunks()

    receiver = WsgiReceiver(app, ReceiverRules(store=store, max_answer=150))
    heard = Heard(receiver, environ(b""))
    if whole:
        assert heard.body == b"x" * 400
    else:
        assert next(iter(heard.chunks)) == b"x" * 200
    heard.chunks.close()  # type: ignore[attr-defined]
    assert closed == [True]
    assert Heard(receiver, environ(b"")).body == b""
    assert closed == [True]


def test_the_kit_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, tickrail.sdk.receiver, tickrail.sdk.receiver.contract\n"
        "own = {'tickrail', '__main__', '__mp_main__'}\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "files = {n: getattr(sys.modules[n], '__file__', None) or '' for n in names - own}\n"
        "print(sorted(n for n, f in files.items() if 'site-packages' in f\n"
        "             and not n.startswith(('_', 'sitecustomize'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"

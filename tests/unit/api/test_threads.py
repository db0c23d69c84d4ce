"""A request runs on one thread: what is plain is called where it is, and nothing may wait."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tickrail_api.threads import LATER, Later, answer_of, directly


def test_what_is_sent_comes_back_in_order() -> None:
    here = threading.get_ident()

    @directly
    def plain(number: int) -> int:
        assert threading.get_ident() == here
        return number + 1

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["more_body"] is False
        await send({"type": "http.response.start", "status": await plain(201)})
        await Response("text")(scope, receive, send)

    sent = answer_of(app, {"type": "http", "path": "/"})
    assert [m["type"] for m in sent[:2]] == ["http.response.start", "http.response.start"]
    assert sent[0]["status"] == 202
    assert sent[-1]["body"] == b"text"


def test_what_waits_for_the_loop_is_told() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="/path waits for the event loop"):
        answer_of(app, {"type": "http", "path": "/path"})


def test_an_error_comes_out() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive, send
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answer_of(app, {"type": "http", "path": "/"})


def test_a_long_response_is_left_to_the_edge() -> None:
    long = Response("much")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Later(long)(scope, receive, send)

    scope: Scope = {"type": "http", "path": "/"}
    assert answer_of(app, scope) == []
    assert scope[LATER] is long

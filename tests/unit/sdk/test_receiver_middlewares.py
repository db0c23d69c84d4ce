"""The middlewares round FastAPI and Flask: what a sender hears, and what reaches the handler."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from tests.support.clock import FakeClock
from tests.support.receiving import FRAMEWORKS, Handler, Reply, fastapi_app, flask_app

from tickrail.sdk.receiver import (
    Answer,
    Begun,
    Delivery,
    FencedError,
    MemoryStore,
    ReceiverRules,
    Started,
    read_delivery,
    sign,
)

KEY = "01a228bd-c0b0-84da-a9f8-66ce498b6740"
SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@dataclass
class Heard:
    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> str:
        """The detail of an answer that says what is wrong."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        return str(document["detail"])


def asgi_client(app: FastAPI) -> Callable[..., httpx.Response]:
    """Sends one request to an application, as a server would."""

    async def request(method: str, path: str, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as client:
            return await client.request(method, path, **more)

    return lambda *args, **more: asyncio.run(request(*args, **more))


class World:
    """One framework's application and a client."""

    def __init__(self, framework: str, **rules: Any) -> None:
        self.handler = Handler()
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        given = {"store": self.store, "paths": ["/hooks/*"], "clock": self.clock, **rules}
        made = ReceiverRules(**given)
        if framework == "fastapi":
            self._send: Callable[..., Any] = asgi_client(fastapi_app(made, self.handler))
        else:
            app = flask_app(made, self.handler)
            self._send = app.test_client().open
            app.logger.disabled = True
        self._flask = framework == "flask"

    def send(
        self,
        fence: int | None = 5,
        *,
        key: str | None = KEY,
        body: bytes = b'{"a":1}',
        path: str = "/hooks/a",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> Heard:
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            sent["Idempotency-Key"] = key
        if fence is not None:
            sent["Fencing-Token"] = str(fence)
        if self._flask:
            answer = self._send(path, method=method, headers=sent, data=body)
            found = Heard(answer.status_code, dict(answer.headers.to_wsgi_list()), answer.data)
            answer.close()
        else:
            answer = self._send(method, path, headers=sent, content=body)
            found = Heard(answer.status_code, dict(answer.headers), answer.content)
        return Heard(found.status, {k.lower(): v for k, v in found.headers.items()}, found.body)


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(framework: str) -> World:
    return World(framework)


def test_the_second_delivery_gets_the_first_ones_answer_and_runs_nothing(world: World) -> None:
    world.handler.act = lambda *_: Reply(
        201, b"made", {"content-type": "text/x-made", "location": "/a/1", "x-other": "1"}
    )
    first, again, later = world.send(), world.send(), world.send(6)
    assert (first.status, first.body, first.headers["x-other"]) == (201, b"made", "1")
    assert "idempotent-replay" not in first.headers
    for replay in (again, later):
        assert (replay.status, replay.body) == (201, b"made")
        assert replay.headers["content-type"] == "text/x-made"
        assert replay.headers["location"] == "/a/1"
        assert replay.headers["idempotent-replay"] == "true"
        assert "x-other" not in replay.headers
    assert len(world.handler.calls) == 1
    assert world.send(key="another").headers.get("idempotent-replay") is None
    assert len(world.handler.calls) == 2


def test_the_handler_learns_what_it_serves_and_gets_the_body(world: World) -> None:
    world.send(
        headers={
            "Tickrail-Job": "nightly",
            "Tickrail-Attempt": "3",
            "Tickrail-Scheduled-At": "2026-03-01T02:00:00Z",
        }
    )
    slot = datetime(2026, 3, 1, 2, tzinfo=UTC)
    assert world.handler.calls == [Delivery(KEY, 5, 3, "nightly", slot, signed=False)]
    assert world.handler.bodies == [b'{"a":1}']
    world.send(key='"quoted"', fence=None, body=b"")
    assert world.handler.calls[1] == Delivery("quoted", None)
    assert world.handler.bodies[1] == b""


def test_a_delivery_that_is_too_late_is_refused(world: World) -> None:
    assert world.send(6).status == 200
    late = world.send(5)
    assert late.status == 412
    assert "higher Fencing-Token 6" in late.problem()
    assert world.send(None).status == 412
    assert len(world.handler.calls) == 1


def test_while_a_handler_runs_others_are_asked_to_come_back(world: World) -> None:
    inside: list[Heard] = []

    def act(*_: object) -> Reply:
        if not inside:
            inside.append(world.send(6))
        return Reply()

    world.handler.act = act
    if world._flask:
        assert world.send().status == 200
    else:  # its client cannot be used inside of itself
        assert world.store.begin(KEY, 5, 120) == Started()
        inside.append(world.send(6))
        assert world.store.finish(KEY, 5, Answer(200))
    assert inside[0].status == 409
    assert inside[0].headers["retry-after"] == "120"
    assert "in progress" in inside[0].problem()
    assert world.send(6).headers["idempotent-replay"] == "true"


def test_after_the_lease_a_higher_fence_takes_over_and_an_equal_one_does_not(world: World) -> None:
    assert world.store.begin(KEY, 5, 120) == Started()
    world.clock.advance(121)
    assert world.send(5).status == 409
    assert world.send(6).status == 200
    assert len(world.handler.calls) == 1


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_a_failure_frees_the_key_and_the_next_delivery_runs(world: World, status: int) -> None:
    world.handler.act = lambda *_: Reply(status, b"no", {"retry-after": "7"})
    failed = world.send()
    assert (failed.status, failed.body, failed.headers["retry-after"]) == (status, b"no", "7")
    world.handler.act = lambda *_: Reply()
    again = world.send(6)
    assert (again.status, again.headers.get("idempotent-replay")) == (200, None)
    assert len(world.handler.calls) == 2


def test_a_handler_that_raises_frees_the_key(world: World) -> None:
    def act(*_: object) -> Reply:
        raise RuntimeError("no effect")

    world.handler.act = act
    assert world.send().status == 500
    world.handler.act = lambda *_: Reply()
    assert world.send().status == 200


def test_which_answers_are_kept_can_be_said(framework: str) -> None:
    world = World(framework, keeps=lambda status: status < 500)
    world.handler.act = lambda *_: Reply(422, b"never")
    assert world.send().status == 422
    assert world.send(6).headers["idempotent-replay"] == "true"
    assert len(world.handler.calls) == 1


def test_an_effect_that_is_fenced_off_is_told(world: World) -> None:
    def act(*_: object) -> Reply:
        raise FencedError(9)

    world.handler.act = act
    # Flask turns every exception into an answer of its own.
    assert world.send().status == (500 if world._flask else 412)


def test_a_handler_that_outlives_its_lease_hears_that_another_took_over(world: World) -> None:
    def act(*_: object) -> Reply:
        world.clock.advance(121)
        assert world.store.begin(KEY, 6, 120) == Started()
        return Reply()

    world.handler.act = act
    late = world.send(5)
    assert late.status == 412
    assert "took this key over" in late.problem()
    assert world.store.finish(KEY, 6, Answer(200))


@pytest.mark.parametrize("chunks", [1, 7])
def test_an_answer_above_the_bound_is_passed_on_whole_and_kept_without_its_body(
    framework: str, chunks: int
) -> None:
    world = World(framework, max_answer=1000)
    body = b"x" * 10_000
    world.handler.act = lambda *_: Reply(200, body, chunks=chunks)
    assert world.send().body == body
    again = world.send()
    assert (again.status, again.body, again.headers["idempotent-replay"]) == (200, b"", "true")
    assert again.headers["content-type"] == "text/plain"
    assert len(world.handler.calls) == 1


def test_an_answer_in_parts_below_the_bound_is_kept(world: World) -> None:
    world.handler.act = lambda *_: Reply(200, b"abcdefg", chunks=3)
    assert world.send().body == b"abcdefg"
    assert world.send().body == b"abcdefg"
    assert len(world.handler.calls) == 1


@pytest.mark.parametrize("size", [10, 5000])
def test_a_handler_that_fails_while_it_answers_frees_the_key(framework: str, size: int) -> None:
    world = World(framework, max_answer=1000)
    world.handler.act = lambda *_: Reply(200, b"x" * size + b"!" * size, chunks=2)
    with contextlib.suppress(RuntimeError):  # the client's own, where the answer had begun
        world.send()
    assert len(world.handler.calls) == 1
    world.handler.act = lambda *_: Reply()
    assert world.send(6).status == 200
    assert len(world.handler.calls) == 2


def test_a_body_above_the_bound_is_refused_before_anything_runs(framework: str) -> None:
    world = World(framework, max_body=100)
    assert world.send(body=b"x" * 100).status == 200
    refused = world.send(key="large", body=b"x" * 101)
    assert refused.status == 413
    assert "100 bytes" in refused.problem()
    assert world.send(key="large").status == 200
    assert len(world.handler.calls) == 2


def test_paths_and_methods_that_are_not_named_are_left_alone(framework: str) -> None:
    world = World(framework, paths=["/hooks/a"])
    for _ in range(2):
        assert world.send(path="/other").status == 200
        assert world.send(path="/hooks/b").status == 200
        assert world.send(method="GET", body=b"").status == 200
    assert world.handler.calls == [None] * 6
    assert len(world.store) == 0


def test_without_a_key_a_request_is_refused_or_goes_unguarded(framework: str) -> None:
    world = World(framework)
    refused = world.send(key=None)
    assert refused.status == 400
    assert "no Idempotency-Key" in refused.problem()
    loose = World(framework, require_key=False)
    assert [loose.send(key=None).status for _ in range(2)] == [200, 200]
    assert loose.handler.calls == [None, None]


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ({"Idempotency-Key": "a b"}, "idempotency-key"),
        ({"Idempotency-Key": "a,a"}, "idempotency-key"),
        ({"Idempotency-Key": "x" * 256}, "idempotency-key"),
        ({"Fencing-Token": "0"}, "fencing-token"),
        ({"Fencing-Token": "-1"}, "fencing-token"),
        ({"Fencing-Token": "1.5"}, "fencing-token"),
        ({"Fencing-Token": "9" * 19}, "fencing-token"),
        ({"Fencing-Token": "9" * 5000}, "fencing-token"),
        ({"Tickrail-Attempt": "first"}, "tickrail-attempt"),
    ],
)
def test_headers_that_cannot_be_right_are_named(
    world: World, headers: dict[str, str], what: str
) -> None:
    given = {"Idempotency-Key": KEY, **headers}
    refused = world.send(None, key=None, headers=given)
    assert refused.status == 400
    assert what in refused.problem()
    assert world.handler.calls == []


def test_a_message_of_kafka_tells_the_same() -> None:
    slot = datetime(2026, 3, 1, 2, tzinfo=UTC)
    headers = [("team", b"x"), ("Idempotency-Key", KEY.encode()), ("Fencing-Token", b"5"),
               ("Tickrail-Scheduled-At", b"2026-03-01T02:00:00Z")]  # fmt: skip
    assert read_delivery(headers) == Delivery(KEY, 5, scheduled_at=slot)
    assert read_delivery(headers[:1]) is None
    with pytest.raises(ValueError, match="fencing-token is there twice"):
        read_delivery([*headers, ("fencing-TOKEN", b"6")])


def test_a_signature_is_checked_over_the_body_as_it_came(framework: str) -> None:
    world = World(framework, secrets=["whsec_b2xk", SECRET])
    now, body = world.clock.now(), b'{"b":1, "a":2}'

    def headers(at: datetime, what: bytes = body) -> dict[str, str]:
        return {
            "webhook-id": KEY,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": sign(KEY, at, what, [SECRET]),
        }

    assert world.send(body=body).status == 401
    assert "is not signed" in world.send(body=body).problem()
    assert world.send(body=body + b" ", headers=headers(now)).status == 401
    old = now - timedelta(seconds=301)
    assert "too old" in world.send(body=body, headers=headers(old)).problem()
    assert world.handler.calls == []
    assert world.send(body=body, headers=headers(now)).status == 200
    assert world.handler.calls == [Delivery(KEY, 5, signed=True)]
    # What is stored is not for those who cannot sign, either.
    assert world.send(body=body).status == 401


class BrokenStore:
    """A store whose server is away for some of the calls."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.calls: list[str] = []

    def begin(self, *_: object) -> Begun:
        self._call("begin")
        return Started()

    def finish(self, *_: object) -> bool:
        self._call("finish")
        return True

    def abandon(self, *_: object) -> bool:
        self._call("abandon")
        return True

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise ConnectionError("the store is away")


def test_without_the_store_nothing_runs_unguarded(framework: str) -> None:
    world = World(framework, store=BrokenStore("begin"))
    away = world.send()
    assert (away.status, away.headers["retry-after"]) == (503, "5")
    assert "cannot tell" in away.problem()
    assert world.handler.calls == []


def test_an_effect_that_took_place_is_told_although_it_cannot_be_kept(framework: str) -> None:
    world = World(framework, store=BrokenStore("finish"))
    assert (world.send().status, world.send().body) == (200, b"done")
    failing = World(framework, store=BrokenStore("abandon"))
    failing.handler.act = lambda *_: Reply(500, b"no")
    assert failing.send().body == b"no"


@pytest.mark.parametrize(
    "wrong",
    [{"paths": "/hooks"}, {"paths": ["hooks"]}, {"secrets": [""]}, {"lease": timedelta(0)}],
)
def test_rules_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"paths|empty|lease"):
        ReceiverRules(**{"store": MemoryStore(), **wrong})

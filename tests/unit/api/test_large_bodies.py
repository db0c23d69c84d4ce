"""What is read of large bodies, of whom, and how many of them at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from tests.support.clock import FakeClock

from tickrail.core.errors import UnauthenticatedError
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail_api.bodies import MAX_BODY
from tickrail_api.edge import ANYBODYS_BODY, Edge, EdgeSettings

BATCH = "/v1/jobs/batch"
CHUNK = b" " * (16 * 1024)


class Door:
    """An edge without a server: requests are messages, whose bodies end when told to."""

    def __init__(self, most_large: int = 8) -> None:
        self.right = True
        self.checked = 0
        self.read = 0
        self.arrived = anyio.Semaphore(0)
        self.go_on = anyio.Event()
        self.edge = Edge(
            self.route, FakeClock(), PrometheusMetrics(), lambda path: (path, ["POST"]),
            self.check, EdgeSettings(most_large=most_large),
        )  # fmt: skip

    def check(self, scope: Any) -> str:
        self.checked += 1
        if not self.right:
            raise UnauthenticatedError("Send a valid API key.")
        return str(scope["headers"][0][1])

    async def route(self, _: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def post(self, path: str, size: int, owner: str = "acme") -> int:
        """The status of a request of this size, which says nothing of it before."""
        chunks: Iterator[bytes] = iter([CHUNK] * (size // len(CHUNK)))
        statuses: list[int] = []

        async def receive() -> Any:
            chunk = next(chunks, None)
            if chunk is None and size > MAX_BODY:
                self.arrived.release()
                await self.go_on.wait()
            self.read += len(chunk or b"")
            return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [(b"x-owner", owner.encode())],
        }  # fmt: skip
        await self.edge(scope, receive, send)
        return statuses[0]


@pytest.mark.parametrize("path", [BATCH, "/v1/jobs"])
def test_no_more_than_the_beginning_is_read_of_whoever_has_no_right_key(path: str) -> None:
    async def story() -> None:
        door = Door()
        door.right = False
        door.go_on.set()
        assert await door.post(path, MAX_BODY) == 401
        assert door.read == ANYBODYS_BODY + len(CHUNK)
        assert await door.post(path, ANYBODYS_BODY) == 200
        door.right = True
        assert await door.post(path, MAX_BODY) == 200
        assert door.checked == 2

    anyio.run(story)


def test_so_many_large_bodies_are_held_at_a_time_and_a_quarter_of_one_owner() -> None:
    async def story() -> None:
        door = Door(most_large=8)
        ended: list[int] = []

        async def large(owner: str) -> None:
            ended.append(await door.post(BATCH, 2 * MAX_BODY, owner))

        async def come(owner: str) -> None:
            for _ in range(2):
                tasks.start_soon(large, owner)
            with anyio.fail_after(20):
                for _ in range(2):
                    await door.arrived.acquire()

        async with anyio.create_task_group() as tasks:
            await come("acme")
            assert await door.post(BATCH, 2 * MAX_BODY, "acme") == 429
            for owner in ("beta", "gamma", "delta"):
                await come(owner)
            assert await door.post(BATCH, 2 * MAX_BODY, "epsilon") == 503
            assert await door.post("/v1/jobs", MAX_BODY, "acme") == 200
            assert ended == []
            door.go_on.set()
        assert ended == [200] * 8
        for _ in range(9):
            assert await door.post(BATCH, 2 * MAX_BODY) == 200
        assert await door.post(BATCH, 17 * MAX_BODY) == 413
        for _ in range(3):
            assert await door.post("/v1/jobs", MAX_BODY) == 200

    anyio.run(story)


def test_a_body_that_is_never_whole_gives_its_place_back() -> None:
    async def story() -> None:
        door = Door(most_large=4)
        with anyio.move_on_after(0.05):
            await door.post(BATCH, 2 * MAX_BODY)
        assert await door.post(BATCH, 17 * MAX_BODY) == 413
        door.go_on.set()
        assert await door.post(BATCH, 2 * MAX_BODY) == 200

    anyio.run(story)

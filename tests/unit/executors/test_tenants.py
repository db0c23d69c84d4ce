"""What webhooks know of tenants: read once for all who ask, and for a few seconds only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

import pytest
from tests.support.clock import FakeClock

from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.tenants import NoFacts, Tenants
from tickrail.executors.webhook_request import CertainError

TENANT = UUID(int=1)
USUAL = EgressPolicy.parse("127.0.0.0/8")
T = TypeVar("T")


class Facts(NoFacts):
    """A tenant's lists and secrets, and how often they were read."""

    def __init__(self) -> None:
        self.lists: Mapping[str, object] | None = None
        self.values: dict[str, bytes] = {}
        self.reads = 0

    def egress(self, tenant: UUID) -> Mapping[str, object] | None:
        del tenant
        self.reads += 1
        return self.lists

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        del tenant
        self.reads += 1
        return {n: self.values[n] for n in names if n in self.values}


class World:
    """Tenants on a loop of the test's."""

    def __init__(self) -> None:
        self.clock, self.facts = FakeClock(), Facts()

    def on_loop(self, body: Callable[[Tenants], Awaitable[T]]) -> T:
        async def run() -> T:
            with ThreadPoolExecutor(2) as threads:
                return await body(Tenants(self.facts, USUAL, threads, self.clock))

        return asyncio.run(run())


def test_lists_are_read_anew_after_five_seconds() -> None:
    world = World()

    async def body(tenants: Tenants) -> None:
        assert await tenants.policy(TENANT) is USUAL
        world.facts.lists = {"deny": ["10.0.0.0/8"]}
        world.clock.advance(4.9)
        assert await tenants.policy(TENANT) is USUAL
        world.clock.advance(0.1)
        narrow = await tenants.policy(TENANT)
        assert narrow is not USUAL
        world.clock.advance(5)
        assert await tenants.policy(TENANT) is narrow, "the same lists"
        world.facts.lists = {"deny": ["10.0.0.0/8", "192.0.2.0/24"]}
        world.clock.advance(5)
        assert await tenants.policy(TENANT) not in (narrow, USUAL)
        world.facts.lists = None
        world.clock.advance(5)
        assert await tenants.policy(TENANT) is USUAL
        assert world.facts.reads == 5

    world.on_loop(body)


def test_secrets_are_read_anew_after_five_seconds() -> None:
    world = World()
    world.facts.values = {"token": b"old"}

    async def body(tenants: Tenants) -> None:
        values, masker = await tenants.secrets(TENANT, ("token",))
        assert (values, masker.mask("old new")) == ({"token": b"old"}, "*** new")
        world.facts.values = {"token": b"new"}
        world.clock.advance(4.9)
        assert (await tenants.secrets(TENANT, ("token",)))[0] == {"token": b"old"}
        world.clock.advance(0.1)
        values, masker = await tenants.secrets(TENANT, ("token",))
        assert (values, masker.mask("old new")) == ({"token": b"new"}, "old ***")
        world.facts.values = {}
        world.clock.advance(5)
        with pytest.raises(CertainError, match="token"):
            await tenants.secrets(TENANT, ("token",))

    world.on_loop(body)


def test_all_who_ask_at_once_are_answered_by_one_read() -> None:
    world = World()

    async def body(tenants: Tenants) -> None:
        found = await asyncio.gather(*(tenants.policy(TENANT) for _ in range(50)))
        assert set(map(id, found)) == {id(USUAL)}
        assert world.facts.reads == 1

    world.on_loop(body)

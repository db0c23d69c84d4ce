"""Requests are limited for each tenant and key, over all processes, whatever headers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import event
from tests.support.api import World, api_world
from tests.support.clock import FakeClock
from tests.support.stepped import Counted

from tickrail.core.ids import TenantId
from tickrail_api.auth import Principal
from tickrail_api.limiter import RequestLimiter

pytestmark = pytest.mark.integration

SLOW = 0.001
"""So few in a second that none comes while a test runs."""


def limit(world: World, tenant: str, per_second: float, burst: int) -> None:
    for quota, amount in (("requests_per_second", per_second), ("request_burst", burst)):
        world.database.run(
            "insert into quotas (tenant_id, quota, amount) values (%s, %s, %s)",
            world.keys[tenant].tenant,
            quota,
            amount,
        )


def principal(world: World, tenant: str, key_id: str, rate: float | None = None) -> Principal:
    """Who asks, as it is known once the key was checked."""
    owner = TenantId(UUID(world.tenant_id(tenant)))
    return Principal(f"key:{key_id}", owner, frozenset(), key_id=key_id, rate=rate)


def limit_key(world: World, key: str, per_second: int) -> None:
    world.database.run(
        "update api_keys set requests_per_second = %s where id = %s", per_second, key
    )


@pytest.fixture
def second(world: World) -> Iterator[World]:
    """Another process of the API on the same database."""
    with api_world(world.database) as other:
        yield other


def test_f17_two_processes_let_as_many_pass_as_the_limit_says_whatever_a_header_claims(
    world: World, second: World
) -> None:
    limit(world, "acme", SLOW, 60)
    token = world.keys["acme"].token
    callers = [world.caller(token), second.caller(token)]

    def ask(n: int) -> httpx.Response:
        claimed = {"X-Forwarded-For": f"203.0.113.{n}, 9.9.9.{n % 250}"}
        return callers[n % 2].call("GET", "/v1/jobs", headers=claimed)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(200)))
    assert Counter(a.status_code for a in answers) == {200: 60, 429: 140}
    for refused in (a for a in answers if a.status_code == 429):
        assert refused.json()["code"] == "rate_limited"
        assert int(refused.headers["retry-after"]) >= 1
    assert all(world.beta.call("GET", "/v1/jobs").status_code == 200 for _ in range(20))
    assert told(world) == [("quota:requests_per_second", 80), ("quota:requests_per_second", 100)]


def told(world: World) -> list[tuple[Any, ...]]:
    return world.database.rows(
        "select subject, (after ->> 'percent')::int from audit_log where action = 'quota.reached'"
        " order by at"
    )


def test_every_answer_to_a_limited_caller_says_how_much_is_left(world: World) -> None:
    limit(world, "acme", SLOW, 4)
    seen = [world.acme.call("GET", "/v1/quotas")]
    seen.append(world.acme.call("GET", "/v1/jobs/name:absent", expect=404))
    seen.append(world.acme.call("POST", "/v1/jobs", {}, expect=422))
    seen.append(world.acme.call("DELETE", "/v1/jobs/name:absent", expect=404))
    seen.append(world.acme.call("GET", "/v1/jobs", expect=429))
    assert [a.headers["ratelimit-policy"] for a in seen] == ['"tenant";q=4;w=4000'] * 5
    assert [a.headers["ratelimit"].split(";t=")[0] for a in seen] == [
        '"tenant";r=3',
        '"tenant";r=2',
        '"tenant";r=1',
        '"tenant";r=0',
        '"tenant";r=0',
    ]
    assert 1 <= int(seen[-1].headers["retry-after"]) <= 1000
    assert int(seen[-1].headers["ratelimit"].split(";t=")[1]) <= 4000
    free = world.beta.call("GET", "/v1/jobs", expect=200)
    assert "ratelimit" not in free.headers
    assert "ratelimit-policy" not in free.headers


def test_a_key_has_a_limit_of_its_own_below_that_of_its_tenant(world: World) -> None:
    limit(world, "acme", SLOW, 4)
    limiter = RequestLimiter(world.app.state.parts.database, FakeClock(), Counted())
    keys = [principal(world, "acme", key_id, SLOW) for key_id in ("a", "b", "c")]
    fields, refused = limiter.admit(keys[0])
    assert refused is None
    assert fields[b"ratelimit-policy"] == b'"key";q=1;w=1000, "tenant";q=4;w=4000'
    for _ in range(5):
        told = limiter.admit(keys[0])[1]
        assert told is not None
        assert "The key may make" in told.detail
    assert [limiter.admit(k)[1] is None for k in keys] == [False, True, True]
    # What the key was refused for took nothing from its tenant.
    rest = [limiter.admit(principal(world, "acme", "other"))[1] for _ in range(3)]
    assert [r is None for r in rest] == [True, False, False]
    assert rest[1] is not None
    assert "The tenant may make" in rest[1].detail
    # And what the tenant was refused for nothing from the key.
    more = principal(world, "acme", "d", SLOW)
    assert b'"key";r=1;' in limiter.admit(more)[0][b"ratelimit"]


def test_the_limit_of_a_key_comes_from_the_key(world: World) -> None:
    limit_key(world, world.keys["acme"].key_id, 7)
    answer = world.acme.call("GET", "/v1/jobs", expect=200)
    assert answer.headers["ratelimit-policy"] == '"key";q=7;w=1'
    limit_key(world, world.keys["operator"].key_id, 5)
    answer = world.operator.call("GET", "/v1/tenants", expect=200)
    assert answer.headers["ratelimit-policy"] == '"key";q=5;w=1'


@contextmanager
def statements(world: World) -> Iterator[list[str]]:
    """What the API asks of the database."""
    seen: list[str] = []
    engine = world.app.state.parts.database.engine

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def test_a_caller_without_a_limit_costs_a_look_every_two_seconds(world: World) -> None:
    clock = FakeClock()
    limiter = RequestLimiter(world.app.state.parts.database, clock, Counted())
    who = principal(world, "beta", "a")
    with statements(world) as seen:
        for _ in range(100):
            assert limiter.admit(who) == ({}, None)
        first = len(seen)
        assert len([s for s in seen if "FROM quotas" in s]) == 1
        clock.advance(2.1)
        for _ in range(100):
            assert limiter.admit(who) == ({}, None)
    assert len(seen) == 2 * first
    assert not [s for s in seen if "request_buckets" in s]


def test_a_limited_caller_costs_a_statement_for_each_slice(world: World) -> None:
    limit(world, "acme", 0.001, 8_000)
    limiter = RequestLimiter(world.app.state.parts.database, FakeClock(), Counted())
    who = principal(world, "acme", "a")
    with statements(world) as seen:
        for _ in range(1_100):
            assert limiter.admit(who)[1] is None
    assert len([s for s in seen if s.startswith("UPDATE request_buckets")]) == 2


def test_what_a_process_took_and_did_not_use_comes_back(world: World) -> None:
    limit(world, "acme", SLOW, 80)
    clock = FakeClock()
    first, second = (
        RequestLimiter(world.app.state.parts.database, clock, Counted()) for _ in range(2)
    )
    who = principal(world, "acme", "a")
    passed = 0
    for _ in range(200):
        # One that asks once in two seconds uses one token of each slice.
        passed += first.admit(who)[1] is None
        clock.advance(2.0)
    assert passed == 80
    assert second.admit(who)[1] is not None


def test_a_limit_that_is_set_holds_after_two_seconds(world: World) -> None:
    clock = FakeClock()
    limiter = RequestLimiter(world.app.state.parts.database, clock, Counted())
    who = principal(world, "acme", "a")
    assert limiter.admit(who) == ({}, None)
    limit(world, "acme", SLOW, 1)
    clock.advance(2.1)
    assert [limiter.admit(who)[1] is None for _ in range(3)] == [True, False, False]

"""An effect that commits together with its key, and the keys' table, on PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from uuid import uuid4

import psycopg
import pytest
from tests.support.servers import Servers
from tests.support.until import until

from tickrail.sdk.receiver import (
    Answer,
    Done,
    Fenced,
    FencedError,
    InProgress,
    PostgresStore,
    Started,
)

pytestmark = pytest.mark.integration

LEASE = 600.0
SCHEMA = "receiver_effects"
Connect = Callable[[], psycopg.Connection[tuple[object, ...]]]


@pytest.fixture(scope="module")
def connect(stack: Servers) -> Iterator[Connect]:
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as conn:
        conn.execute(f"create schema {SCHEMA}".encode())
        conn.execute(f"create table {SCHEMA}.effects (key text, fence bigint)".encode())
        yield partial(psycopg.connect, stack.postgres_dsn)
        conn.execute(f"drop schema {SCHEMA} cascade".encode())


@pytest.fixture
def store(connect: Connect) -> PostgresStore:
    made = PostgresStore(connect, table=f"{SCHEMA}.keys", lock_wait=timedelta(milliseconds=100))
    made.create_table()
    return made


@pytest.fixture
def key() -> str:
    return str(uuid4())


def act(conn: psycopg.Connection[tuple[object, ...]], key: str, fence: int) -> None:
    conn.execute(f"insert into {SCHEMA}.effects values (%s, %s)".encode(), [key, fence])


def effects(connect: Connect, key: str) -> list[object]:
    with connect() as conn:
        rows = conn.execute(
            f"select fence from {SCHEMA}.effects where key = %s".encode(), [key]
        ).fetchall()
    return [row[0] for row in rows]


def deliver(connect: Connect, store: PostgresStore, key: str, fence: int) -> bool:
    """A handler with an effect; whether it was the first."""
    with connect() as conn, store.effect(conn, key, fence, Answer(204)) as effect:
        if effect.first:
            act(conn, key, fence)
        return effect.first


def test_of_many_deliveries_one_has_the_effect(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda _: deliver(connect, store, key, 5), range(16)))
    assert first.count(True) == 1
    assert effects(connect, key) == [5]
    assert deliver(connect, store, key, 6) is False
    assert store.begin(key, 7, LEASE) == Done(Answer(204))
    with pytest.raises(FencedError) as fenced:
        deliver(connect, store, key, 4)
    assert fenced.value.highest == 7
    assert effects(connect, key) == [5]


def test_an_asynchronous_connection_does_the_same(
    stack: Servers, connect: Connect, store: PostgresStore, key: str
) -> None:
    async def one(fence: int) -> bool:
        conn = await psycopg.AsyncConnection.connect(stack.postgres_dsn)
        async with conn, store.async_effect(conn, key, fence, Answer(204)) as effect:
            if effect.first:
                insert = f"insert into {SCHEMA}.effects values (%s, %s)".encode()
                await conn.execute(insert, [key, fence])
            return effect.first

    async def crowd() -> list[bool]:
        return await asyncio.gather(*(one(5) for _ in range(8)))

    assert asyncio.run(crowd()).count(True) == 1
    assert effects(connect, key) == [5]
    assert store.begin(key, 7, LEASE) == Done(Answer(204))
    with pytest.raises(FencedError):
        asyncio.run(one(6))


def test_a_crash_before_the_commit_leaves_neither_effect_nor_key(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    conn = connect()
    with pytest.raises(psycopg.OperationalError), store.effect(conn, key, 5) as effect:  # noqa: PT012 - dies inside
        assert effect.first
        act(conn, key, 5)
        with connect() as killer:
            killer.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        conn.execute("select 1")
    assert effects(connect, key) == []
    assert deliver(connect, store, key, 6) is True
    assert effects(connect, key) == [6]


def test_it_is_a_savepoint_of_the_callers_transaction(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    with connect() as conn, conn.transaction(force_rollback=True):
        with store.effect(conn, key, 5) as effect:
            assert effect.first
            act(conn, key, 5)
        assert conn.execute(f"select from {SCHEMA}.effects".encode()).rowcount > 0
    assert effects(connect, key) == []
    assert deliver(connect, store, key, 5) is True


def test_behind_a_begin_the_holder_goes_on_and_a_crash_after_the_commit_repeats_nothing(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    assert store.begin(key, 5, LEASE) == Started()
    assert isinstance(store.begin(key, 6, LEASE), InProgress)
    # The higher fence was told to wait; who holds the key goes on.
    assert deliver(connect, store, key, 5) is True
    # The process dies here, before it could finish: the next one is answered all the same.
    assert store.begin(key, 7, LEASE) == Done(Answer(204))
    # Or it does not die, and keeps the true answer.
    assert store.finish(key, 5, Answer(201, (), b"made")) is True
    assert store.begin(key, 8, LEASE) == Done(Answer(201, (), b"made"))
    assert store.abandon(key, 5) is False
    assert effects(connect, key) == [5]


def test_who_was_taken_over_has_no_effect_however_late_it_wakes_up(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    assert store.begin(key, 5, 0.0) == Started()
    assert store.begin(key, 6, LEASE) == Started()
    with pytest.raises(FencedError):
        deliver(connect, store, key, 5)
    assert deliver(connect, store, key, 6) is True
    assert effects(connect, key) == [6]


def test_while_an_effect_is_open_others_wait_and_go_by_how_it_ended(
    connect: Connect, store: PostgresStore, key: str
) -> None:
    go, inside = threading.Event(), threading.Event()

    def slow() -> bool:
        with connect() as conn, store.effect(conn, key, 5) as effect:
            act(conn, key, 5)
            inside.set()
            assert go.wait(30)
            return effect.first

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow)
        assert inside.wait(30)
        # A begin does not wait for long: it says that the key is in progress.
        assert isinstance(store.begin(key, 6, LEASE), InProgress)
        second = pool.submit(deliver, connect, store, key, 6)
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        with connect() as conn:
            conn.autocommit = True
            until(lambda: conn.execute(waits.encode()).fetchone() == (1,), 30)
        go.set()
        assert first.result(30) is True
        assert second.result(30) is False
    assert effects(connect, key) == [5]


def test_keys_are_purged_when_they_are_kept_no_longer(connect: Connect) -> None:
    brief = PostgresStore(connect, table=f"{SCHEMA}.brief", keep=timedelta(0))
    brief.create_table()
    for n in range(5):
        brief.begin(f"key-{n}", 5, LEASE)
    kept = PostgresStore(connect, table=f"{SCHEMA}.brief")
    kept.begin("kept", 5, LEASE)
    kept.finish("key-4", 5, Answer(200))
    assert brief.purge(3) == 3
    assert brief.purge() == 1
    assert brief.purge() == 0
    assert kept.begin("key-4", 6, LEASE) == Done(Answer(200))
    assert kept.begin("kept", 4, LEASE) == Fenced(5)


@pytest.mark.parametrize("table", ["", "Keys", "a.b.c", 'k"; drop table x; --', "k" * 60])
def test_a_tables_name_is_checked(connect: Connect, table: str) -> None:
    with pytest.raises(ValueError, match="no name of a table"):
        PostgresStore(connect, table=table)

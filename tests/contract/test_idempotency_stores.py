"""The stores of the receiver's kit, held to the contract that is offered for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.support.servers import Servers

from tickrail.sdk.receiver import IdempotencyStore, MemoryStore, PostgresStore
from tickrail.sdk.receiver.contract import StoreContract


class TestMemoryStore(StoreContract):
    def store(self) -> IdempotencyStore:
        return MemoryStore()


@pytest.fixture(scope="module")
def schema(stack: Servers) -> Iterator[str]:
    name = "receiver_contract"
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as conn:
        conn.execute(f"create schema {name}".encode())
        yield name
        conn.execute(f"drop schema {name} cascade".encode())


@pytest.mark.integration
class TestPostgresStore(StoreContract):
    made: PostgresStore

    @pytest.fixture(autouse=True, params=["tuples", "dictionaries", "autocommit"])
    def _made(self, request: pytest.FixtureRequest, stack: Servers, schema: str) -> None:
        """Whatever form its connections give rows, and whoever begins transactions."""
        how: dict[str, Callable[[], Any]] = {
            "tuples": partial(psycopg.connect, stack.postgres_dsn),
            "dictionaries": partial(psycopg.connect, stack.postgres_dsn, row_factory=dict_row),
            "autocommit": partial(psycopg.connect, stack.postgres_dsn, autocommit=True),
        }
        self.made = PostgresStore(how[request.param], table=f"{schema}.keys")
        self.made.create_table()
        self.made.create_table()  # a second time changes nothing

    def store(self) -> IdempotencyStore:
        return self.made

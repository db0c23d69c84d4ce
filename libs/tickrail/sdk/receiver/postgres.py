"""Idempotency keys in PostgreSQL, in a table of their own.

Nothing here imports a driver: what is handed in are psycopg 3 connections.

    store = PostgresStore(pool.connection)              # psycopg_pool.ConnectionPool
    store = PostgresStore(partial(psycopg.connect, dsn))  # one connection a call
    store.create_table()
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tickrail.sdk.receiver.connections import AsyncConnection, Connection
from tickrail.sdk.receiver.statements import DDL, LATER, STATEMENTS
from tickrail.sdk.receiver.store import (
    MOMENT,
    Answer,
    Begun,
    Done,
    InProgress,
    Record,
    Started,
    decide,
    decide_effect,
    number,
)

KEEP = timedelta(days=35)
"""How long a key is kept after it was last begun or finished: longer than Tickrail keeps a launch,
which may be tried again by hand for as long."""

_NAME = re.compile(r"([a-z_][a-z0-9_]{0,40}\.)?[a-z_][a-z0-9_]{0,40}")
_LOCK_NOT_AVAILABLE = "55P03"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Effect:
    """Whether the effect is to take place.

    Attributes:
        first: True: do it, in this transaction. False: it has been done, change nothing.
        answer: where it has been done, what was answered.
    """

    first: bool
    answer: Answer


class PostgresStore:
    """`IdempotencyStore` in PostgreSQL, for all processes of a receiver together."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection]],
        *,
        table: str = "tickrail_keys",
        keep: timedelta = KEEP,
        lock_wait: timedelta = timedelta(seconds=2),
    ) -> None:
        """Connects when it is used.

        Args:
            connect: gives a connection for the length of a `with`.
            table: name of the table, `schema.name` or `name`, in small letters.
            keep: how long a key is kept after it was last begun or finished.
            lock_wait: how long `begin` waits for somebody's open transaction on the same key
                before it says that the key is in progress.

        Raises:
            ValueError: that is no name of a table.
        """
        if not _NAME.fullmatch(table):
            raise ValueError(f"{table!r} is no name of a table: small letters, digits, _")
        self._connect = connect
        self._table = table
        self._keep = keep.total_seconds()
        self._lock_wait = str(max(1, round(lock_wait.total_seconds() * 1000)))
        self._sql = {
            name: text.format(t=table, later=LATER).encode() for name, text in STATEMENTS.items()
        }

    @property
    def ddl(self) -> str:
        """The statements that make the table, for a migration of your own."""
        index = f"{self._table.rpartition('.')[2]}_expires_at"
        return DDL.format(table=self._table, index=index)

    def create_table(self) -> None:
        """Make the table where it is not there; needs the right to do so, `begin` does not."""
        with self._connect() as conn, conn.transaction():
            for statement in self.ddl.split(";\n"):
                if statement.strip():
                    conn.execute(statement.encode())

    def begin(self, key: str, fence: int | None, lease: float) -> Begun:
        """As the port says."""
        mine = number(fence)
        try:
            with self._connect() as conn, conn.transaction():
                conn.execute(self._sql["lock_wait"], (self._lock_wait,))
                return self._begin(conn, key, mine, lease)
        except Exception as error:
            if getattr(error, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
                return InProgress(MOMENT)  # an effect of this key is about to be committed
            raise

    def finish(self, key: str, fence: int | None, answer: Answer) -> bool:
        """As the port says."""
        values = (*_columns_of(answer), self._keep, key, number(fence))
        with self._connect() as conn, conn.transaction():
            return conn.execute(self._sql["finish"], values).rowcount == 1

    def abandon(self, key: str, fence: int | None) -> bool:
        """As the port says."""
        with self._connect() as conn, conn.transaction():
            return conn.execute(self._sql["abandon"], (key, number(fence))).rowcount == 1

    @contextmanager
    def effect(
        self, conn: Connection, key: str, fence: int | None, answer: Answer | None = None
    ) -> Iterator[Effect]:
        """One transaction for an effect and its key: both are there, or neither is.

            with pool.connection() as conn, store.effect(conn, key, fence) as effect:
                if effect.first:
                    conn.execute("update accounts set balance = balance - 7 where id = 1")

        Whatever dies at whatever moment, and however often the launch is delivered, the effect is
        committed once, and by no delivery that is fenced off. Inside a transaction of the caller's
        it is a savepoint of that. It may stand inside a handler behind one of the middlewares, or
        alone; where one handler uses it, every handler of the same keys must.

        Args:
            conn: where the effect is made.
            key: names the launch.
            fence: of this delivery.
            answer: what later deliveries are answered, until the middleware has stored the true
                answer; 200 without a body if it is not given.

        Raises:
            FencedError: a delivery with a higher fence came before.
        """
        with conn.transaction():
            steps = self._enter(key, number(fence), answer or Answer(200))
            yield _drive(conn, steps)

    @asynccontextmanager
    async def async_effect(
        self, conn: AsyncConnection, key: str, fence: int | None, answer: Answer | None = None
    ) -> AsyncIterator[Effect]:
        """As `effect`, on a `psycopg.AsyncConnection`."""
        async with conn.transaction():
            steps = self._enter(key, number(fence), answer or Answer(200))
            yield await _drive_async(conn, steps)

    def purge(self, limit: int = 10_000) -> int:
        """Delete keys that are kept no longer; how many. Call it once a day or so.

        Args:
            limit: at most so many.
        """
        with self._connect() as conn, conn.transaction():
            return conn.execute(self._sql["purge"], (limit,)).rowcount

    def _begin(self, conn: Connection, key: str, mine: int, lease: float) -> Begun:
        for _ in range(_TRIES):
            made = conn.execute(self._sql["start"], (key, mine, mine, lease, self._keep))
            if made.rowcount == 1:
                return Started()
            record = self._look(conn, key)
            if record is None:
                continue  # purged between the two statements
            begun = decide(record, mine)
            if isinstance(begun, Started):
                conn.execute(self._sql["take"], (mine, mine, lease, self._keep, key))
            elif mine > record.fence:
                conn.execute(self._sql["see"], (mine, key))
            return begun
        return InProgress(MOMENT)

    def _enter(self, key: str, mine: int, answer: Answer) -> Steps:
        values = (*_columns_of(answer), self._keep)
        while True:
            # Waits for another transaction that has the key, and sees how that ended.
            if (yield self._sql["start_done"], (key, mine, mine, *values)) == 1:
                return Effect(first=True, answer=answer)
            row = yield self._sql["look"], (key,)
            if row is None:
                continue  # purged between the two statements
            found = decide_effect(_record(row), mine)
            if isinstance(found, Done):
                return Effect(first=False, answer=found.answer)
            yield self._sql["take_done"], (mine, mine, *values, key)
            return Effect(first=True, answer=answer)

    def _look(self, conn: Connection, key: str) -> Record | None:
        row = conn.execute(self._sql["look"], (key,)).fetchone()
        return None if row is None else _record(row)


Steps = Generator[tuple[bytes, tuple[object, ...]], Any, Effect]
"""Statements to run, one by one; each is sent the row that it found, or how many it changed."""


def _drive(conn: Connection, steps: Steps) -> Effect:
    try:
        query, values = next(steps)
        while True:
            cursor = conn.execute(query, values)
            found = cursor.rowcount if cursor.description is None else cursor.fetchone()
            query, values = steps.send(found)
    except StopIteration as end:
        effect: Effect = end.value
        return effect


async def _drive_async(conn: AsyncConnection, steps: Steps) -> Effect:
    try:
        query, values = next(steps)
        while True:
            cursor = await conn.execute(query, values)
            found = cursor.rowcount if cursor.description is None else await cursor.fetchone()
            query, values = steps.send(found)
    except StopIteration as end:
        effect: Effect = end.value
        return effect


def _record(row: Any) -> Record:  # noqa: ANN401 - a row in whatever form the connection makes
    values = row.values() if isinstance(row, Mapping) else row
    fence, holder, state, lease_left, status, headers, body = values
    answer = None
    if status is not None:
        pairs = tuple((name, value) for name, value in json.loads(headers))
        answer = Answer(status, pairs, bytes(body))
    return Record(fence, holder, state, lease_left, answer)


def _columns_of(answer: Answer) -> tuple[object, ...]:
    return answer.status, json.dumps(answer.headers), answer.body

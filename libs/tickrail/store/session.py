"""Connections to PostgreSQL for the loops: opened when needed, thrown away when they fail.

An error inside a transaction ends it, closes the connection and comes out as ours; the next use
opens a new one. So a killed session, a restart or a failover costs one call. So does a server that
no longer answers although the connection stands: the server's own timeouts cannot tell of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import orjson
import psycopg
from psycopg import errors as pg
from psycopg.abc import PQGen
from psycopg.types.json import set_json_dumps, set_json_loads

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.store.errors import mapped

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[object, ...]]
Connection = psycopg.Connection[tuple[object, ...]]

_CLOCK = SystemClock()
_NETWORK_SECONDS = 2.0
"""How much later than the server's own timeout its answer may come."""
_ENDLESS = float("inf")


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """How to reach the database.

    Attributes:
        url: a libpq URL or keyword string; TLS is set in it (`sslmode`, `sslrootcert`, ...).
        name: shown in pg_stat_activity.
        statement_timeout: seconds after which the server ends a statement.
        idle_timeout: seconds after which the server ends an idle transaction: what bounds how long
            a paused owner can stand in a takeover's way.
        prepare: whether to prepare statements on the server; off behind a transaction pooler.
        connect_within: seconds that a connection may take to each server of the URL, at least 2.
    """

    url: str
    name: str = "tickrail"
    statement_timeout: float = 30.0
    idle_timeout: float = 30.0
    prepare: bool = True
    connect_within: int = 5

    @property
    def answer_within(self) -> float:
        """Seconds after which a server that has not answered a statement counts as gone."""
        return self.statement_timeout + _NETWORK_SECONDS


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that gives up on a server which does not answer.

    A frozen server, or a network that swallows packets, is told by nothing: the socket is open, and
    the statement timeout is the server's. Without a bound here the thread would wait for ever, the
    owner's as well as the one that looks whether PostgreSQL answers.

    Attributes:
        answer_within: the longest wait for an answer, seconds. After it the connection is closed;
            whether a commit that was under way took place is unknown.
    """

    answer_within: float = _ENDLESS

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - psycopg's own
        """Wait for an answer, as psycopg does, and no longer than the bound."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: PQGen[T]) -> PQGen[T]:
        until = _CLOCK.monotonic() + self.answer_within
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                # Nothing came for a moment (0.1 s): the driver asks whether to go on.
                if not ready and _CLOCK.monotonic() >= until:
                    self.pgconn.finish()
                    raise pg.ConnectionTimeout(f"no answer within {self.answer_within:g} s")
                wanted = gen.send(ready)
        except StopIteration as e:
            result: T = e.value
            return result


def connect(settings: DatabaseSettings, *, autocommit: bool = False) -> Connection:
    """A new connection, prepared for our statements.

    Joins here always start from arrays of keys, and the newest day has no statistics yet, so the
    planner is told to look each key up in an index: what it guesses else (a scan of the day, the
    whole array compared with each of its rows) costs four times as much.

    Raises:
        UnavailableError: no connection could be made.
        SetupError: the server refused for a reason of its set-up.
    """
    options = " ".join(
        f"-c {key}={value}"
        for key, value in {
            "statement_timeout": f"{int(settings.statement_timeout * 1000)}",
            "idle_in_transaction_session_timeout": f"{int(settings.idle_timeout * 1000)}",
            "timezone": "UTC",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_material": "off",
            "enable_seqscan": "off",
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
        }.items()
    )
    try:
        conn = BoundedConnection.connect(
            settings.url,
            autocommit=autocommit,
            application_name=settings.name,
            options=options,
            connect_timeout=settings.connect_within,
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
        )
    except psycopg.Error as e:
        raise mapped(e) from e
    conn.answer_within = settings.answer_within
    conn.prepare_threshold = 2 if settings.prepare else None
    set_json_loads(orjson.loads, conn)
    set_json_dumps(orjson.dumps, conn)
    return conn


class Session:
    """One connection, used by one thread at a time (others wait).

    Args:
        settings: how to reach the database.
        on_open: called in a transaction of its own on each new connection, before its first use.
    """

    def __init__(
        self, settings: DatabaseSettings, *, on_open: Callable[[Cursor], None] | None = None
    ) -> None:
        self._settings = settings
        self._on_open = on_open
        self._conn: Connection | None = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A transaction: committed at the end, rolled back by an error.

        Raises:
            UnavailableError: no connection, or it was lost; whether a commit took place is unknown.
            SetupError: the schema or the role's rights are not as needed.
        """
        with self._used() as conn, conn.transaction(), conn.cursor() as cursor:
            yield cursor

    @contextmanager
    def statement(self) -> Iterator[Cursor]:
        """For one statement, which is a transaction by itself: one round trip, and not three.

        Raises:
            UnavailableError: as for `transaction`.
            SetupError: as for `transaction`.
        """
        with self._used() as conn, conn.cursor() as cursor:
            yield cursor

    @contextmanager
    def _used(self) -> Iterator[Connection]:
        with self._lock:
            before, conn = self._conn, self._open()
            try:
                if conn is not before and self._on_open is not None:
                    with conn.transaction(), conn.cursor() as cursor:
                        self._on_open(cursor)
                yield conn
            except pg.CheckViolation:
                raise
            except psycopg.Error as e:
                self._drop()
                raise mapped(e) from e
            except BaseException:
                if conn.closed or conn.broken:
                    self._drop()
                raise

    def _open(self) -> Connection:
        if self._conn is not None and (self._conn.closed or self._conn.broken):
            self._drop()
        if self._conn is None:
            self._conn = connect(self._settings, autocommit=True)
        return self._conn

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()


class SessionPool:
    """A few sessions for threads that must not wait for each other; grows up to `size`."""

    def __init__(self, settings: DatabaseSettings, size: int) -> None:
        self._sessions = [Session(settings) for _ in range(size)]
        self._free = list(self._sessions)
        self._ready = threading.Condition()

    @contextmanager
    def transaction(self, timeout: float = 30.0) -> Iterator[Cursor]:
        """A transaction on a free session.

        Raises:
            UnavailableError: as for `Session`, or no session came free within `timeout` seconds.
        """
        with self._ready:
            if not self._ready.wait_for(lambda: bool(self._free), timeout):
                raise UnavailableError("All database connections of this process are in use.")
            session = self._free.pop()
        try:
            with session.transaction() as cursor:
                yield cursor
        except UnavailableError as e:
            if isinstance(e.__cause__, pg.ReadOnlySqlTransaction):
                # The server became a standby: the other connections lead to the wrong one, too.
                self._renew()
            raise
        finally:
            with self._ready:
                self._free.append(session)
                self._ready.notify()

    def read(
        self, query: LiteralString, parameters: Mapping[str, Any], timeout: float = 30.0
    ) -> list[tuple[Any, ...]]:
        """The rows of one statement that only reads.

        A connection that died while it lay in the pool costs nothing: all of them are thrown away
        then, and a new one is tried.

        Raises:
            UnavailableError: as for `transaction`.
        """
        for last in (False, True):
            try:
                with self.transaction(timeout) as cursor:
                    found: list[tuple[Any, ...]] = cursor.execute(query, parameters).fetchall()
                    return found
            except UnavailableError as e:
                if last or not isinstance(e.__cause__, pg.OperationalError):
                    raise
                if isinstance(e.__cause__, pg.QueryCanceled | pg.ConnectionTimeout):
                    raise  # it lives, and is slow
                self._renew()
        raise AssertionError  # the second try returns or raises

    def _renew(self) -> None:
        with self._ready:
            for session in self._free:
                session.close()

    def close(self) -> None:
        """Close every session."""
        for session in self._sessions:
            session.close()

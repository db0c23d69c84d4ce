"""The one door to a tenant's data.

A `TenantTransaction` sets the tenant for its own length and row security does the rest: a statement
that forgets the tenant sees that tenant's rows and no other's. The setting ends with the
transaction, so a pooled connection carries none to the next borrower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg import sql
from sqlalchemy import Connection, CursorResult, Engine, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tickrail.core.errors import UnavailableError
from tickrail.core.ids import TenantId
from tickrail.store.errors import mapped

_BEGIN: Final = sql.SQL("begin; select begin_api({}, {})")
"""Sent as one, so a transaction costs one round trip before its first statement. The connections of
the pool are in the driver's autocommit mode: it begins none by itself."""
_JOBS: Final = sql.SQL("begin; select * from begin_jobs({}, {})")
_MOST_BEGINNINGS = 4096
"""Texts that are kept: to write one out costs a tenth of what the driver does for a request."""
Query = tuple[LiteralString, Mapping[str, Any]]
"""A statement in the driver's form, and its parameters."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, for the audit log: `key:<id>`, the request's id, the peer's address."""

    actor: str
    request_id: str = ""
    address: str = ""


class BaseTransaction:
    """A transaction that has no tenant: sees what belongs to the installation."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self.now = now
        self._last: Query | None = None

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> CursorResult[Any]:
        """Run one statement."""
        return self._connection.execute(statement, parameters)

    def execute_plainly(self, query: Query) -> list[tuple[Any, ...]]:
        """Run one statement of the driver's form, past SQLAlchemy: for what is run very often."""
        found: list[tuple[Any, ...]] = self._driver().execute(*query).fetchall()
        return found

    def execute_last(self, statement: LiteralString, parameters: Mapping[str, Any]) -> None:
        """Run one statement of the driver's form with the commit: one round trip for both.

        Nobody reads what it answers. There is one of them, after everything else.

        Raises:
            RuntimeError: there is one already, which would be lost.
        """
        if self._last is not None:
            raise RuntimeError("a last statement is left for the commit already")
        self._last = (statement, parameters)

    def finish(self) -> None:
        """Commit, with the statement that was left for it."""
        if self._last is None:
            return  # the connection's own end of the block commits
        statement, parameters = self._last
        # Written out by the driver and sent as one text: half of what a pipeline of two costs here.
        psycopg.ClientCursor(self._driver()).execute(f"{statement}; commit", parameters)

    def _driver(self) -> Any:  # noqa: ANN401 - SQLAlchemy knows it as any driver's
        return self._connection.connection.driver_connection

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """What is written inside is undone at its end; its locks stay until the transaction's."""
        inner = self._connection.begin_nested()
        try:
            yield
        finally:
            inner.rollback()


class TenantTransaction(BaseTransaction):
    """A transaction for one tenant."""

    def __init__(
        self,
        connection: Connection,
        now: datetime,
        tenant: TenantId,
        caller: Caller,
        asked: Sequence[Any] = (),
    ) -> None:
        super().__init__(connection, now)
        self.tenant = tenant
        self.caller = caller
        self.asked = asked


@contextmanager
def tenant_transaction(
    engine: Engine, tenant: TenantId, caller: Caller, queues: Collection[str] = ()
) -> Iterator[TenantTransaction]:
    """A transaction for one tenant: committed at the end, rolled back by an error.

    Args:
        engine: the pool.
        tenant: whose.
        caller: who asks.
        queues: of jobs that will be made; `asked` is then what `begin_jobs` tells besides the
            instant.

    Raises:
        UnavailableError: the database does not answer; whether a commit took place is unknown.
        SetupError: the schema or the role's rights are not as needed.
    """
    begin = _jobs(tenant, tuple(queues)) if queues else _begin(str(tenant))
    with _border(engine), _begun(engine, begin) as (connection, (now, *asked)):
        tx = TenantTransaction(connection, now, tenant, caller, asked)
        yield tx
        tx.finish()


@contextmanager
def installation_transaction(
    engine: Engine, *, operator: bool = False
) -> Iterator[BaseTransaction]:
    """A transaction without a tenant: keys, queues, partitions; no tenant's rows.

    Args:
        engine: the pool.
        operator: whether an operator asks, whose key was checked: such a transaction sees, of every
            tenant, the rows of the tables that operators set (policy `api_operator`).

    Raises:
        UnavailableError, SetupError: as for `tenant_transaction`.
    """
    begin = _begin("", "on" if operator else "")
    with _border(engine), _begun(engine, begin) as (connection, (now,)):
        tx = BaseTransaction(connection, now)
        yield tx
        tx.finish()


def read_at_once(engine: Engine, tenant: TenantId, query: sql.Composed) -> tuple[Any, ...] | None:
    """The first row of a query in a transaction of its own: one round trip.

    Raises:
        UnavailableError, SetupError: as for `tenant_transaction`.
    """
    with _border(engine):
        whole = b"; ".join((_begin(str(tenant)), query.as_bytes(), b"commit"))
        connection, cursor = _first(engine, whole)
        with connection:
            cursor.nextset()
            found: tuple[Any, ...] | None = cursor.fetchone()
            return found


@lru_cache(_MOST_BEGINNINGS)
def _begin(tenant: str, operator: str = "") -> bytes:
    return _BEGIN.format(tenant, operator).as_bytes()


@lru_cache(_MOST_BEGINNINGS)
def _jobs(tenant: TenantId, queues: tuple[str, ...]) -> bytes:
    return _JOBS.format(str(tenant), list(queues)).as_bytes()


@contextmanager
def _begun(engine: Engine, begin: bytes) -> Iterator[tuple[Connection, tuple[Any, ...]]]:
    """A transaction of the pool, and what its beginning told, its instant first.

    Committed at the end, rolled back by an error.
    """
    connection, cursor = _first(engine, begin)
    with connection, connection.begin():
        told: Any = cursor.fetchone()
        yield connection, told


def _first(engine: Engine, begin: bytes) -> tuple[Connection, psycopg.Cursor[Any]]:
    """Begin on a connection of the pool; the cursor stands at what the beginning tells.

    A connection that died while it lay in the pool shows here, where nothing was done yet: all of
    them are thrown away then, and a new one is tried.
    """
    for last in (False, True):
        connection = engine.connect()
        driver: Any = connection.connection.driver_connection
        try:
            cursor = driver.execute(begin, prepare=False)
        except BaseException as e:
            dead = isinstance(e, psycopg.OperationalError) and driver.closed
            if dead:
                connection.invalidate()
            connection.close()
            if last or not dead:
                raise
            engine.dispose()
        else:
            cursor.nextset()
            return connection, cursor
    raise AssertionError  # the second try returns or raises


@contextmanager
def _border(engine: Engine) -> Iterator[None]:
    """Raise our errors instead of the driver's."""
    try:
        yield
    except PoolTimeoutError as e:
        raise UnavailableError("All database connections of this process are in use.") from e
    except (psycopg.Error, DBAPIError) as e:
        cause = e.orig if isinstance(e, DBAPIError) else e
        if isinstance(cause, pg.ReadOnlySqlTransaction):
            # The server became a standby: every pooled connection leads to the wrong one.
            engine.dispose()
        if isinstance(cause, psycopg.Error):
            raise mapped(cause) from e
        raise

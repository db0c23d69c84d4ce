"""The one door to a tenant's data.

A `TenantTransaction` sets the tenant for its own length and row security does the rest: a statement
that forgets the tenant sees that tenant's rows and no other's. The setting ends with the
transaction, so a pooled connection carries none to the next borrower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors as pg
from sqlalchemy import Connection, CursorResult, Engine, Executable, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tickrail.core.errors import UnavailableError
from tickrail.core.ids import TenantId
from tickrail.store.errors import mapped

_ENTER = text(
    "select set_config('tickrail.tenant', :tenant, true),"
    " set_config('tickrail.operator', :operator, true), now()"
)


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

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> CursorResult[Any]:
        """Run one statement."""
        return self._connection.execute(statement, parameters)


class TenantTransaction(BaseTransaction):
    """A transaction for one tenant."""

    def __init__(
        self, connection: Connection, now: datetime, tenant: TenantId, caller: Caller
    ) -> None:
        super().__init__(connection, now)
        self.tenant = tenant
        self.caller = caller


@contextmanager
def tenant_transaction(
    engine: Engine, tenant: TenantId, caller: Caller
) -> Iterator[TenantTransaction]:
    """A transaction for one tenant: committed at the end, rolled back by an error.

    Raises:
        UnavailableError: the database does not answer; whether a commit took place is unknown.
        SetupError: the schema or the role's rights are not as needed.
    """
    with _border(engine), engine.begin() as connection:
        now = connection.execute(_ENTER, {"tenant": str(tenant), "operator": ""}).one()[2]
        yield TenantTransaction(connection, now, tenant, caller)


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
    with _border(engine), engine.begin() as connection:
        given = {"tenant": "", "operator": "on" if operator else ""}
        now = connection.execute(_ENTER, given).one()[2]
        yield BaseTransaction(connection, now)


@contextmanager
def _border(engine: Engine) -> Iterator[None]:
    """Raise our errors instead of the driver's."""
    try:
        yield
    except PoolTimeoutError as e:
        raise UnavailableError("All database connections of this process are in use.") from e
    except DBAPIError as e:
        if isinstance(e.orig, pg.ReadOnlySqlTransaction):
            # The server became a standby: every pooled connection leads to the wrong one.
            engine.dispose()
        if isinstance(e.orig, psycopg.Error):
            raise mapped(e.orig) from e
        raise

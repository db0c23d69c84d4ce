"""What `PostgresStore` uses of psycopg 3, so that nothing here needs to import it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol


class Cursor(Protocol):
    """What is used of `psycopg.Cursor`."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""
        ...

    @property
    def description(self) -> Any:  # noqa: ANN401 - looked at for None alone
        """The columns of the rows that were found; None where there are none to find."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - a row in whatever form the connection makes
        """The next row, or None."""
        ...


class Connection(Protocol):
    """What is used of `psycopg.Connection`."""

    def execute(self, query: bytes, params: Sequence[object] | None = None, /) -> Cursor:
        """Run a statement."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction, or a savepoint inside of one."""
        ...


class AsyncCursor(Protocol):
    """What is used of `psycopg.AsyncCursor`."""

    @property
    def rowcount(self) -> int:
        """Rows that the statement changed."""
        ...

    @property
    def description(self) -> Any:  # noqa: ANN401 - as above
        """The columns of the rows that were found."""
        ...

    async def fetchone(self) -> Any:  # noqa: ANN401 - as above
        """The next row, or None."""
        ...


class AsyncConnection(Protocol):
    """What is used of `psycopg.AsyncConnection`."""

    async def execute(self, query: bytes, params: Sequence[object] | None = None, /) -> AsyncCursor:
        """Run a statement."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction, or a savepoint inside of one."""
        ...

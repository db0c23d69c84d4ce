"""The port of `engine.upkeep` on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from tickrail.core.aged import Aged
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, Session

_SQL: Final = load("upkeep")
_LOOKED_AT: Final = 4
"""Of so many times the jobs that may go is looked whether their history is gone."""
_START: Final = (datetime(1, 1, 2, tzinfo=UTC), UUID(int=0))


class PostgresUpkeep:
    """Removes rows as the engine's role."""

    def __init__(self, settings: DatabaseSettings) -> None:
        """The connection opens at first use."""
        self._session = Session(settings)
        self._place = _START
        """Behind which deleted jobs are looked at next: those before it have to stay for now."""

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()

    def keys_expiring(self, within: timedelta) -> int:
        """Keys in use that end within a time and were not replaced."""
        with self._session.transaction() as cursor:
            row = cursor.execute(_SQL["keys_expiring"], {"within": within}).fetchone()
            return cast("int", row[0]) if row else 0

    def purge_jobs(self, older: timedelta, most: int) -> int:
        """Deleted jobs with their versions: those deleted so long ago that have no history left.

        A call looks at some thousands and the next one at those behind them, so that jobs that have
        to stay keep no other; behind the last one it begins anew.
        """
        looked_at = most * _LOOKED_AT
        given = {"older": older, "most": most, "looked_at": looked_at}
        given |= {"after": self._place[0], "after_id": self._place[1]}
        with self._session.transaction() as cursor:
            row = cursor.execute(_SQL["purge_jobs"], given).fetchone()
        removed, looked, *last = cast("Any", row)
        if removed < most:
            self._place = cast("tuple[datetime, UUID]", tuple(last))
            if looked < looked_at:
                self._place = _START
        return cast("int", removed)

    def purge_audit(self, older: timedelta, most: int) -> int:
        """Entries of the audit log, the oldest first."""
        with self._session.transaction() as cursor:
            row = cursor.execute("select now()").fetchone()
            before = first_id(cast("datetime", row[0]) - older) if row else UUID(int=0)
            done = cursor.execute("select purge_audit(%s, %s)", [before, most]).fetchone()
            return cast("int", done[0]) if done else 0

    def purge(self, what: Aged, older: timedelta, most: int) -> int:
        """Records that are older, the oldest first."""
        with self._session.transaction() as cursor:
            statement = _SQL[cast("Any", what.value)]
            return cursor.execute(statement, {"older": older, "most": most}).rowcount


def first_id(instant: datetime) -> UUID:
    """The lowest UUIDv7 of an instant: all that were made before it are below."""
    return UUID(int=int(instant.timestamp() * 1000) << 80)

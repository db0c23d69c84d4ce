"""Day partitions of the history: made when first needed, remembered afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import cast

from psycopg import errors as pg

from tickrail.core.errors import UnavailableError
from tickrail.store.errors import NO_PARTITION
from tickrail.store.session import Cursor


class DayKeeper:
    """Knows which days are there. What a transaction made counts only once it is committed."""

    def __init__(self) -> None:
        self._known: set[date] = set()
        self._new: set[date] = set()

    def ensure(self, cursor: Cursor, instants: Iterable[datetime]) -> int:
        """Make the days of these instants that are not known to be there; how many were asked."""
        self._new.clear()
        days = {t.astimezone(UTC).date() for t in instants} - self._known
        for day in sorted(days):
            cursor.execute("select make_day(%s)", [day])
        self._new |= days
        return len(days)

    def commit(self) -> None:
        """The transaction of the last `ensure` was committed."""
        self._known |= self._new
        self._new.clear()

    def missing(self, error: pg.CheckViolation) -> UnavailableError:
        """What an insert says for which a day was missing: forget what is known and try again.

        Raises:
            CheckViolation: it was something else.
        """
        if NO_PARTITION not in str(error):
            raise error
        self.forget()
        return UnavailableError("A day of the history is missing; it is made at the next try.")

    def forget(self) -> None:
        """Days may have been dropped."""
        self._known.clear()
        self._new.clear()


def days_before(cursor: Cursor, horizon: date) -> list[date]:
    """The days from the oldest that is there to the one before this one."""
    row = cursor.execute("select oldest_day()").fetchone()
    day = cast("date | None", row[0]) if row else None
    found = []
    while day is not None and day < horizon:
        found.append(day)
        day += timedelta(days=1)
    return found


def drop_day(cursor: Cursor, day: date) -> bool:
    """Drop a day that is there and holds nothing open; whether it went.

    Raises:
        UnavailableError, by the session: somebody reads the history for long.
    """
    row = cursor.execute("select drop_day(%s)", [day]).fetchone()
    return bool(row and row[0])

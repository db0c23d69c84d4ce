"""The port `JobSampler` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, cast

from tickrail.core.ids import Partition
from tickrail.core.ports_forecast import JobSample, SampledJob
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, Session

_SQL: Final = load("forecast")
_ROOM: Final = 4
"""A page may hold many jobs: so many times as many as wanted are read at most."""


class PostgresJobSampler:
    """Reads as the engine's role, on a connection that is open for the sample alone."""

    def __init__(self, settings: DatabaseSettings) -> None:
        """The connection opens at first use."""
        self._session = Session(settings)

    def sample(self, owned: Collection[Partition], ahead: timedelta, size: int) -> JobSample:
        """Some of the active jobs of these partitions that are due within a time."""
        try:
            with self._session.transaction() as cursor:
                row = cast("Any", cursor.execute(_SQL["jobs_in_all"]).fetchone())
                percent = min(100.0, 100.0 * size / max(1, row[0]))
                given = {
                    "percent": percent,
                    "owned": list(owned),
                    "ahead": ahead,
                    "most": _ROOM * size,
                }
                rows = cast("Any", cursor.execute(_SQL["sample"], given).fetchall())
                now = rows[0][3] if rows else cast("Any", _now(cursor))
        finally:
            self._session.close()
        return JobSample(now, 100.0 / percent, [SampledJob(*found[:3]) for found in rows])


def _now(cursor: Any) -> Any:  # noqa: ANN401 - psycopg's
    return cursor.execute("select now()").fetchone()[0]

"""The port `ReportStore` on PostgreSQL: what workers tell of themselves and of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from tickrail.core.ports_reports import RunReport, WorkerInfo
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings, Session

_SQL = load("reports")
_TIMEOUT = 10.0


class PostgresReportStore:
    """Where workers report. Safe to use from several threads.

    A connection of its own: what is told must not stand in the way of claims and ends.
    """

    def __init__(self, settings: DatabaseSettings) -> None:
        """A store that connects at first use.

        Args:
            settings: the engine role's.
        """
        self._session = Session(
            replace(settings, statement_timeout=_TIMEOUT, idle_timeout=_TIMEOUT)
        )

    def write_runs(self, reports: Sequence[RunReport]) -> None:
        """Keep what runs have told."""
        logs = [(r, r.body) for r in reports if r.body is not None]
        progress = [r for r in reports if r.progress is not None]
        with self._session.transaction() as cursor:
            if logs:
                cursor.execute(
                    _SQL["write_logs"],
                    {
                        "id": [r.id for r, _ in logs],
                        "scheduled_at": [r.scheduled_at for r, _ in logs],
                        "tenant_id": [r.tenant for r, _ in logs],
                        "attempt": [r.attempt for r, _ in logs],
                        "body": [body for _, body in logs],
                        "size": [r.size for r, _ in logs],
                        "ended": [r.ended for r, _ in logs],
                    },
                )
            if progress:
                cursor.execute(
                    _SQL["write_progress"],
                    {
                        "id": [r.id for r in progress],
                        "scheduled_at": [r.scheduled_at for r in progress],
                        "claim": [r.claim for r in progress],
                        "progress": [r.progress for r in progress],
                    },
                )

    def present(self, worker: WorkerInfo, forget_after: timedelta) -> None:
        """A worker is there; those not heard of for `forget_after` are forgotten."""
        lists = {name: list(getattr(worker, name)) for name in ("queues", "kinds", "tasks")}
        with self._session.transaction() as cursor:
            cursor.execute(_SQL["present"], {**worker._asdict(), **lists})
            cursor.execute(_SQL["forget"], {"after": forget_after})

    def left(self, worker: str) -> None:
        """The worker with this id is gone."""
        with self._session.transaction() as cursor:
            cursor.execute(_SQL["left"], {"id": worker})

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()

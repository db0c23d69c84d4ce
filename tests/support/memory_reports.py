"""What workers tell, kept in memory, beside the tables of the owner's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support.memory_tables import MemoryDatabase

from tickrail.core.ids import Claim, LaunchId
from tickrail.core.ports_reports import RunReport, WorkerInfo


@dataclass(frozen=True)
class LogRow:
    """The log of one attempt."""

    body: str
    size: int
    ended: bool


class MemoryReportStore:
    """`core.ports_reports.ReportStore`."""

    def __init__(self, db: MemoryDatabase) -> None:
        self._db = db
        self.logs: dict[tuple[LaunchId, int], LogRow] = {}
        self._progress: dict[LaunchId, tuple[Claim, Any]] = {}
        self.workers: dict[str, tuple[WorkerInfo, datetime]] = {}

    def write_runs(self, reports: Sequence[RunReport]) -> None:
        with self._db.transaction("write_runs"):
            for r in reports:
                row = self._db.launches.get(r.id)
                if row is None:
                    continue
                if r.body is not None:
                    self.logs[r.id, r.attempt] = LogRow(r.body, r.size, r.ended)
                if r.progress is not None and row.claim == r.claim:
                    self._progress[r.id] = (r.claim, json.loads(r.progress))

    def progress(self, launch: LaunchId) -> Any:
        """That of the launch's last claim; a new claim begins without."""
        claim, value = self._progress.get(launch, (None, None))
        return value if claim == self._db.launches[launch].claim else None

    def present(self, worker: WorkerInfo, forget_after: timedelta) -> None:
        with self._db.transaction("present") as now:
            self.workers[worker.id] = (worker, now)
            gone = [k for k, (_, seen) in self.workers.items() if seen < now - forget_after]
            for key in gone:
                del self.workers[key]

    def left(self, worker: str) -> None:
        with self._db.transaction("left"):
            self.workers.pop(worker, None)

"""Runs made by hand, and a place that takes their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from tickrail.core.execution import Outcome, Run

SLOT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def make_run(target: Mapping[str, object], **changes: Any) -> Run:
    values: dict[str, Any] = {
        "launch_id": uuid4(),
        "job_id": UUID(int=7),
        "job_name": "nightly",
        "tenant_id": UUID(int=1),
        "scheduled_at": SLOT,
        "attempt": 2,
        "claim": 4711,
        "target": target,
        "payload": {"dry": False},
        "timeout": 20.0,
        **changes,
    }
    return Run(**values)


class Outcomes:
    """Counts what each run ended with; `done` is handed to the executor."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: dict[Run, list[Outcome]] = {}

    def done(self, run: Run, outcome: Outcome) -> None:
        with self._changed:
            self._ended.setdefault(run, []).append(outcome)
            self._changed.notify_all()

    def of(self, run: Run, timeout: float = 30.0) -> Outcome:
        """The outcome of a run, which must be the only one."""
        with self._changed:
            assert self._changed.wait_for(lambda: run in self._ended, timeout), "no outcome"
            (outcome,) = self._ended[run]
            return outcome

    def __len__(self) -> int:
        return sum(len(found) for found in self._ended.values())

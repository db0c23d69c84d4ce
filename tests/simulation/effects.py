"""Runs as a receiver sees them: one launch runs twice at once only where the protocols say so."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from tests.simulation.kernel import Kernel, Process
from tests.simulation.violation import Violation

from tickrail.core.execution import Run


@dataclass
class Going:
    """A run under way."""

    process: Process
    run: Run
    began: float


class Effects:
    """What runs at the moment."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._going: dict[UUID, list[Going]] = {}

    def begins(self, process: Process, run: Run, *, excused: bool) -> bool:
        """A run begins; whether another of its launch still goes on.

        That may be where a worker stood still for some time, so that its claim ran out.
        """
        now = self._kernel.now
        others = [g for g in self._going.get(run.launch_id, []) if g.process.alive]
        for other in others:
            if not excused and other.process.frozen_until < other.began:
                raise Violation(
                    "no launch runs twice at once",
                    f"attempt {other.run.attempt} still runs at {other.process.name},"
                    f" {run.attempt} begins at {process.name}",
                )
        self._going[run.launch_id] = [*others, Going(process, run, now)]
        return bool(others)

    def ends(self, run: Run) -> None:
        """A run is over."""
        going = self._going.get(run.launch_id, [])
        self._going[run.launch_id] = [g for g in going if g.run is not run]

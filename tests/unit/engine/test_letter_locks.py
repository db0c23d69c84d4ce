"""In which order a redrive of many locks: first jobs, then launches, each by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.support.clock import START

from tickrail.core.ids import JobId, LaunchId
from tickrail.core.ports_api import Transaction
from tickrail.core.ports_operations import OperationRecord
from tickrail.engine.letter_operations import LetterWork
from tickrail.engine.operations import Kind

JOBS = [JobId(UUID(int=n)) for n in (7, 2, 9, 1, 8, 3, 7, 2)]
LAUNCHES = [LaunchId(UUID(int=100 + n)) for n in (5, 1, 6, 4, 2, 8, 3, 7)]


class Locking:
    """A transaction that writes down what is locked; each letter was redriven by somebody else."""

    def __init__(self) -> None:
        self.locked: list[UUID] = []
        self.now = START
        self.jobs = SimpleNamespace(find=self._job)
        self.launches = SimpleNamespace(find=lambda _: SimpleNamespace(redrive_count=1))
        self.letters = SimpleNamespace(batch=self._batch, lock=self.locked.extend)

    def wake_schedulers(self) -> None:
        """Nobody sleeps."""

    def _job(self, job: JobId, *, lock: bool = False) -> object:
        assert lock
        self.locked.append(job)
        return object()

    def _batch(self, *_: object) -> Sequence[Any]:
        """Letters in the order of their deaths."""
        return [
            SimpleNamespace(
                died_at=START, launch=SimpleNamespace(id=launch, job=job, redrive_count=0)
            )
            for launch, job in zip(LAUNCHES, JOBS, strict=True)
        ]


def test_everybody_locks_in_the_order_of_ids() -> None:
    tx = Locking()
    operation = SimpleNamespace(
        request={"filter": {}}, kind=Kind.REDRIVE, done=0, position=None, created_at=START
    )
    step = LetterWork().step(cast(Transaction, tx), cast(OperationRecord, operation))
    assert (step.done, step.changed) == (len(LAUNCHES), 0)
    assert tx.locked == [*sorted(set(JOBS)), *sorted(LAUNCHES)]

"""Dead letters as the API's use cases see them: rows and ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from tickrail.core.dead_letters import LetterFilter, Reason, reason_of
from tickrail.core.ids import LaunchId, Partition
from tickrail.core.records import LaunchRecord, Page, PageRequest
from tickrail.core.states import State


@dataclass(frozen=True, slots=True)
class LetterRecord:
    """A dead letter as it stands.

    `died_at` is since when it is one; `published` whether it is in the dead letter topic.
    """

    launch: LaunchRecord
    died_at: datetime
    published: bool

    @property
    def reason(self) -> Reason:
        """Why the launch was given up."""
        return reason_of(self.launch.state, self.launch.result)


class LetterPlace(NamedTuple):
    """Where an operation is in its letters, which it takes in this order."""

    died_at: datetime
    launch: LaunchId


class Redriven(NamedTuple):
    """How a launch begins its next life.

    `partition` is the job's present one. `payload` is used where `has_payload`; else the launch
    keeps what it had.
    """

    state: State
    partition: Partition
    payload: Any = None
    has_payload: bool = False


class LetterRecords(Protocol):
    """Dead letters of the transaction's tenant: dead and abandoned launches, purged ones aside."""

    def find(self, launch: LaunchId) -> LetterRecord | None:
        """The dead letter of a launch."""
        ...

    def page(self, where: LetterFilter, page: PageRequest) -> Page[LetterRecord]:
        """Letters in order of (died_at, launch)."""
        ...

    def count(self, where: LetterFilter, until: datetime, most: int) -> int:
        """How many letters of a filter there were up to an instant, counted up to `most`."""
        ...

    def batch(
        self, where: LetterFilter, until: datetime, after: LetterPlace | None, limit: int
    ) -> Sequence[LetterRecord]:
        """Letters up to an instant, the oldest first, those after a place."""
        ...

    def lock(self, launches: Sequence[LaunchId]) -> None:
        """Hold the rows of launches, in the order of their ids, until the transaction ends."""
        ...

    def redrive(self, seen: LaunchRecord, life: Redriven) -> LaunchRecord | None:
        """Begin a launch's next life, due now: attempt + 1, no failures, redrive_count + 1.

        The caller holds the row of its job. None: it is not dead or abandoned any more, or was
        redriven since it was seen.
        """
        ...

    def purge(self, launches: Sequence[LaunchId]) -> int:
        """Take launches out of the dead letters; their states stay. How many there were."""
        ...

"""What the engine needs of the database to see what comes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from tickrail.core.ids import JobId, Partition


class SampledJob(NamedTuple):
    """An active job: its id, its plan as JSON text, when it is due next."""

    id: JobId
    plan: str
    next_run_at: datetime


class JobSample(NamedTuple):
    """Jobs due within a time; each stands for `weight` of them."""

    now: datetime
    weight: float
    jobs: Sequence[SampledJob]


class JobSampler(Protocol):
    """Where a sample is from."""

    def sample(self, owned: Collection[Partition], ahead: timedelta, size: int) -> JobSample:
        """Some of the active jobs of these partitions that are due within a time.

        Args:
            owned: the partitions.
            ahead: the time.
            size: with fewer jobs than this in the installation, all of them.

        Raises:
            UnavailableError: the database does not answer.
        """
        ...

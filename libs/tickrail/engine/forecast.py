"""How many slots are expected in each five minutes of the next 24 hours.

For a picture of what comes, not for a decision: of many jobs a sample stands for all, a dense
schedule goes on at the pace of its first slots, and calendars are left aside. So it costs little
however many jobs there are.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError
from tickrail.core.ids import Partition
from tickrail.core.ports_forecast import JobSampler, SampledJob
from tickrail.core.ports_metrics import Metrics
from tickrail.core.recurrence import next_after
from tickrail.core.schedule_document import parse_schedule

SOONEST: Final = 15.0
LATEST: Final = 600.0
"""Seconds between two forecasts: by what the last one took."""
SHARE: Final = 200
"""A forecast takes one part of so many of the time. A new one is made sooner where what is owned
has changed."""
SAMPLE: Final = 1000
"""Of more jobs in the installation than this a part is looked at."""
CHUNK: Final = 20
"""Jobs that are looked at in one turn: the owner's work shares the interpreter."""
PAUSE: Final = 0.05
"""Seconds between two turns."""
WALKED: Final = 1500
"""Slots of one job that are walked through: every minute of a day, and some."""
WIDTH: Final = timedelta(minutes=5)
AHEAD: Final = timedelta(hours=24)
_BUCKETS: Final = AHEAD // WIDTH

log = structlog.get_logger("tickrail.forecast")


def slots(job: SampledJob, start: datetime, end: datetime) -> Counter[int]:
    """How many slots of a job lie in each bucket from `start` to `end`.

    Raises:
        TickrailError: its plan cannot be read by this version.
    """
    schedule = parse_schedule(
        json.loads(job.plan).get("schedule"), job=job.id, now=job.next_run_at, stored=True
    )
    found = Counter[int]()
    at: datetime | None = job.next_run_at
    for _ in range(WALKED):
        if at is None or at >= end:
            return found
        found[max(0, (at - start) // WIDTH)] += 1
        at = None if schedule is None else next_after(schedule, at)
    if at is not None and at < end:
        pace = WALKED / max(1, (at - job.next_run_at) // WIDTH)
        for bucket in range((at - start) // WIDTH, _BUCKETS):
            found[bucket] = round(pace)
    return found


class Forecast:
    """The loop's body.

    Args:
        jobs: where the sample is from.
        owned: the partitions that this process owns now.
        metrics: where it is told.
        clock: measures.
    """

    def __init__(
        self,
        jobs: JobSampler,
        owned: Callable[[], Collection[Partition]],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._jobs = jobs
        self._owned = owned
        self._metrics = metrics
        self._clock = clock
        self._of: frozenset[Partition] = frozenset()
        self._took = 0.0
        self._next_at = float("-inf")
        self._left = deque[SampledJob]()
        self._start = datetime.min.replace(tzinfo=UTC)
        self._weight = 1.0
        self._found = Counter[int]()
        self._told = False

    def run_once(self) -> float:
        """A part of the sample; the seconds until the next part, or until the next forecast.

        Raises:
            UnavailableError: the database does not answer.
        """
        began = self._clock.monotonic()
        if not self._left:
            owned = frozenset(self._owned())
            if began < self._next_at and owned == self._of:
                return min(SOONEST, self._next_at - began)
            self._took, self._of = 0.0, owned
            self._begin(owned)
        for _ in range(min(CHUNK, len(self._left))):
            job = self._left.popleft()
            try:
                self._found.update(slots(job, self._start, self._start + AHEAD))
            except TickrailError as e:
                log.debug("not_forecast", job=str(job.id), error=str(e))
        now = self._clock.monotonic()
        self._took += now - began
        if self._left:
            return PAUSE
        self._tell()
        self._next_at = now + min(LATEST, max(SOONEST, SHARE * self._took))
        return SOONEST

    def _begin(self, owned: Collection[Partition]) -> None:
        self._found.clear()
        if owned:
            sample = self._jobs.sample(owned, AHEAD, SAMPLE)
            midnight = sample.now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            self._start = midnight + (sample.now - midnight) // WIDTH * WIDTH
            self._weight = sample.weight
            self._left.extend(sample.jobs)

    def _tell(self) -> None:
        if not self._found and not self._told:
            return  # nothing is owned yet
        self._told = True
        for bucket in range(_BUCKETS):
            at = self._start + bucket * WIDTH
            self._metrics.gauge(
                "slots_forecast",
                self._found[bucket] * self._weight,
                hour=f"{at.hour:02}",
                minute=f"{at.minute:02}",
            )

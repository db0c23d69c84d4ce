"""The slots of a job of a history: what must be launched or skipped, and nothing else may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId
from tickrail.core.plan import from_completion

_TICK = timedelta(microseconds=1)


class Slots:
    """By the definition of its job, from where the job first waited.

    Of jobs by hand, from completion or under calendars the definition alone does not tell the
    slots: `told` is false, there are none to count, and every instant may be one.
    """

    def __init__(self, line: Mapping[str, Any], first: datetime) -> None:
        """`line` is the job's line, `first` the next run with which it was made."""
        plan = parse_definition(line["definition"], job=JobId(UUID(line["id"])), now=first).plan
        unknown = from_completion(plan) or plan.calendars is not None
        self._table = None if unknown else plan.timetable
        self._first = first
        self._earliest = first - plan.jitter

    @property
    def told(self) -> bool:
        return self._table is not None

    def due(self, end: datetime) -> Iterator[datetime]:
        """The slots from the first one up to `end`."""
        return self.between(self._first, end)

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """The slots in `first <= slot <= last`."""
        if self._table is None:
            return
        slot = self._table.next_after(first - _TICK)
        while slot is not None and slot <= last:
            yield slot
            slot = self._table.next_after(slot)

    def may_be(self, instant: datetime) -> bool:
        """Whether this may be a slot of the job."""
        if self._table is None:
            return True
        return instant >= self._earliest and self._table.next_after(instant - _TICK) == instant

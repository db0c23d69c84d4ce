"""The slots that a job should have, by a calendar of the test's own.

An edit of the schedule, or a change of the calendar, begins a new era of a job. The eras lie in the
database's tables, so that what it loses, they lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.clock import START
from tests.support.memory_tables import JobRow

ANCHOR = "2026-03-02T09:57:00Z"
SECOND = timedelta(seconds=1)
CREATED = START - SECOND
_LATEST = datetime.max.replace(tzinfo=UTC)
Window = tuple[str, str]
"""The time of day in which a calendar lets nothing run, as clocks show it."""


@dataclass(frozen=True)
class Era:
    """A part of a job's life: its slots after `begin`, `end` among them."""

    begin: datetime
    schedule: Mapping[str, Any]
    rest: Window | None = None
    end: datetime = _LATEST

    def rests(self, slot: datetime) -> bool:
        """Whether the calendar leaves this slot out."""
        return self.rest is not None and self.rest[0] <= f"{slot:%H:%M:%S}" < self.rest[1]


def period(schedule: Mapping[str, Any]) -> timedelta:
    """The length of an interval as documents have it: seconds or minutes."""
    text = schedule["every"]
    return timedelta(seconds=int(text[:-1]) * {"s": 1, "m": 60}[text[-1]])


def of_schedule(
    schedule: Mapping[str, Any], after: datetime, until: datetime
) -> Iterator[datetime]:
    """The slots after `after` up to `until`."""
    if "cron" in schedule:
        at, step = after.replace(second=0, microsecond=0), timedelta(minutes=1)
    else:
        step = period(schedule)
        anchor = datetime.fromisoformat(ANCHOR).astimezone(UTC)
        at = anchor + (after - anchor) // step * step
    while at <= until:
        if at > after:
            yield at
        at += step


def slots(eras: Iterable[Era], after: datetime, until: datetime) -> Iterator[tuple[datetime, bool]]:
    """The slots after `after` up to `until`, each with whether a calendar leaves it out."""
    for era in eras:
        found = of_schedule(era.schedule, max(after, era.begin), min(until, era.end))
        yield from ((slot, era.rests(slot)) for slot in found)


def turned(eras: tuple[Era, ...], before: JobRow, edge: datetime, era: Era) -> tuple[Era, ...]:
    """The eras of a job that goes on as in `era` after `edge`, or after its last slot.

    A job that has finished has no slots until then.
    """
    last = before.last_slot_at or eras[-1].begin
    begin = max(edge, last)
    end = last if before.state == "finished" else begin
    return (*eras[:-1], replace(eras[-1], end=end), replace(era, begin=begin, end=_LATEST))

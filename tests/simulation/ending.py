"""In the end: each slot was launched or recorded, once, by a calendar of the test's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.simulation.plan import ANCHOR
from tests.simulation.violation import Violation
from tests.support.clock import START
from tests.support.memory_tables import JobRow

if TYPE_CHECKING:
    from tests.simulation.world import World

SECOND = timedelta(seconds=1)


def check_slots(world: World) -> None:
    """Hold launches, skip records, next runs and dead letters against each other."""
    for document in world.history.jobs:
        job = world.db.jobs[world.jobs[document["name"]]]
        if document["schedule"].get("measured_from") == "completion":
            _after_each_end(world, job, document)
        else:
            _each_slot_once(world, job, document)
    for row in world.db.launches.values():
        given_up = row.state.value in ("dead", "abandoned")
        if given_up and (row.id, row.attempt) not in world.account.letters:
            raise Violation("each dead one has a letter", world.account._name(row.id))


def slots(document: Mapping[str, Any], after: datetime, until: datetime) -> Iterator[datetime]:
    """The slots after `after` up to `until`."""
    schedule = document["schedule"]
    if "cron" in schedule:
        at, step = after.replace(second=0, microsecond=0), timedelta(minutes=1)
    else:
        step = timedelta(seconds=int(schedule["every"][:-1]))
        anchor = datetime.fromisoformat(ANCHOR).astimezone(UTC)
        at = anchor + (after - anchor) // step * step
    while at <= until:
        if at > after:
            yield at
        at += step


def _each_slot_once(world: World, job: JobRow, document: Mapping[str, Any]) -> None:
    found = _records(world, job, document)
    created = START - SECOND
    last = job.last_slot_at or created
    expected = list(slots(document, created, last))
    for slot in expected:
        if found[slot] == 0:
            raise Violation("no slot is lost", f"{job.name} {slot}, decided up to {last}")
    for slot, times in found.items():
        if times > 1:
            raise Violation("each slot once", f"{job.name} {slot}: {times} records")
        if slot not in expected:
            raise Violation("no slot is made up", f"{job.name} {slot}")
    if job.state == "deleted":
        return
    if not document.get("calendars"):
        following = next(slots(document, last, last + timedelta(hours=1)))
        if job.next_run_at != following:
            raise Violation("the next run is the next slot", f"{job.name} {job.next_run_at}")
    _backfilled(world, job, document)


def _records(world: World, job: JobRow, document: Mapping[str, Any]) -> Counter[datetime]:
    """How many records each slot has: launches, and skips slot by slot."""
    found: Counter[datetime] = Counter(
        x.scheduled_at
        for x in world.db.launches.values()
        if x.job_id == job.id and x.origin == "schedule"
    )
    for skip in world.db.skips.values():
        if skip.job_id == job.id:
            run = list(slots(document, skip.first - SECOND, skip.last))
            if skip.reason == "excluded":
                run = [t for t in run if _rests(t)]
            elif document.get("calendars"):
                run = [t for t in run if not _rests(t)]
            if len(run) != skip.count:
                raise Violation("each slot once", f"{job.name}: {skip} has {len(run)} slots")
            found.update(run)
    return found


def _rests(slot: datetime) -> bool:
    return slot.hour == 10 and slot.minute == 0 and 12 <= slot.second < 19


def _backfilled(world: World, job: JobRow, document: Mapping[str, Any]) -> None:
    if "backfill" not in document:
        return
    back = timedelta(seconds=document["backfill"]["back"])
    wanted = set(slots(document, START - back - SECOND, START - SECOND))
    made = [x.scheduled_at for x in world.db.launches.values()
            if x.job_id == job.id and x.origin.startswith("backfill")]  # fmt: skip
    if sorted(made) != sorted(wanted):
        raise Violation("a backfill has each slot once", f"{job.name}: {len(made)}")


def _after_each_end(world: World, job: JobRow, document: Mapping[str, Any]) -> None:
    step = timedelta(seconds=int(document["schedule"]["every"][:-1]))
    runs = sorted(
        (x.scheduled_at, x.finished_at)
        for x in world.db.launches.values()
        if x.job_id == job.id and x.origin == "schedule" and x.finished_at
    )
    for (_, ended), (slot, _) in pairwise(runs):
        if ended is not None and slot < ended + step and not world.account.database_clock_moved:
            raise Violation("measured from the end", f"{job.name}: {slot} after {ended}")

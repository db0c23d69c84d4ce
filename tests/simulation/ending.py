"""In the end: each slot was launched or recorded, once, by a calendar of the test's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.simulation.eras import SECOND, Era, of_schedule, period, slots
from tests.simulation.violation import Violation
from tests.support.memory_tables import BackfillRow, JobRow

if TYPE_CHECKING:
    from tests.simulation.world import World


def check_slots(world: World) -> None:
    """Hold launches, skip records, next runs and dead letters against each other."""
    for job in world.db.jobs.values():
        definition = json.loads(job.definitions[job.version])
        if definition["schedule"].get("measured_from") == "completion":
            _after_each_end(world, job, definition)
        else:
            _each_slot_once(world, job, world.db.eras[job.id])
    for row in world.db.launches.values():
        given_up = row.state.value in ("dead", "abandoned")
        if given_up and (row.id, row.attempt) not in world.account.letters:
            raise Violation("each dead one has a letter", world.account._name(row.id))


def _each_slot_once(world: World, job: JobRow, eras: tuple[Era, ...]) -> None:
    found = _records(world, job, eras)
    created = eras[0].begin
    last = job.last_slot_at or created
    expected = [slot for slot, _ in slots(eras, created, last)]
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
    _goes_on(job, last, eras[-1])
    for b in world.db.backfills.values():
        if b.job_id == job.id:
            _backfilled(world, job, eras, b)


def _goes_on(job: JobRow, last: datetime, now: Era) -> None:
    if now.rest is None and job.state != "finished":
        begin = max(last, now.begin)
        following = next(of_schedule(now.schedule, begin, begin + timedelta(hours=1)))
        if job.next_run_at != following:
            raise Violation("the next run is the next slot", f"{job.name} {job.next_run_at}")


def _records(world: World, job: JobRow, eras: tuple[Era, ...]) -> Counter[datetime]:
    """How many records each slot has: launches, and skips slot by slot."""
    found: Counter[datetime] = Counter(
        x.scheduled_at
        for x in world.db.launches.values()
        if x.job_id == job.id and x.origin == "schedule"
    )
    for skip in world.db.skips.values():
        if skip.job_id == job.id:
            left_out = skip.reason == "excluded"
            run = [
                slot
                for slot, rests in slots(eras, skip.first - SECOND, skip.last)
                if rests == left_out
            ]
            if len(run) != skip.count:
                raise Violation("each slot once", f"{job.name}: {skip} has {len(run)} slots")
            found.update(run)
    return found


def _backfilled(world: World, job: JobRow, eras: tuple[Era, ...], row: BackfillRow) -> None:
    """A backfill has launches for the slots of its range, each once.

    It walks the definition that there is at each moment, so of jobs that were edited only that is
    asked, and of those that were not, that none is missing.
    """
    b = row.backfill
    made = Counter(x.scheduled_at for x in world.db.launches.values()
                   if x.job_id == job.id and x.origin == b.origin)  # fmt: skip
    if made and max(made.values()) > 1:
        raise Violation("a backfill has each slot once", f"{job.name}: {made.most_common(1)}")
    if row.state != "finished" or len(eras) > 1:
        return
    era = eras[0]
    wanted = {
        slot
        for slot in of_schedule(era.schedule, b.from_at - timedelta(microseconds=1), b.until_at)
        if slot < b.until_at and not era.rests(slot)
    }
    if b.existing.value == "launch":
        missing = wanted - made.keys()
    else:
        own = [x for x in world.db.launches.values() if x.job_id == job.id]
        missing = wanted - {x.scheduled_at for x in own if not x.origin.startswith("manual")}
    if missing or made.keys() - wanted:
        what = f"{sorted(missing)} missing, {sorted(made.keys() - wanted)} made up"
        raise Violation("a backfill has each slot once", f"{job.name}: {what}")


def _after_each_end(world: World, job: JobRow, definition: Mapping[str, Any]) -> None:
    step = period(definition["schedule"])
    runs = sorted(
        (x.scheduled_at, x.finished_at, x.redrive_count)
        for x in world.db.launches.values()
        if x.job_id == job.id and x.origin == "schedule" and x.finished_at
    )
    for (_, ended, redriven), (slot, _, _) in pairwise(runs):
        if redriven:
            continue  # the next slot was measured from the end of another life
        if ended is not None and slot < ended + step and not world.account.database_clock_moved:
            raise Violation("measured from the end", f"{job.name}: {slot} after {ended}")

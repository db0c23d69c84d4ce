"""What people ask the API for while things go wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.eras import Era, Window, turned
from tests.simulation.servers import SimDatabase
from tests.support.memory_tables import BackfillRow, JobRow
from tests.support.stepped import TENANT

from tickrail.core.backfill import BackfillState
from tickrail.core.errors import TickrailError
from tickrail.core.ids import JobId, Partition
from tickrail.core.ports_backfill import BackfillRecord
from tickrail.core.states import State
from tickrail.engine.backfill_requests import BackfillRequests
from tickrail.engine.calendars import CalendarRules, Calendars
from tickrail.engine.job_rules import JobRules
from tickrail.engine.jobs import Jobs
from tickrail.engine.launches import Launches
from tickrail.engine.pauses import Pauses
from tickrail.engine.redrive import Redrives

if TYPE_CHECKING:
    from tests.simulation.world import World

REST: Window = ("10:00:12", "10:00:19")
_TICK = timedelta(microseconds=1)
_LATEST = 22.0
"""Nobody looks for a dead letter after this."""
_TIMING = ("schedule", "max_launches", "calendars")


def rest_document(window: Window) -> dict[str, Any]:
    """A calendar that lets nothing run in a time of the day."""
    return {"windows": [{"from": window[0], "to": window[1]}]}


class SimBackfills:
    """`core.ports_backfill.BackfillRecords`, as far as requests and cancels need it."""

    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def insert(self, record: BackfillRecord) -> None:
        self._db.backfills[record.backfill.id] = BackfillRow(record.backfill, record.job)

    def running(self, job: JobId) -> int:
        rows = self._db.backfills.values()
        return sum(b.state == "running" and b.job_id == job for b in rows)

    def find(self, backfill: UUID) -> BackfillRecord | None:
        row, now = self._db.backfills.get(backfill), self._db.clock.now()
        if row is None:
            return None
        return BackfillRecord(
            row.backfill, row.job_id, "", Partition(0), BackfillState(row.state), "", "", now, now
        )

    def cancel(self, record: BackfillRecord, *, running: bool) -> None:
        row = self._db.backfills[record.backfill.id]
        if row.state == "running":
            row.state = "cancelled"
        for launch in self._db.of_job(record.job):
            if launch.origin == record.backfill.origin and (
                running or launch.state is not State.RUNNING
            ):
                self._db.cancel(launch, self._db.clock.now())


class Requests:
    """The requests of a history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kernel = world.kernel
        clock, rules = world.db.clock, JobRules(world.partitions)
        self.client = Launches(clock)
        self.pauses = Pauses(rules)
        self.editor = Jobs(rules, clock)
        self.backfills = BackfillRequests(rules, clock)
        self.redrives = Redrives()
        self.calendars = Calendars(CalendarRules(rules.history, lambda _text: {}), clock)

    @contextmanager
    def _request(self, call: str = "api") -> Iterator[Any]:
        """A transaction: what it did before an error is taken back."""
        world = self.world
        if self.kernel.down["db"]:
            return
        before = world.db.save()
        try:
            with world.db.api.transaction() as tx:
                tx.backfills = SimBackfills(world.db)
                yield tx
        except TickrailError:
            world.db.put_back(before)
        world.account.observe(world.api, call, (), None)
        world.notify()

    def trigger(self, job: str) -> None:
        with suppress(RuntimeError), self._request() as tx:
            self.client.trigger(tx, job, {})

    def cancel(self, job: str, state: str) -> None:
        world = self.world
        with suppress(RuntimeError), self._request() as tx:
            rows = [r for r in world.db.of_job(world.jobs[job]) if r.state.value == state]
            for row in rows[:1]:
                world.db.cancel(row, tx.now)
                world.db.wakes += 1

    def redrive(self, job: str, again: float) -> None:
        """Somebody redrives the job's first dead letter, when there is one; perhaps two do."""
        world = self.world
        dead = world.db.of_job(world.jobs[job], frozenset({State.DEAD, State.ABANDONED}))
        if not dead:
            if self.kernel.now < _LATEST:
                self.kernel.at(self.kernel.now + 1.5, lambda: self.redrive(job, again))
            return
        launch, seen = dead[0].id, dead[0].redrive_count

        def ask() -> None:
            world.account.redrives.asked(launch, seen)
            with suppress(RuntimeError), self._request("redrive") as tx:
                self.redrives.redrive(tx, launch, {"expected_redrive_count": seen})

        ask()
        if again:
            self.kernel.at(self.kernel.now + again, ask)

    def pause(self, job: str, seconds: float, catch_up: str) -> None:
        with suppress(RuntimeError), self._request() as tx:
            self.pauses.pause(tx, job, {})

        def resume() -> None:
            with suppress(RuntimeError), self._request() as tx:
                self.pauses.resume(tx, job, {"catch_up": catch_up})

        self.kernel.at(self.kernel.now + seconds, resume)

    def delete(self, job: str) -> None:
        with suppress(RuntimeError), self._request() as tx:
            self.editor.delete(tx, job)

    def skip_next(self, job: str) -> None:
        with suppress(RuntimeError), self._request() as tx:
            self.pauses.skip_next(tx, job, {"n": 1})

    # --- edits ------------------------------------------------------------------------------------

    def edit(self, job: str, patch: Mapping[str, Any]) -> None:
        """A merge patch of a definition, whatever is open of the job."""
        db, row = self.world.db, self._row(job)
        before = copy(row)
        with suppress(RuntimeError), self._request() as tx:
            self.editor.patch(tx, job, patch)
        after = self._row(job)
        if after.version == before.version:
            return
        old, new = (json.loads(r.definitions[r.version]) for r in (before, after))
        if old["overlap"] == "allow":
            self.world.account.was_allowed(after.id)
        if any(old[name] != new[name] for name in _TIMING):
            era = Era(tx.now, new["schedule"], db.rest if new["calendars"] else None)
            db.eras[after.id] = turned(db.eras[after.id], before, tx.now, era)

    def calendar(self, window: Window) -> None:
        """The calendar changes; jobs that use it go on by it."""
        db, window = self.world.db, tuple(window)
        rows = {i: copy(r) for i, r in db.jobs.items() if db.api.extra[i].calendars}
        with suppress(RuntimeError), self._request() as tx:
            draft = self.calendars.draft("rest", rest_document(window))
            if self.calendars.put(tx, draft).record.version and db.rest != window:
                db.rest = window
                for job, row in rows.items():
                    if row.state != "deleted":
                        edge = tx.now
                        if row.next_run_at is not None:
                            edge = min(edge, row.next_run_at - _TICK)
                        now = replace(db.eras[job][-1], rest=window)
                        db.eras[job] = turned(db.eras[job], row, edge, now)

    def backfill(self, job: str, back: float, length: float, existing: str, cancel: float) -> None:
        """A backfill of the last seconds; perhaps it is cancelled."""
        found: list[UUID] = []
        with suppress(RuntimeError), self._request() as tx:
            begin = tx.now - timedelta(seconds=back)
            until = min(tx.now, begin + timedelta(seconds=length))
            asked = {"from": begin.isoformat(), "until": until.isoformat(), "existing": existing}
            found.append(self.backfills.request(tx, job, asked).backfill.id)

        def call_off() -> None:
            with suppress(RuntimeError), self._request() as tx:
                self.backfills.cancel(tx, found[0], {})

        if found and cancel:
            self.kernel.at(self.kernel.now + cancel, call_off)

    def _row(self, job: str) -> JobRow:
        return self.world.db.jobs[self.world.jobs[job]]

    # --- for all ----------------------------------------------------------------------------------

    def suspend(self, seconds: float) -> None:
        suspended = self.world.db.suspended
        suspended.add(TENANT)
        self.kernel.at(self.kernel.now + seconds, lambda: suspended.discard(TENANT))

    def pause_queue(self, seconds: float) -> None:
        paused = self.world.db.paused_queues
        paused.add("default")
        self.kernel.at(self.kernel.now + seconds, lambda: paused.discard("default"))

    def unheard(self, seconds: float) -> None:
        """The API dies between its commits and their notifications, or nobody hears these."""
        self.world.deaf_until = self.kernel.now + seconds

"""More mistakes that are planted by hand: rules read too literally, or left out.

Those named in docs/simulation.md as counterexamples break a rule of the protocols where the text's
rule is taken alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.simulation import kafka, processes
from tests.simulation.bugs import BUGS, bug, happens, hits
from tests.support import memory_coord, memory_letters, memory_store, memory_tables, memory_worker

from tickrail.bus.codec import decode_launch
from tickrail.core.states import State
from tickrail.engine import calendars, jobs, launches, placement, reaper, redrive, runs

__all__ = ["BUGS"]


@bug()
def _lost_claims_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """A lost claim is no failure, so a launch that kills its worker goes on for ever."""
    right = reaper.decide

    def decide(lost: Any) -> Any:
        return right(lost._replace(failures=0))._replace(failures=lost.failures)

    patch.setattr(reaper, "decide", decide)


@bug(hits("extend", "stall"))
def _claims_are_not_watched(patch: pytest.MonkeyPatch) -> None:
    """A run goes on while the extension of its claim waits for an answer."""
    patch.setattr(runs.Runs, "watch_once", lambda _self: 1.0)


@bug(hits("decide", "stall"))
def _reaper_ignores_the_state(patch: pytest.MonkeyPatch) -> None:
    """The reaper's update does not look at the state or the claim any more."""
    right = memory_tables.MemoryDatabase.end_attempt

    def end_attempt(self: Any, end: Any, now: datetime) -> Any:
        row = self.launches.get(end.id)
        if row is not None and isinstance(end, memory_tables.ReaperEnd):
            row.state, row.claim, row.claim_expires_at = State.RUNNING, end.claim, end.expires_at
        return right(self, end, now)

    patch.setattr(memory_tables.MemoryDatabase, "end_attempt", end_attempt)


@bug(happens("truncate"))
def _lost_is_what_was_passed(patch: pytest.MonkeyPatch) -> None:
    """A message is thought lost only where the group's position has passed it."""
    at: dict[tuple[Any, int], tuple[str, int, int]] = {}
    right, append = memory_store._is_lost, kafka.SimBus._put
    here: list[Any] = []

    def put(self: Any, topic: str, partition: int, message: Any) -> int:
        offset = append(self, topic, partition, message)
        here[:] = [self]
        if topic != processes.LETTERS:
            m = decode_launch(message.value)
            at[m.launch, m.attempt] = (topic, partition, offset)
        return offset

    def is_lost(row: Any, now: datetime, lost_after: timedelta) -> bool:
        place = at.get((row.id, row.attempt))
        if place is None:
            return right(row, now, lost_after)
        topic, partition, offset = place
        passed = (here[0].position(processes.GROUP, topic, partition) or 0) > offset
        return passed and right(row, now, lost_after)

    patch.setattr(kafka.SimBus, "_put", put)
    patch.setattr(memory_store, "_is_lost", is_lost)


@bug()
def _messages_of_a_former_owner_are_stale(patch: pytest.MonkeyPatch) -> None:
    """A message under an epoch before the present one is refused as stale."""
    epochs: dict[tuple[Any, int], int] = {}
    right, append = memory_worker.MemoryWorkerStore.claim, kafka.SimBus._put

    def put(self: Any, topic: str, partition: int, message: Any) -> int:
        if topic != processes.LETTERS:
            m = decode_launch(message.value)
            epochs[m.launch, m.attempt] = max(m.epoch, epochs.get((m.launch, m.attempt), 0))
        return append(self, topic, partition, message)

    def claim(self: Any, requests: Sequence[Any], worker: str) -> Any:
        rows, fence = self._db.launches, self._db.fence.epochs
        stale = [r for r in requests if r.id in rows
                 and epochs.get((r.id, r.attempt), 0) < fence[rows[r.id].partition]]  # fmt: skip
        answer = right(self, [r for r in requests if r not in stale], worker)
        return replace(answer, refused={**answer.refused, **{r.id: "stale" for r in stale}})

    patch.setattr(kafka.SimBus, "_put", put)
    patch.setattr(memory_worker.MemoryWorkerStore, "claim", claim)


@bug()
def _the_finish_releases(patch: pytest.MonkeyPatch) -> None:
    """A held launch is released only after a worker's finish of the one before."""
    finished: set[Any] = set()
    finish, of_job = memory_worker.MemoryWorkerStore.finish, memory_tables.MemoryDatabase.of_job
    sweep = memory_store.MemoryOwnerStore.sweep

    def told(self: Any, ends: Sequence[Any]) -> Any:
        answer = finish(self, ends)
        finished.update(self._db.launches[i].job_id for i in answer.states)
        return answer

    def only_finished(self: Any, job: Any, *states: Any) -> Any:
        found = of_job(self, job, *states)
        sweeping = bool(states) and states[0] == memory_store.BUSY
        return found if not sweeping or job in finished else [*found, None]

    def sweeps(self: Any, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(memory_tables.MemoryDatabase, "of_job", only_finished)
            before = {x.id for x in self._db.launches.values() if x.state is State.HELD}
            swept = sweep(self, *args)
        for launch in before:
            row = self._db.launches[launch]
            if row.state is State.DUE:
                finished.discard(row.job_id)
        return swept

    patch.setattr(memory_worker.MemoryWorkerStore, "finish", told)
    patch.setattr(memory_store.MemoryOwnerStore, "sweep", sweeps)


@bug(happens("trigger"))
def _a_trigger_overlaps(patch: pytest.MonkeyPatch) -> None:
    """A launch by hand pays no heed to the overlap policy."""
    patch.setattr(launches, "_apply_overlap", lambda *_: State.DUE)


@bug(happens("edit"))
def _an_edit_forgets(patch: pytest.MonkeyPatch) -> None:
    """Slots that are due under the old schedule are forgotten at an edit."""
    right = jobs.Jobs._passed

    def passed(self: Any, tx: Any, job: Any) -> Any:
        return [], right(self, tx, job)[1]

    patch.setattr(jobs.Jobs, "_passed", passed)


@bug(happens("edit"))
def _an_edit_begins_at_the_slot(patch: pytest.MonkeyPatch) -> None:
    """A new schedule begins after the job's last slot, not after the edit."""
    right = jobs.Jobs._first_run

    def first_run(self: Any, plan: Any, job: Any, now: datetime, last: Any = None) -> Any:
        return right(self, plan, job, now if last is None else last, last)

    patch.setattr(jobs.Jobs, "_first_run", first_run)


@bug(happens("calendar"))
def _a_calendar_decides_anew(patch: pytest.MonkeyPatch) -> None:
    """A calendar that changes forgets what it left out until then."""
    right = calendars._Mover.move

    def move(self: Any, job: Any) -> Any:
        found = right(self, job)
        return None if found is None else (found[0], found[1], [])

    patch.setattr(calendars._Mover, "move", move)


@bug(lambda e: e.kind == "unheard" and e.args["seconds"] > 1)
def _only_notifications_wake(patch: pytest.MonkeyPatch) -> None:
    """A launch by hand is published only when its notification is heard."""
    right = memory_store.MemoryOwnerStore.backlog
    heard = processes.Scheduler.wake
    known: dict[int, set[Any]] = {}

    def wake(self: Any) -> None:
        known.setdefault(id(self.world), set()).update(self.world.db.launches)
        heard(self)

    def backlog(self: Any, owned: Any, limit: int, others: Any = ()) -> Any:
        found = right(self, owned, limit, others)
        there = known.get(id(self._process.world), set())
        rows = self._db.launches
        due = [p for p in found.due
               if p.id in there or not rows[p.id].origin.startswith("manual")]  # fmt: skip
        return replace(found, due=due)

    patch.setattr(processes.Scheduler, "wake", wake)
    patch.setattr(memory_store.MemoryOwnerStore, "backlog", backlog)


@bug(happens("crash", process="s"))
def _free_ones_are_left(patch: pytest.MonkeyPatch) -> None:
    """A free partition is left to the member that had it for twice the lease."""
    right = placement.ranking
    patch.setattr(placement, "ranking", lambda members, p: ["who had it", *right(members, p)])


@bug(lambda e: e.kind == "drain" and e.args["seconds"] > 100)
def _drains_are_not_read(patch: pytest.MonkeyPatch) -> None:
    """A drained member keeps what it has and takes more."""

    def own(snapshot: Any) -> Any:
        return {m.identity: m.weight for m in snapshot.members.values()}, False

    patch.setattr(placement, "weights", own)


@bug(lambda e: e.kind == "down" and e.args["server"] == "db" and e.args["seconds"] > 5)
def _an_outage_begins_when_it_is_seen(patch: pytest.MonkeyPatch) -> None:
    """An outage of the database is counted from the call that told of it."""

    def failed(self: Any) -> None:
        if self._away_since is None:
            self._away_since = self._clock.monotonic()

    patch.setattr(reaper.Reaper, "database_failed", failed)


@bug(happens("redrive"))
def _redrive_without_the_count(patch: pytest.MonkeyPatch) -> None:
    """A redrive does not compare how often its launch was redriven when it was seen."""
    right = redrive.Redrives.redrive
    patch.setattr(
        redrive.Redrives, "redrive", lambda self, tx, launch, _asked: right(self, tx, launch, {})
    )


@bug(happens("redrive"))
def _redrive_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """A redrive begins attempts anew."""
    right = memory_letters.MemoryLetters.redrive

    def begin(self: Any, seen: Any, life: Any) -> Any:
        made = right(self, seen, life)
        if made is not None:
            self._db.launches[seen.id].attempt = 1
        return made

    patch.setattr(memory_letters.MemoryLetters, "redrive", begin)


@bug(happens("redrive"))
def _redrive_without_overlap(patch: pytest.MonkeyPatch) -> None:
    """A redrive pays no heed to the overlap policy."""
    right = memory_letters.MemoryLetters.redrive
    patch.setattr(
        memory_letters.MemoryLetters,
        "redrive",
        lambda self, seen, life: right(self, seen, life._replace(state=State.DUE)),
    )


@bug()
def _keys_are_put(patch: pytest.MonkeyPatch) -> None:
    """An owner key is put without a look at whether there is one."""
    right = memory_coord.MemoryCoordinator.claim

    def claim(self: Any, partition: Any, identity: str, lease: int) -> Any:
        self._etcd.owners.pop(partition, None)
        return right(self, partition, identity, lease)

    patch.setattr(memory_coord.MemoryCoordinator, "claim", claim)

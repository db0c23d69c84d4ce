"""Mistakes that are planted by hand, to see that the simulator finds each of them.

Each is one wrong rule, put in the place of the right one for the time of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.simulation import kafka, processes, servers
from tests.simulation.plan import Event, History
from tests.support import memory_store, memory_tables, memory_worker

from tickrail.core import offsets
from tickrail.core.ports import FenceReport
from tickrail.core.states import State
from tickrail.engine import (
    deadletters,
    membership,
    ownership,
    reaper,
    run_ends,
    run_record,
    runs,
    takeover,
)

Plant = Callable[[pytest.MonkeyPatch], None]
Needs = Callable[[Event], bool]


@dataclass(frozen=True)
class Bug:
    """A wrong rule. It can show only in histories with an event as `needs` says."""

    plant: Plant
    needs: Needs | None

    def may_show(self, made: History) -> bool:
        """Whether it is worth while to run this history."""
        return self.needs is None or any(map(self.needs, made.events))


BUGS: dict[str, Bug] = {}


def bug(needs: Needs | None = None) -> Callable[[Plant], Plant]:
    """Put it into the list under its docstring."""

    def put(plant: Plant) -> Plant:
        BUGS[str(plant.__doc__).rstrip(".")] = Bug(plant, needs)
        return plant

    return put


def hits(call: str, what: str) -> Needs:
    """A fault at a call."""
    return lambda e: e.kind == "call" and (e.args["call"], e.args["what"]) == (call, what)


def happens(kind: str, **args: str) -> Needs:
    """An event of this kind."""
    return lambda e: e.kind == kind and all(e.args[k].startswith(v) for k, v in args.items())


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """With this bug."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name].plant(patch)
        yield BUGS[name]


@bug()
def _no_fence(patch: pytest.MonkeyPatch) -> None:
    """The fence is left out."""

    def all_held(_db: Any, owned: Any, wanted: Any) -> Any:
        return frozenset(set(wanted) & owned.keys()), FenceReport()

    patch.setattr(memory_tables.MemoryDatabase, "hold_fence", all_held)


@bug(hits("mark_queued", "freeze"))
def _mark_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """The epoch is not compared at the mark."""
    right = memory_store.MemoryOwnerStore.mark_queued

    def mark(self: Any, owned: Any, published: Any) -> Any:
        stored = self._db.fence.epochs
        return right(self, {p: stored[p] for p in owned}, published)

    patch.setattr(memory_store.MemoryOwnerStore, "mark_queued", mark)


@bug(hits("renew", "stall"))
def _trust_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Trust is counted from the answer to a renewal, not from its sending."""
    right = membership.Membership._renew

    def renew(self: Any) -> float:
        session, before = self.session, self.session and self.session.window
        wait = right(self)
        if session is not None and session is self.session and session.window is not before:
            session.window = replace(session.window, sent_at=self._clock.monotonic())
        return wait

    patch.setattr(membership.Membership, "_renew", renew)


@bug()
def _a_late_answer_reopens(patch: pytest.MonkeyPatch) -> None:
    """The trust window has no end of its own: only the coordinator's word ends it."""
    patch.setattr(membership.TrustWindow, "valid", lambda _self, _now: True)


@bug(happens("hang"))
def _dead_loop_is_kept_alive(patch: pytest.MonkeyPatch) -> None:
    """The lease is renewed although the owner's loop hangs."""
    patch.setattr(processes.Scheduler, "healthy", lambda _self: True)


@bug(happens("restore", server="etcd"))
def _revisions_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """An etcd whose revisions went back is believed."""
    patch.setattr(takeover.Takeover, "_went_back", lambda *_: False)


@bug()
def _commit_before_finish(patch: pytest.MonkeyPatch) -> None:
    """The offset is done when the run starts."""
    right = runs.Runs.start

    def start(self: Any, a: Any) -> None:
        right(self, a)
        self._offset_done(a.place, a.offset)

    patch.setattr(runs.Runs, "start", start)


@bug()
def _offsets_pass_open_ones(patch: pytest.MonkeyPatch) -> None:
    """The highest offset that is done is committed, whatever is open below it."""
    right = offsets.OffsetTracker.done

    def done(self: Any, offset: int) -> bool:
        found = right(self, offset)
        if found:
            self._next = max(self._next or 0, offset + 1)
        return found

    patch.setattr(offsets.OffsetTracker, "done", done)


@bug()
def _claim_without_attempt(patch: pytest.MonkeyPatch) -> None:
    """A claim does not compare the attempt."""
    right = memory_worker._why_not
    patch.setattr(memory_worker, "_why_not", lambda row, _asked, now: right(row, row.attempt, now))


@bug(happens("restore", server="db"))
def _claim_numbers_come_again(patch: pytest.MonkeyPatch) -> None:
    """Claim numbers that a failover lost are given again."""
    patch.setattr(servers.SimDatabase, "move_claims", lambda *_: None)


@bug()
def _claims_take_over(patch: pytest.MonkeyPatch) -> None:
    """A running launch is claimed once more when its message comes again."""
    right = memory_worker._why_not

    def why_not(row: Any, asked: int, now: datetime) -> str | None:
        why = right(row, asked, now)
        return None if why == "duplicate" else why

    patch.setattr(memory_worker, "_why_not", why_not)


@bug()
def _finish_without_claim(patch: pytest.MonkeyPatch) -> None:
    """A result is written whoever holds the claim."""
    right = memory_worker.MemoryWorkerStore.finish

    def finish(self: Any, ends: Sequence[Any]) -> Any:
        rows = self._db.launches
        return right(self, [
            e._replace(claim=rows[e.id].claim) if e.id in rows else e for e in ends
        ])  # fmt: skip

    patch.setattr(memory_worker.MemoryWorkerStore, "finish", finish)


@bug()
def _mark_without_attempt(patch: pytest.MonkeyPatch) -> None:
    """The relay's mark does not look at the attempt."""
    right = memory_store.MemoryOwnerStore.mark_queued

    def mark_queued(self: Any, owned: Any, published: Sequence[Any]) -> Any:
        rows = self._db.launches
        # Nor at since when the launch is due, by which it would see the same.
        return right(self, owned, [
            p._replace(attempt=rows[p.id].attempt, due_at=rows[p.id].due_at)
            if p.id in rows else p
            for p in published
        ])  # fmt: skip

    patch.setattr(memory_store.MemoryOwnerStore, "mark_queued", mark_queued)


@bug()
def _mark_without_state(patch: pytest.MonkeyPatch) -> None:
    """The relay's mark does not look at the state."""
    right = memory_store.MemoryOwnerStore._to_mark

    def to_mark(self: Any, owned: Any, what: Sequence[Any]) -> Any:
        _, fence = right(self, owned, what)
        rows = self._db.launches
        return [rows[p.id] for p in what if p.id in rows and p.partition in owned
                and rows[p.id].attempt == p.attempt], fence  # fmt: skip

    patch.setattr(memory_store.MemoryOwnerStore, "_to_mark", to_mark)


@bug(hits("decide", "stall"))
def _reaper_ignores_expiry(patch: pytest.MonkeyPatch) -> None:
    """The reaper's update does not name the expiry that it saw."""
    right = memory_tables.MemoryDatabase.end_attempt

    def end_attempt(self: Any, end: Any, now: datetime) -> Any:
        row = self.launches.get(end.id)
        if row is not None and isinstance(end, memory_tables.ReaperEnd):
            end = replace(end, expires_at=row.claim_expires_at)
        return right(self, end, now)

    patch.setattr(memory_tables.MemoryDatabase, "end_attempt", end_attempt)


@bug(lambda e: e.kind == "down" and e.args["server"] == "db" and e.args["seconds"] > 7)
def _reaper_does_not_rest(patch: pytest.MonkeyPatch) -> None:
    """The reaper does not rest after an outage of the database."""
    patch.setattr(reaper.Reaper, "resting", property(lambda _self: False))


@bug()
def _cancel_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """A cancel that was asked for is not read where an attempt ends."""
    right = memory_tables.MemoryDatabase.end_attempt

    def end_attempt(self: Any, end: Any, now: datetime) -> Any:
        row = self.launches.get(end.id)
        if row is None:
            return right(self, end, now)
        asked, row.cancel_requested = row.cancel_requested, False
        try:
            return right(self, end, now)
        finally:
            row.cancel_requested = asked

    patch.setattr(memory_tables.MemoryDatabase, "end_attempt", end_attempt)


@bug()
def _released_too_early(patch: pytest.MonkeyPatch) -> None:
    """A held launch is released without another look at what is open."""
    patch.setattr(memory_store, "BUSY", frozenset({State.RUNNING}))


@bug(happens("message", what="lose"))
def _requeued_as_new_attempt(patch: pytest.MonkeyPatch) -> None:
    """A message that is thought lost is sent again under a new attempt number."""
    right = memory_store.MemoryOwnerStore.sweep

    def sweep(self: Any, owned: Any, lost_after: timedelta, limit: int) -> Any:
        queued = [x for x in self._db.launches.values() if x.state is State.QUEUED]
        swept = right(self, owned, lost_after, limit)
        for row in queued:
            if row.state is State.DUE:
                row.attempt += 1
        return swept

    patch.setattr(memory_store.MemoryOwnerStore, "sweep", sweep)


@bug(happens("message", what="lose"))
def _nobody_looks_for_lost_messages(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks for messages that were lost."""
    patch.setattr(memory_store, "_is_lost", lambda *_: False)


@bug(happens("anew"))
def _offsets_never_begin_again(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a topic that was made anew are taken for ones that were read already."""

    def goes_on(self: Any) -> None:
        for place, at in self._next.items():
            if at > len(self._log(place)):
                self._next[place] = 0

    patch.setattr(kafka.SimConsumer, "_begin_anew", goes_on)


@bug(hits("tick", "crash"))
def _tick_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """The tick moves the next run in one transaction and inserts the launch in another."""
    right = servers.SimOwnerStore.tick

    def tick(self: Any, owned: Any, limit: int, planner: Any) -> Any:
        rows = self._db.launches
        known = set(rows)
        ticked = right(self, owned, limit, planner)
        new = {i: rows.pop(i) for i in list(rows) if i not in known}
        if new:
            self._process.world.account.observe(self._process, "tick", (owned,), ticked)
            self._sim.kernel.after(self._process, "tick")
            self._db.launches.update(new)
        return ticked

    patch.setattr(servers.SimOwnerStore, "tick", tick)


@bug()
def _abandoned_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    """An uncertain end is tried again although a doubled run is worse."""
    right = reaper.retry_verdict

    def verdict(**given: Any) -> Any:
        return right(**{**given, "rerun": True})

    patch.setattr(reaper, "retry_verdict", verdict)
    patch.setattr(run_ends, "retry_verdict", verdict)


@bug(happens("stop", process="w"))
def _given_back_although_started(patch: pytest.MonkeyPatch) -> None:
    """A worker that stops gives a started run back although a doubled run is worse."""
    right = run_ends.give_back_verdict

    def verdict(**given: Any) -> Any:
        return right(**{**given, "started": False})

    patch.setattr(run_ends, "give_back_verdict", verdict)


@bug(hits("claim", "freeze"))
def _started_after_the_claim(patch: pytest.MonkeyPatch) -> None:
    """A run starts without a look at how old its claim is."""
    right = runs.Runs.start

    def start(self: Any, a: Any) -> None:
        sent, a.sent = a.sent, self._clock.monotonic()
        right(self, a)
        a.sent = sent

    patch.setattr(runs.Runs, "start", start)


@bug()
def _claims_are_not_extended(patch: pytest.MonkeyPatch) -> None:
    """A worker does not extend its claims."""
    patch.setattr(runs.Runs, "heartbeat_once", lambda _self: 1.0)


@bug()
def _stale_results_keep_their_offset(patch: pytest.MonkeyPatch) -> None:
    """Nothing is done about the offset of a result that came too late."""
    right = run_record.Recorder._report

    def report(self: Any, a: Any, outcome: Any, state: Any) -> None:
        right(self, a, outcome, state)
        if state is None:
            a.offset = -1

    patch.setattr(run_record.Recorder, "_report", report)


@bug()
def _letters_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The owner does not publish the dead letters that are owed."""
    patch.setattr(deadletters.OwedLetters, "run_once", lambda _self, _owned: 0)


@bug(lambda e: e.args.get("server") == "produce" and e.args["seconds"] > kafka.DELIVERY)
def _letters_are_settled_first(patch: pytest.MonkeyPatch) -> None:
    """A dead letter counts as published when it is handed over."""
    right = deadletters.LetterBox.post

    def post(self: Any, owed: Sequence[Any], timeout: float) -> Any:
        right(self, owed, timeout)
        return [(x.id, x.scheduled_at, x.attempt) for x in owed]

    patch.setattr(deadletters.LetterBox, "post", post)


@bug(happens("restore", server="db"))
def _lost_raise_is_a_loss(patch: pytest.MonkeyPatch) -> None:
    """A stored epoch that is lower than the owner's is not raised again."""
    right = ownership.Ownership.dropped

    def dropped(self: Any, partition: Any, reason: Any, epoch: Any = None) -> None:
        if reason is not ownership.DropReason.FENCE_LOWER:
            right(self, partition, reason, epoch)

    patch.setattr(ownership.Ownership, "dropped", dropped)


@bug()
def _released_while_owned(patch: pytest.MonkeyPatch) -> None:
    """A partition that is handed over stays in use until its key is gone."""
    right = ownership.Session.owned

    def owned(self: Any) -> Any:
        leaving = {p: h.epoch for p, h in self.held.items() if h.state.name == "LEAVING"}
        return {**right(self), **leaving}

    patch.setattr(ownership.Session, "owned", owned)

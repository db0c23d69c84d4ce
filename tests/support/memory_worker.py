"""The database of a worker in memory, on the tables of the owner's."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tests.support.memory_limits import ask, leave, place
from tests.support.memory_notices import follow_up
from tests.support.memory_tables import (
    LaunchRow,
    MemoryDatabase,
)

from tickrail.core.errors import TickrailError
from tickrail.core.ids import Claim, JobId, LaunchId
from tickrail.core.messages import UndecodableLetter
from tickrail.core.ports import OwedLetter
from tickrail.core.ports_worker import (
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    ExtendAnswer,
    Extension,
    Finish,
    FinishAnswer,
    TargetName,
)
from tickrail.core.states import State

_MOST = 2**31 - 1
_EPOCH = datetime.min.replace(tzinfo=UTC)
WAITING = frozenset({State.DUE, State.QUEUED})
BUSY = frozenset({State.DUE, State.QUEUED, State.RUNNING})


class MemoryWorkerStore:
    """`core.ports.WorkerStore`."""

    def __init__(self, db: MemoryDatabase) -> None:
        self._db = db

    def claim(self, requests: Sequence[ClaimRequest], worker: str) -> ClaimAnswer:
        db = self._db
        if any(r.attempt > _MOST for r in requests):
            raise TickrailError("the database refuses a statement: integer out of range")
        with db.transaction("claim") as now:
            granted: list[Claimed] = []
            refused: dict[LaunchId, str] = {}
            could: list[LaunchRow] = []
            for r in requests:
                row = db.launches.get(r.id)
                reason = "unknown" if row is None else _why_not(row, r.attempt, now)
                if row is None or reason is not None:
                    refused[r.id] = reason or "unknown"
                else:
                    could.append(row)
            asked = ask(db, could, now)
            refused |= {i: x.reason for i, x in asked.refused.items()}
            for row in sorted(could, key=lambda x: x.id):
                if row.id in asked.refused:
                    continue
                row.state, row.claim = State.RUNNING, db.next_claim()
                row.claim_expires_at = now + timedelta(seconds=row.visibility)
                row.worker, row.started_at, row.cancel_requested = worker, now, False
                place(db, row, asked.granted[row.id])
                granted.append(_claimed(db, row)._replace(limited=bool(asked.granted[row.id])))
            return ClaimAnswer(now, granted, refused)

    def finish(self, ends: Sequence[Finish]) -> FinishAnswer:
        db = self._db
        for e in ends:
            _check(e)
        with db.transaction("finish") as now:
            states: dict[LaunchId, State] = {}
            for e in ends:
                if e.verdict.state is State.SUCCEEDED:
                    row = db.launches.get(e.id)
                    if row is None or row.state is not State.RUNNING or row.claim != e.claim:
                        continue
                    row.state, row.finished_at = State.SUCCEEDED, now
                    row.result = json.loads(e.result)
                    states[e.id] = State.SUCCEEDED
                else:
                    after = db.end_attempt(e, now)
                    if after is not None:
                        states[e.id] = after
            left = [db.launches[e.id] for e in ends if e.limited and e.id in states]
            leave(db, left, now)
            db.wakes += bool(left) or any(e.wakes for e in ends)
            follow_up(db, states, now)
            return FinishAnswer(states, [e.id for e in ends if e.id not in states])

    def extend(self, claims: Sequence[Extension], ceiling: timedelta) -> ExtendAnswer:
        db = self._db
        with db.transaction("extend") as now:
            held, cancel = set(), set()
            for c in claims:
                row = db.launches.get(c.id)
                if row is None or row.state is not State.RUNNING or row.claim != c.claim:
                    continue
                if row.started_at is None or row.started_at <= now - ceiling:
                    continue
                row.claim_expires_at = now + timedelta(seconds=c.visibility)
                held.add(c.id)
                if row.cancel_requested:
                    cancel.add(c.id)
            return ExtendAnswer(frozenset(held), frozenset(cancel))

    def targets(
        self, jobs: Collection[JobId], kinds: Collection[str]
    ) -> Mapping[JobId, TargetName]:
        db = self._db
        with db.transaction("targets"):
            found = {}
            for job in jobs:
                if (row := db.jobs.get(job)) is not None:
                    target = json.loads(row.definitions[row.version])["target"]
                    (kind,) = target
                    if kind in kinds:
                        found[job] = TargetName(kind, target.get("task", {}).get("name", ""))
            return found

    def asked_to_stop(self, launches: Sequence[tuple[LaunchId, datetime]]) -> frozenset[LaunchId]:
        db = self._db
        with db.transaction("asked_to_stop"):
            return frozenset(
                launch
                for launch, _ in launches
                if launch in db.launches and db.launches[launch].cancel_requested
            )

    def owed(self, launches: Sequence[tuple[LaunchId, datetime]]) -> Sequence[OwedLetter]:
        db = self._db
        with db.transaction("owed"):
            rows = [db.launches[x] for x, _ in launches if x in db.launches]
            return [db.letter(x) for x in rows if x.dlq_owed]

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        with self._db.transaction("settle"):
            return self._db.settle(letters)

    def keep_undecodable(self, letter: UndecodableLetter, queue: str) -> None:
        del queue
        with self._db.transaction("keep_undecodable"):
            self._db.undecodable[letter.id] = letter

    def close(self) -> None:
        """Nothing to give back."""


def _check(e: Finish) -> None:
    """What the real one does not take."""
    try:
        json.loads(e.result, parse_constant=_no_json)
        e.outcome.encode(), e.message.encode(), e.body.encode()
    except ValueError as error:
        raise TickrailError(f"the database refuses a statement: {error}") from error


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _why_not(row: LaunchRow, asked: int, now: datetime) -> str | None:
    """Why a claim is refused; None: it is granted."""
    if row.state in (State.CANCELLED, State.EXPIRED):
        return row.state.value
    if row.state in WAITING and row.attempt == asked:
        if row.due_at > now:
            return "early"
        late = row.attempt == 1 and row.start_before is not None and row.start_before <= now
        return "expired" if late else None
    if row.state is State.RUNNING and row.attempt == asked:
        return "duplicate"
    return "stale" if asked < row.attempt else "ended"


def _claimed(db: MemoryDatabase, row: LaunchRow) -> Claimed:
    assert row.claim is not None
    return Claimed(
        row.id, row.scheduled_at, row.job_id, row.job_version, row.tenant_id, row.partition,
        row.queue, row.attempt, row.failures, row.max_attempts, row.rerun, row.visibility,
        row.due_at, Claim(row.claim), db.jobs[row.job_id].definitions[row.job_version],
        None if row.payload is None else json.dumps(row.payload), row.redrive_count, row.origin,
    )  # fmt: skip

"""The port `WorkerStore` on PostgreSQL: claim, extend, finish."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from tickrail.core.clock import Clock
from tickrail.core.errors import TickrailError
from tickrail.core.ids import Claim, JobId, LaunchId
from tickrail.core.messages import UndecodableLetter
from tickrail.core.ports import LostClaim, OwedLetter
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
from tickrail.core.verdict import Verdict
from tickrail.store.failures import follow_up, hold_jobs
from tickrail.store.fence import advance_claims
from tickrail.store.installation import waits_for_standby
from tickrail.store.limits import ask, leave, place
from tickrail.store.queries import load
from tickrail.store.session import Cursor, DatabaseSettings, Session, SessionPool

_SQL = load("worker")
WAKE_CHANNEL = "tickrail_wake"
_TIMEOUT = 10.0
"""Seconds for a claim or a finish; rows are waited for, and an owner holds them for 2 s at most."""
_KEPT_BYTES = 64 * 1024
"""How much is kept of a message that cannot be read."""
_EXTEND_TIMEOUT = 5.0
"""And for an extension, which must be tried again before the claim ends."""


class EndRow(NamedTuple):
    """An attempt that ended otherwise than by success, as the statement takes it."""

    id: LaunchId
    scheduled_at: datetime
    claim: Claim
    expires_at: datetime | None
    verdict: Verdict
    outcome: str
    certain: bool
    code: int | None
    message: str
    body: str
    result: str


def lost_end(lost: LostClaim, verdict: Verdict) -> EndRow:
    """The end of an attempt whose worker did not extend its claim."""
    return EndRow(
        lost.id,
        lost.scheduled_at,
        lost.claim,
        lost.expires_at,
        verdict,
        "worker_lost",
        certain=False,
        code=None,
        message=f"worker {lost.worker} did not extend its claim",
        body="",
        result='{"outcome":"worker_lost"}',
    )


def end_attempts(cursor: Cursor, ends: Sequence[EndRow]) -> Mapping[LaunchId, State]:
    """Apply verdicts; the state of each launch that this changed."""
    if not ends:
        return {}
    rows = cursor.execute(
        _SQL["end_attempts"],
        {
            "id": [e.id for e in ends],
            "scheduled_at": [e.scheduled_at for e in ends],
            "claim": [e.claim for e in ends],
            "expires_at": [e.expires_at for e in ends],
            "state": [e.verdict.state.value for e in ends],
            "attempt": [e.verdict.attempt for e in ends],
            "failures": [e.verdict.failures for e in ends],
            "delay": [e.verdict.delay.total_seconds() for e in ends],
            "owed": [e.verdict.dlq_owed for e in ends],
            "outcome": [e.outcome for e in ends],
            "certain": [e.certain for e in ends],
            "code": [e.code for e in ends],
            "message": [e.message.replace("\x00", "\ufffd") for e in ends],
            "body": [e.body.replace("\x00", "\ufffd") for e in ends],
            "result": [e.result for e in ends],
        },
    ).fetchall()
    return {cast("LaunchId", row[0]): State(cast("str", row[1])) for row in rows}


def note_stale(cursor: Cursor, ends: Sequence[Finish]) -> None:
    """Keep results that came under claims that are over, beside the attempts they were of."""
    cursor.execute(
        _SQL["note_stale"],
        {
            "id": [e.id for e in ends],
            "scheduled_at": [e.scheduled_at for e in ends],
            "claim": [e.claim for e in ends],
            "attempt": [e.attempt for e in ends],
            "outcome": [e.outcome for e in ends],
            "certain": [e.certain for e in ends],
            "code": [e.code for e in ends],
            "message": [e.message.replace("\x00", "\ufffd") for e in ends],
            "body": [e.body.replace("\x00", "\ufffd") for e in ends],
        },
    )


def settle(cursor: Cursor, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
    """Record that these dead letters are published; how many were owed."""
    if not letters:
        return 0
    cursor.execute(
        _SQL["settle"],
        {
            "id": [x[0] for x in letters],
            "scheduled_at": [x[1] for x in letters],
            "attempt": [x[2] for x in letters],
        },
    )
    return cursor.rowcount


class PostgresWorkerStore:
    """What a worker does in the database. Safe to use from several threads.

    Claims, finishes and extensions have a session each, so that none waits for another: a worker
    that cannot finish because its claims hold every connection would never get free.

    A failover ends connections, and may lose the last claims with their numbers. So each new
    connection for claims moves the sequence on to the clock: no number is given twice.
    """

    def __init__(
        self,
        settings: DatabaseSettings,
        clock: Clock,
        *,
        written: Callable[[str], None] = lambda _: None,
    ) -> None:
        """A store that opens its connections at first use.

        Args:
            settings: the engine role's.
            clock: makes the ids of audit entries.
            written: called in the transaction of `claim` and `finish`, with this name, when
                everything is written and nothing is committed.
        """
        self._written = written
        self._clock = clock
        usual = replace(settings, statement_timeout=_TIMEOUT, idle_timeout=_TIMEOUT)
        soon = replace(settings, statement_timeout=_EXTEND_TIMEOUT, idle_timeout=_EXTEND_TIMEOUT)
        self._claims = Session(usual, on_open=self._opened)
        self._ends = SessionPool(usual, 2)
        self._extensions = Session(soon)
        self._looks = Session(soon)
        self.synchronous_standby = False
        """Whether commits wait for a standby, as the last new connection for claims saw it."""

    def _opened(self, cursor: Cursor) -> None:
        advance_claims(cursor)
        self.synchronous_standby = waits_for_standby(cursor)

    def claim(self, requests: Sequence[ClaimRequest], worker: str) -> ClaimAnswer:
        """Claim what can start now; for the rest, why not."""
        with self._claims.transaction() as cursor:
            asked = ask(cursor, requests)
            refused = {} if asked is None else {i: r.reason for i, r in asked.refused.items()}
            # What could not start a moment ago may start now: it has not been asked for, though.
            may = requests if asked is None else [r for r in requests if r.id in asked.granted]
            rows = cursor.execute(
                _SQL["claim"],
                {
                    "id": [r.id for r in may],
                    "scheduled_at": [r.scheduled_at for r in may],
                    "attempt": [r.attempt for r in may],
                    "worker": worker,
                },
            ).fetchall()
            granted = [Claimed(*cast("Any", row[:-1])) for row in rows]
            now = cast("datetime", rows[0][-1]) if rows else _now(cursor)
            if asked is not None:
                place(cursor, asked, granted)
                granted = [c._replace(limited=bool(asked.granted.get(c.id))) for c in granted]
            got = {c.id for c in granted}
            if rest := [r for r in requests if r.id not in got and r.id not in refused]:
                refused |= _why_refused(cursor, rest)
            self._written("claim")
        return ClaimAnswer(now, granted, refused)

    def finish(self, ends: Sequence[Finish]) -> FinishAnswer:
        """Record the ends of attempts: where the launch is running under this claim."""
        good = [e for e in ends if e.verdict.state is State.SUCCEEDED]
        bad = [e for e in ends if e.verdict.state is not State.SUCCEEDED]
        states: dict[LaunchId, State] = {}
        dying = [(e.id, e.scheduled_at) for e in bad if e.verdict.dlq_owed]
        with self._ends.transaction() as cursor:
            concerned = hold_jobs(cursor, dying, wait=True)
            if good and bad:
                keys = {"id": [e.id for e in ends], "scheduled_at": [e.scheduled_at for e in ends]}
                cursor.execute(_SQL["lock_running"], keys)
            if good:
                rows = cursor.execute(
                    _SQL["succeed"],
                    {
                        "id": [e.id for e in good],
                        "scheduled_at": [e.scheduled_at for e in good],
                        "claim": [e.claim for e in good],
                        "result": [e.result for e in good],
                    },
                ).fetchall()
                states.update((cast("LaunchId", row[0]), State.SUCCEEDED) for row in rows)
            states.update(
                end_attempts(
                    cursor,
                    [
                        EndRow(
                            e.id,
                            e.scheduled_at,
                            e.claim,
                            None,
                            e.verdict,
                            e.outcome,
                            e.certain,
                            e.code,
                            e.message,
                            e.body,
                            e.result,
                        )
                        for e in bad
                    ],
                )
            )
            late = [e for e in ends if e.id not in states]
            if late:
                note_stale(cursor, late)
            left = [(e.id, e.scheduled_at) for e in ends if e.limited and e.id in states]
            leave(cursor, left)
            if left or any(e.wakes for e in ends):
                cursor.execute("select pg_notify(%s, '')", [WAKE_CHANNEL])
            follow_up(cursor, self._clock, concerned, states)
            self._written("finish")
        return FinishAnswer(states, [e.id for e in late])

    def extend(self, claims: Sequence[Extension], ceiling: timedelta) -> ExtendAnswer:
        """Keep claims for longer; refused for a run that began more than `ceiling` ago."""
        with self._extensions.transaction() as cursor:
            rows = cast(
                "list[tuple[LaunchId, bool]]",
                cursor.execute(
                    _SQL["extend"],
                    {
                        "id": [c.id for c in claims],
                        "scheduled_at": [c.scheduled_at for c in claims],
                        "claim": [c.claim for c in claims],
                        "visibility": [c.visibility for c in claims],
                        "ceiling": ceiling,
                    },
                ).fetchall(),
            )
        return ExtendAnswer(frozenset(r[0] for r in rows), frozenset(r[0] for r in rows if r[1]))

    def targets(
        self, jobs: Collection[JobId], kinds: Collection[str]
    ) -> Mapping[JobId, TargetName]:
        """The targets of those of these jobs that have one of these kinds, as defined now."""
        with self._claims.statement() as cursor:
            rows = cursor.execute(
                _SQL["targets"], {"id": list(jobs), "kinds": list(kinds)}
            ).fetchall()
        return {row[0]: TargetName(row[1], row[2]) for row in cast("Any", rows)}

    def asked_to_stop(self, launches: Sequence[tuple[LaunchId, datetime]]) -> frozenset[LaunchId]:
        """Those of these running launches whose cancel was asked for."""
        with self._extensions.transaction() as cursor:
            rows = cursor.execute(
                _SQL["asked_to_stop"],
                {"id": [x[0] for x in launches], "scheduled_at": [x[1] for x in launches]},
            ).fetchall()
        return frozenset(cast("LaunchId", row[0]) for row in rows)

    def owed(self, launches: Sequence[tuple[LaunchId, datetime]]) -> Sequence[OwedLetter]:
        """The dead letters that these launches owe."""
        with self._ends.transaction() as cursor:
            rows = cursor.execute(
                _SQL["letters_of"],
                {
                    "id": [x[0] for x in launches],
                    "scheduled_at": [x[1] for x in launches],
                },
            ).fetchall()
        letters = [OwedLetter(*cast("Any", row)) for row in rows]
        return [x._replace(state=State(x.state)) for x in letters]

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        """Record that the dead letter of (launch, scheduled instant, attempt) is published."""
        with self._ends.transaction() as cursor:
            return settle(cursor, letters)

    def keep_undecodable(self, letter: UndecodableLetter, queue: str) -> None:
        """Record a message that cannot be read, its first 64 KiB; a second time changes nothing."""
        with self._ends.transaction() as cursor:
            cursor.execute(
                _SQL["keep_undecodable"],
                {
                    "id": letter.id,
                    "queue": queue,
                    "topic": letter.topic,
                    "partition": letter.partition,
                    "offset": letter.offset,
                    "value": letter.raw[:_KEPT_BYTES],
                    "size": len(letter.raw),
                    "error": letter.error[:1000].replace("\x00", "\ufffd"),
                },
            )

    def trouble(self) -> Mapping[str, str]:
        """What keeps the database from serving, in words; empty when nothing does."""
        try:
            with self._looks.transaction() as cursor:
                cursor.execute("select 1")
        except TickrailError as e:
            return {"postgresql": str(e)}
        return {}

    def close(self) -> None:
        """Give the connections back."""
        self._looks.close()
        self._claims.close()
        self._ends.close()
        self._extensions.close()


def _now(cursor: Cursor) -> datetime:
    row = cursor.execute("select clock_timestamp()").fetchone()
    return cast("datetime", row[0] if row else None)


def _why_refused(cursor: Cursor, requests: Sequence[ClaimRequest]) -> dict[LaunchId, str]:
    rows = cursor.execute(
        _SQL["states"],
        {
            "id": [r.id for r in requests],
            "scheduled_at": [r.scheduled_at for r in requests],
        },
    ).fetchall()
    found = {row[0]: row[1:] for row in cast("Any", rows)}
    why: dict[LaunchId, str] = {}
    for r in requests:
        if r.id not in found:
            why[r.id] = "unknown"
            continue
        state, attempt, early, late = found[r.id]
        why[r.id] = _reason(State(state), r.attempt, attempt, early=early, late=late)
    return why


def _reason(state: State, asked: int, attempt: int, *, early: bool, late: bool) -> str:
    """Why a claim was refused, from the row as it is."""
    if state in (State.CANCELLED, State.EXPIRED):
        return state.value
    if state in (State.DUE, State.QUEUED) and asked == attempt:
        return "early" if early else "expired" if late else "duplicate"
    if state is State.RUNNING and asked == attempt:
        return "duplicate"
    return "stale" if asked < attempt else "ended"

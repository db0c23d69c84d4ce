"""Pausing a job and letting it go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from tickrail.core.catch_up import CatchUp, read_bounds
from tickrail.core.documents import Reader
from tickrail.core.errors import ConflictError
from tickrail.core.job_filter import JobState
from tickrail.core.plan import plan_resume
from tickrail.core.policies import Misfire
from tickrail.core.ports_api import JobRecord, JobRef, SkippedRun, Transaction
from tickrail.engine.job_rules import (
    ANY,
    PAUSED,
    JobRules,
    Precondition,
    check_version,
    pause_note,
    plan_of,
    require,
    situation,
    within_history,
)


class InFlight(StrEnum):
    """What a pause does to open launches."""

    FINISH = "finish"
    CANCEL = "cancel"


class Passed(StrEnum):
    """What a resume does about the slots that passed; the third choice is a bound."""

    NONE = "none"
    POLICY = "policy"


MAX_SKIP = 1000
"""So many slots can be left out by hand."""


class Pauses:
    """The use cases."""

    def __init__(self, rules: JobRules) -> None:
        self._rules = rules

    def pause(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> JobRecord:
        """Pause a job, perhaps until an instant; pausing again changes until and reason.

        Raises:
            NotFoundError, PreconditionFailedError, InvalidInputError: as above.
            ConflictError: the job is finished or deleted.
        """
        reader = Reader({} if document is None else document)
        until = reader.instant("until")
        reason = reader.text("reason", "", maximum=1000) or ""
        in_flight = reader.choice("in_flight", InFlight.FINISH)
        if until is not None and until <= tx.now:
            reader.problem("until", "is in the past", "an instant to come, or leave it out")
        reader.finish("pause")
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        if job.state not in (JobState.ACTIVE, JobState.PAUSED):
            raise ConflictError(f"The job is {job.state}; only an active job can be paused.")
        paused = replace(
            job,
            state=JobState.PAUSED,
            paused=pause_note(tx, until, reason),
            updated_at=tx.now,
        )
        tx.jobs.move(paused, resume_at=until)
        if in_flight is InFlight.CANCEL:
            tx.launches.cancel_open([job.id], running=True)
        tx.audit("job.pause", f"job:{job.id}", _told(job), _told(paused))
        tx.wake_schedulers()
        return paused

    def resume(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> JobRecord:
        """Let a paused job go on; an active one stays as it is.

        `catch_up` none: slots that passed are recorded as skipped. policy: the misfire policy
        decides on them. An object (`max_count`, `max_age`, `order`, `per_minute`): they are
        launched within these bounds, and the others recorded.

        Raises:
            NotFoundError, PreconditionFailedError, InvalidInputError: as above.
            ConflictError: the job is finished or deleted.
        """
        reader = Reader({} if document is None else document)
        choice, bounds = _catch_up(reader)
        reader.finish("resume")
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        if job.state is JobState.ACTIVE:
            return job
        if job.state is not JobState.PAUSED:
            raise ConflictError(f"The job is {job.state}; only a paused job can be resumed.")
        resumed = replace(job, state=JobState.ACTIVE, paused=None, updated_at=tx.now)
        if bounds is not None:
            resumed = replace(resumed, catch_up=CatchUp(tx.now, bounds).document())
        elif choice is Passed.NONE and job.next_run_at is not None:
            decision = plan_resume(plan_of(tx, job), situation(job), tx.now)
            skips = [SkippedRun(s.reason.value, s.first, s.last, s.count) for s in decision.skipped]
            tx.jobs.insert_skips(job.id, within_history(skips, PAUSED, tx.now, self._rules.history))
            resumed = replace(
                resumed,
                state=JobState.FINISHED if decision.wake_at is None else JobState.ACTIVE,
                next_run_at=decision.wake_at,
                last_slot_at=decision.last_slot,
            )
        tx.jobs.move(resumed)
        after = {**_told(resumed), "catch_up": resumed.catch_up or choice}
        tx.audit("job.resume", f"job:{job.id}", _told(job), after)
        tx.wake_schedulers()
        return resumed

    def skip_next(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> JobRecord:
        """Leave out the next n slots, in place of what was said before; 0 takes it back.

        Slots of a pause do not count: they are recorded as such.

        Raises:
            NotFoundError, PreconditionFailedError, InvalidInputError: as above.
            ConflictError: the job has no slots to come.
        """
        reader = Reader(document)
        if not reader.has("n"):
            reader.problem("n", "is missing", f"0 to {MAX_SKIP}")
        count = reader.whole("n", 1, low=0, high=MAX_SKIP)
        reader.finish("skip")
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        if job.state not in (JobState.ACTIVE, JobState.PAUSED):
            raise ConflictError(f"The job is {job.state}; it has no slots to leave out.")
        if job.definition["schedule"] is None:
            raise ConflictError("The job has no schedule; it has no slots to leave out.")
        after = replace(job, skip_next=count, updated_at=tx.now)
        until = None if job.paused is None else job.paused.get("until")
        tx.jobs.move(after, resume_at=None if until is None else datetime.fromisoformat(until))
        tx.audit("job.skip_next", f"job:{job.id}", {"n": job.skip_next}, {"n": count})
        return after


def _told(job: JobRecord) -> dict[str, Any]:
    """What the audit log keeps of a pause."""
    return {"state": job.state.value, "paused": job.paused}


def _catch_up(reader: Reader) -> tuple[Passed, Misfire | None]:
    """The choice, or the bounds."""
    if not isinstance(reader.raw("catch_up"), dict):
        return reader.choice("catch_up", Passed.NONE), None
    inner = reader.child("catch_up")
    bounds = read_bounds(inner)
    reader.absorb(inner)
    return Passed.POLICY, bounds

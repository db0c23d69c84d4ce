"""Pausing a job and letting it go on."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from tickrail.core.definition import parse_plan
from tickrail.core.documents import Reader
from tickrail.core.errors import ConflictError
from tickrail.core.plan import plan_resume
from tickrail.core.ports_api import JobRecord, JobRef, JobState, SkippedRun, Transaction
from tickrail.engine.job_rules import (
    ANY,
    PAUSED,
    JobRules,
    Precondition,
    check_version,
    pause_note,
    require,
    situation,
    within_history,
)


class InFlight(StrEnum):
    """What a pause does to open launches."""

    FINISH = "finish"
    CANCEL = "cancel"


class CatchUp(StrEnum):
    """What a resume does about the slots that passed."""

    NONE = "none"
    POLICY = "policy"


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
            tx.launches.cancel_open(job.id, running=True)
        tx.audit("job.pause", f"job:{job.id}", None, paused.paused)
        tx.wake_schedulers()
        return paused

    def resume(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> JobRecord:
        """Let a paused job go on; an active one stays as it is.

        `catch_up` none: slots that passed are recorded as skipped. policy: the misfire policy
        decides on them.

        Raises:
            NotFoundError, PreconditionFailedError, InvalidInputError: as above.
            ConflictError: the job is finished or deleted.
        """
        reader = Reader({} if document is None else document)
        catch_up = reader.choice("catch_up", CatchUp.NONE)
        reader.finish("resume")
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        if job.state is JobState.ACTIVE:
            return job
        if job.state is not JobState.PAUSED:
            raise ConflictError(f"The job is {job.state}; only a paused job can be resumed.")
        resumed = replace(job, state=JobState.ACTIVE, paused=None, updated_at=tx.now)
        if catch_up is CatchUp.NONE and job.next_run_at is not None:
            plan = parse_plan(job.plan, job=job.id, now=tx.now)
            decision = plan_resume(plan, situation(job), tx.now)
            skips = [SkippedRun(PAUSED, s.first, s.last, s.count) for s in decision.skipped]
            tx.jobs.insert_skips(job.id, within_history(skips, PAUSED, tx.now, self._rules.history))
            resumed = replace(
                resumed,
                state=JobState.FINISHED if decision.wake_at is None else JobState.ACTIVE,
                next_run_at=decision.wake_at,
                last_slot_at=decision.last_slot,
            )
        tx.jobs.move(resumed)
        tx.audit("job.resume", f"job:{job.id}", job.paused, {"catch_up": catch_up.value})
        tx.wake_schedulers()
        return resumed

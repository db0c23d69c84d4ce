"""A job's saved definitions, and what was deleted: how to have them back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tickrail.core.calendar_moves import undecided
from tickrail.core.errors import ConflictError, NotFoundError
from tickrail.core.job_filter import JobState
from tickrail.core.plan import first_due, plan_resume
from tickrail.core.ports_api import JobRecord, JobRef, JobVersion, SkippedRun, Transaction
from tickrail.engine.job_checks import check_surroundings, name_taken
from tickrail.engine.job_rules import (
    ANY,
    PAUSED,
    SKIPPED_BY_HAND,
    JobRules,
    Precondition,
    check_version,
    plan_of,
    require,
    resolve,
    situation,
    within_history,
)
from tickrail.engine.jobs import Jobs
from tickrail.engine.quotas import admit_job, check_definition, note_job

KEPT: Final = timedelta(days=30)
"""For so long a deleted job can be had back."""


class JobVersions:
    """The use cases."""

    def __init__(self, jobs: Jobs, rules: JobRules) -> None:
        self._jobs = jobs
        self._rules = rules

    def find(self, tx: Transaction, ref: JobRef, version: int) -> JobVersion:
        """A saved definition of a job, a deleted one's too.

        Raises:
            NotFoundError: there is no such job, or it has no such version.
        """
        job = require(tx, ref)
        found = tx.jobs.version(job.id, version)
        if found is None:
            raise NotFoundError(
                f"The job has no version {version}; its versions are 1 to {job.version}."
            )
        return found

    def restore(
        self, tx: Transaction, ref: JobRef, version: int, wanted: Precondition = ANY
    ) -> JobRecord:
        """Give a job the definition of one of its versions, as a new version.

        The definition that it has already changes nothing. State and history stay: what a restored
        schedule makes of them is what any change of a schedule makes of them.

        Raises:
            NotFoundError: as for `find`.
            PreconditionFailedError, ConflictError, NameTakenError, InvalidInputError: as for a
                change: what the old definition names may be gone.
        """
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        found = self.find(tx, job.id, version)
        return self._jobs.change(tx, job, dict(found.definition), "job.restore")

    def undelete(self, tx: Transaction, ref: JobRef, wanted: Precondition = ANY) -> JobRecord:
        """Have a deleted job back: it goes on from now, as a new version of what it was.

        Slots that passed meanwhile are recorded as skipped. A job that was paused is paused. A
        name means the job of that name which was deleted last.

        Raises:
            NotFoundError, PreconditionFailedError: as above.
            ConflictError: it is not deleted, or for too long.
            NameTakenError: a live job has its name by now.
            InvalidInputError: what its definition names is gone, or a quota does not allow it.
            QuotaExceededError: the tenant has as many jobs as it may have.
        """
        job = tx.jobs.find(ref, lock=True)
        if job is None and isinstance(ref, str):
            job = tx.jobs.find_deleted(ref, lock=True)
        if job is None:
            job = require(tx, ref)
        check_version(tx, job, wanted)
        if job.state is not JobState.DELETED or job.deleted_at is None:
            raise ConflictError(f"The job is {job.state}, not deleted.")
        if job.deleted_at < tx.now - KEPT:
            raise ConflictError(f"The job was deleted more than {KEPT.days} days ago.")
        if tx.jobs.find(job.name) is not None:
            raise name_taken(job.name)
        definition = self._jobs.parse_over(job, dict(job.definition), tx.now)
        check_surroundings(tx, definition, self._rules.topic_prefix)
        check_definition(tx, definition, resolve(tx, definition.plan, lock=True))
        admit_job(tx)
        after = self._going_on(tx, job)
        tx.jobs.replace(after, definition, tx.actor)
        tx.jobs.move(after, _until(after))
        note_job(tx)
        tx.audit("job.undelete", f"job:{job.id}", None, after.definition)
        tx.wake_schedulers()
        return after

    def _going_on(self, tx: Transaction, job: JobRecord) -> JobRecord:
        """The job from now on; its slots that passed are recorded."""
        plan = plan_of(tx, job)
        last_slot = job.last_slot_at
        begin = undecided(plan, max(last_slot or job.created_at, job.created_at))
        due = first_due(plan, job.id, begin)
        if due is not None and due <= tx.now:
            passed = plan_resume(plan, situation(replace(job, next_run_at=due)), tx.now)
            runs = [SkippedRun(s.reason.value, s.first, s.last, s.count) for s in passed.skipped]
            why = SKIPPED_BY_HAND if job.paused is None else PAUSED
            tx.jobs.insert_skips(job.id, within_history(runs, why, tx.now, self._rules.history))
            last_slot = passed.last_slot
        if plan.allowance is not None:
            last_slot = max(last_slot or tx.now, tx.now)
        next_run_at = first_due(plan, job.id, undecided(plan, max(last_slot or tx.now, tx.now)))
        over = plan.schedule is not None and next_run_at is None
        if plan.max_launches is not None and job.launched >= plan.max_launches:
            over, next_run_at = True, None
        until = _until(job)
        paused = None if until is not None and until <= tx.now else job.paused
        state = JobState.ACTIVE if paused is None else JobState.PAUSED
        return replace(
            job,
            version=job.version + 1,
            state=JobState.FINISHED if over else state,
            paused=None if over else paused,
            next_run_at=next_run_at,
            last_slot_at=last_slot,
            defined_at=tx.now,
            updated_at=tx.now,
            deleted_at=None,
            catch_up=None,
            awaits=False,
            error=None,
        )


def _until(job: JobRecord) -> datetime | None:
    """When the job's pause ends by itself."""
    until = None if job.paused is None else job.paused.get("until")
    return None if until is None else datetime.fromisoformat(until)

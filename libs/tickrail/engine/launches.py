"""Launches by hand: trigger, cancel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from tickrail.core.clock import Clock
from tickrail.core.definition import parse_plan, payload_problems
from tickrail.core.documents import Reader
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OverlapError,
    Problem,
)
from tickrail.core.ids import LaunchId, launch_id, uuid7
from tickrail.core.job_filter import JobState
from tickrail.core.plan import MAX_BUFFERED
from tickrail.core.policies import Overlap
from tickrail.core.ports_api import (
    AttemptRecord,
    JobRecord,
    JobRef,
    ManualLaunch,
    Transaction,
)
from tickrail.core.ports_tracing import NO_TRACER, Tracer
from tickrail.core.records import LaunchRecord
from tickrail.core.states import TERMINAL, State
from tickrail.engine.job_rules import ANY, Precondition, check_version, require
from tickrail.engine.quotas import check_payload, hold_launches, note_launch


def require_launch(tx: Transaction, launch: LaunchId) -> LaunchRecord:
    """The launch.

    Raises:
        NotFoundError: this tenant has no such launch.
    """
    found = tx.launches.find(launch)
    if found is None:
        raise NotFoundError(f"There is no launch with the id {launch}.")
    return found


def attempts_of(
    tx: Transaction, launch: LaunchRecord, after: int, limit: int
) -> list[AttemptRecord]:
    """Attempts with numbers above `after`: those that ended, and the present or last one."""
    found = list(tx.launches.attempts(launch, after, limit))
    shows = launch.state in (State.RUNNING, State.SUCCEEDED)
    if shows and after < launch.attempt and len(found) < limit:
        done = launch.state is State.SUCCEEDED
        result = launch.result or {}
        found.append(
            AttemptRecord(
                attempt=launch.attempt,
                outcome=result.get("outcome", "succeeded") if done else None,
                certain=True if done else None,
                code=result.get("code") if done else None,
                message=result.get("message", "") if done else "",
                body=result.get("body", "") if done else "",
                worker=launch.worker,
                claim=launch.claim,
                started_at=launch.started_at,
                finished_at=launch.finished_at,
            )
        )
    return found


class Launches:
    """The use cases of launches."""

    def __init__(self, clock: Clock, tracer: Tracer = NO_TRACER) -> None:
        self._clock = clock
        self._tracer = tracer

    def trigger(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> LaunchRecord:
        """Launch a job now. It obeys the overlap policy, or the one given, and ignores a pause.

        Its scheduled instant is the present whole second; its origin makes its key another than
        that of a slot at the same second, and than that of another trigger.

        Raises:
            NotFoundError: no such job.
            ConflictError: the job is deleted.
            OverlapError: another launch is open and the policy leaves no room.
            InvalidInputError: the document is not valid.
            RateLimitedError: the tenant has launched as much as it may.
        """
        job = require(tx, ref, lock=True)
        check_version(tx, job, wanted)
        if job.state is JobState.DELETED:
            raise ConflictError("The job is deleted.")
        plan = parse_plan(job.plan, job=job.id, now=tx.now)
        reader = Reader({} if document is None else document)
        priority = reader.choice("priority", plan.priority)
        overlap = reader.choice("overlap", plan.overlap)
        has_payload = isinstance(document, dict) and "payload" in document
        payload = reader.raw("payload")
        reader.problems.extend(payload_problems(payload))
        copy_of = reader.text("copy_of", maximum=64)
        if copy_of is not None and has_payload:
            reader.problem("copy_of", "stands beside a payload", "one of the two")
        reader.finish("trigger")
        if copy_of is not None:
            has_payload, payload = _copy(tx, job, copy_of)
        if has_payload:
            check_payload(tx, payload)
        held = hold_launches(tx)
        state = _apply_overlap(tx, job, overlap)
        scheduled_at = tx.now.replace(microsecond=0)
        origin = f"manual:{uuid7(self._clock)}"
        manual = ManualLaunch(
            id=launch_id(job.id, scheduled_at, origin),
            scheduled_at=scheduled_at,
            origin=origin,
            state=state,
            version=job.version,
            plan=plan,
            priority=priority.rank,
            payload=payload,
            has_payload=has_payload,
        )
        with self._tracer.child(
            "launch record",
            launch=str(manual.id),
            job=str(job.id),
            job_name=job.name,
            tenant=str(tx.tenant),
        ) as span:
            launch = tx.launches.insert(job, replace(manual, trace=span.traceparent))
        note_launch(tx, held)
        tx.audit("job.trigger", f"job:{job.id}", None, {"launch": str(launch.id)})
        tx.wake_schedulers()
        return launch

    def cancel(self, tx: Transaction, launch: LaunchId) -> LaunchRecord:
        """Cancel a launch; a running one is asked to stop. Cancelling again changes nothing.

        Raises:
            NotFoundError: no such launch.
            ConflictError: it has ended otherwise.
        """
        before = tx.launches.find(launch, lock=True)
        changed = tx.launches.cancel(launch)
        if changed is None:
            there = require_launch(tx, launch)
            if there.state is not State.CANCELLED:
                raise ConflictError(f"The launch has ended: it is {there.state}.")
            return there
        tx.audit("launch.cancel", f"launch:{launch}", _told(before), _told(changed))
        tx.wake_schedulers()
        return changed


def _copy(tx: Transaction, job: JobRecord, text: str) -> tuple[bool, Any]:
    """The payload of an ended launch of the job."""
    try:
        found = tx.launches.find(LaunchId(UUID(text)))
    except ValueError:
        found = None
    if found is None or found.job != job.id or found.state not in TERMINAL:
        problem = Problem(
            "/copy_of", "is no launch to copy", "the id of an ended launch of the job"
        )
        raise InvalidInputError("The trigger is not valid.", [problem])
    own, payload = tx.launches.payload_of(found.id)
    if own:
        return True, payload
    then = tx.jobs.definition_of(job.id, found.job_version)
    return True, None if then is None else then.get("payload")


def _apply_overlap(tx: Transaction, job: JobRecord, policy: Overlap) -> State:
    """In which state a new launch begins; asks the open ones to stop where the policy says so."""
    if policy is Overlap.ALLOW:
        return State.DUE
    others = tx.launches.open_of(job.id)
    if not others.open:
        return State.DUE
    if policy is Overlap.TERMINATE_OTHER:
        tx.launches.terminate_open(job.id)
        return State.DUE
    if policy is Overlap.CANCEL_OTHER:
        tx.launches.cancel_open([job.id], running=True)
        return State.HELD
    room = {Overlap.SKIP: 0, Overlap.BUFFER_ONE: 1, Overlap.BUFFER_ALL: MAX_BUFFERED}[policy]
    if others.held < room:
        return State.HELD
    raise OverlapError(
        f"{others.open} launch{'es' if others.open > 1 else ''} of this job"
        f" {'are' if others.open > 1 else 'is'} open and its overlap policy is {policy}."
    )


def _told(launch: LaunchRecord | None) -> dict[str, object] | None:
    """What the audit log keeps of a launch that is cancelled."""
    if launch is None:
        return None
    return {"state": launch.state.value, "cancel_requested": launch.cancel_requested}

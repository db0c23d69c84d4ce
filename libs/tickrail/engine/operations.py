"""Pause and resume for all jobs of a filter: asked for, carried out in batches, cancelled.

A batch is one transaction: it locks the operation, then its jobs in id order, does to each what the
use case of one job does, and moves the position. A crash before the commit repeats the batch, after
it the next one follows. Whoever works at an operation holds it for a while; two that do so by
mistake take turns by the row's lock, and the position keeps either from repeating the other's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import structlog

from tickrail.core.clock import Clock
from tickrail.core.definition import NAME, TAG_KEY
from tickrail.core.documents import Reader, nearest, text_problem
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    Problem,
    SetupError,
    TickrailError,
    UnavailableError,
)
from tickrail.core.ids import JobId, TenantId, uuid7
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.ports_api import JobRecord, OperationQueue, Transaction
from tickrail.core.ports_operations import OperationRecord, OperationState
from tickrail.engine.pauses import InFlight, Pauses

log = structlog.get_logger("tickrail.operations")

BATCH = 50
"""Jobs of one transaction."""
SHOWN = 100
"""Names that a dry run shows, and errors that an operation keeps."""
HOLD = timedelta(seconds=30)
"""For so long an operation stays with the process that took it, from its last batch on."""
IDLE = 1.0
"""Seconds between two looks for work."""
_STATES = (JobState.ACTIVE, JobState.PAUSED, JobState.FINISHED)
_MOST = 20
_OURS = frozenset({"filter", "dry_run"})
_NOBODY = JobId(UUID(int=0))
_REFUSALS = (ConflictError, NotFoundError, InvalidInputError)


class Kind(StrEnum):
    """What is done to each job."""

    PAUSE = "jobs.pause"
    RESUME = "jobs.resume"


@dataclass(frozen=True, slots=True)
class OperationPreview:
    """What an operation would be about: how many jobs, and the names of the first hundred."""

    total: int
    names: Sequence[str]


class Operations:
    """The use cases."""

    def __init__(self, pauses: Pauses, clock: Clock) -> None:
        """Does to each job what `pauses` does to one."""
        self._clock = clock
        self._each: Mapping[Kind, Callable[[Transaction, JobId, object], JobRecord]] = {
            Kind.PAUSE: pauses.pause,
            Kind.RESUME: pauses.resume,
        }

    def request(
        self, tx: Transaction, kind: Kind, document: object
    ) -> OperationRecord | OperationPreview:
        """Begin an operation on all jobs of a filter, or only say on which (`dry_run`).

        `filter` must be there, `{}` for all; the other members are those for one job. Jobs that are
        made later are not touched.

        Raises:
            InvalidInputError: the document is not valid.
        """
        where, given, body, dry_run = self._read(tx, kind, document)
        total = tx.operations.count_jobs(where, tx.now)
        if dry_run:
            jobs = tx.operations.jobs(where, tx.now, None, SHOWN)
            return OperationPreview(total, [job.name for job in jobs])
        record = OperationRecord(
            id=uuid7(self._clock),
            kind=kind.value,
            state=OperationState.RUNNING,
            request={**body, "filter": given},
            created_by=tx.actor,
            created_at=tx.now,
            updated_at=tx.now,
            total=total,
        )
        tx.operations.insert(record)
        asked = {"kind": kind.value, **record.request, "total": total}
        tx.audit("operation.create", f"operation:{record.id}", None, asked)
        return record

    def cancel(self, tx: Transaction, operation: UUID) -> OperationRecord:
        """Cancel an operation: no further job is touched, what was done stays.

        Raises:
            NotFoundError: no such operation.
            ConflictError: it has ended.
        """
        found = find_operation(tx, operation, lock=True)
        if found.state is OperationState.CANCELLED:
            return found
        if found.state is not OperationState.RUNNING:
            raise ConflictError(f"The operation has ended: it is {found.state}.")
        ended = replace(
            found, state=OperationState.CANCELLED, updated_at=tx.now, finished_at=tx.now
        )
        tx.operations.update(ended, timedelta(0))
        tx.audit("operation.cancel", f"operation:{operation}", None, {"done": found.done})
        return ended

    def batch(self, tx: Transaction, operation: UUID) -> bool:
        """Do the next batch; whether there is more to do."""
        op = tx.operations.find(operation, lock=True)
        if op is None or op.state is not OperationState.RUNNING:
            return False
        body = dict(op.request)
        where = _filter(Reader(body.pop("filter")))
        # Of all jobs at once, after the loop: see `cancel_open`.
        cancels = body.get("in_flight") == InFlight.CANCEL
        if cancels:
            del body["in_flight"]
        jobs = tx.operations.jobs(where, op.created_at, op.position, BATCH)
        changed, treated, errors = 0, [], []
        for job in jobs:
            try:
                after = self._each[Kind(op.kind)](tx, job.id, body)
            except _REFUSALS as e:
                named = {"id": str(job.id), "name": job.name}
                errors.append({"job": named, "code": e.code, "detail": str(e)[:500]})
            else:
                changed += after.updated_at == tx.now
                treated.append(job.id)
        if cancels and treated:
            tx.launches.cancel_open(treated, running=True)
        more = len(jobs) == BATCH
        done = op.done + len(jobs)
        tx.operations.update(
            replace(
                op,
                state=OperationState.RUNNING if more else OperationState.FINISHED,
                position=jobs[-1].id if jobs else op.position,
                # Jobs that were deleted or changed meanwhile are not of the filter any more.
                total=max(op.total, done) if more else done,
                done=done,
                changed=op.changed + changed,
                failed=op.failed + len(errors),
                errors=[*op.errors, *errors][:SHOWN],
                updated_at=tx.now,
                finished_at=None if more else tx.now,
            ),
            HOLD,
        )
        return more

    def fail(self, tx: Transaction, operation: UUID, error: str) -> None:
        """End an operation that cannot go on."""
        op = tx.operations.find(operation, lock=True)
        if op is None or op.state is not OperationState.RUNNING:
            return
        entry = {"job": None, "code": "internal", "detail": error[:500]}
        failed = replace(
            op,
            state=OperationState.FAILED,
            errors=[*op.errors[: SHOWN - 1], entry],
            updated_at=tx.now,
            finished_at=tx.now,
        )
        tx.operations.update(failed, timedelta(0))

    def _read(
        self, tx: Transaction, kind: Kind, document: object
    ) -> tuple[JobFilter, Mapping[str, Any], dict[str, Any], bool]:
        """The filter, as a value and as it was sent, what is done to each job, and dry_run."""
        whole = document if isinstance(document, dict) else {}
        body = {k: v for k, v in whole.items() if k not in _OURS}
        ours = {k: v for k, v in whole.items() if k in _OURS}
        reader = Reader(ours if document is None or document == whole else document)
        dry_run = reader.flag("dry_run", default=False)
        where = JobFilter()
        if reader.has("filter"):
            child = reader.child("filter")
            where = _filter(child)
            reader.absorb(child)
        else:
            reader.problem("filter", "is missing", "which jobs; {} for all of them")
        # What is said of each job is checked by the use case itself, on a job that is not there.
        with suppress(NotFoundError):
            reader.parse(lambda: self._each[kind](tx, _NOBODY, body))
        reader.finish("operation")
        return where, ours["filter"], body, dry_run


class OperationRunner:
    """Carries out operations, one batch a turn; the body of a loop of every API process."""

    def __init__(self, queue: OperationQueue, operations: Operations) -> None:
        """Nothing is taken yet."""
        self._queue = queue
        self._operations = operations
        self._mine: tuple[UUID, TenantId, str] | None = None
        self.wake: Callable[[], None] = lambda: None
        """Called when there is new work; set by who runs the loop."""

    def run_once(self) -> float:
        """One batch; seconds until the next look.

        Raises:
            UnavailableError: the database does not answer; the batch is tried again.
        """
        if self._mine is None:
            self._mine = self._take()
        if self._mine is None:
            return IDLE
        operation, tenant, actor = self._mine
        try:
            with self._queue.tenant(tenant, actor, f"operation:{operation}") as tx:
                more = self._operations.batch(tx, operation)
        except (UnavailableError, SetupError):
            raise
        except Exception as e:
            # Whatever it is, it would be so again: the operation ends, and says why.
            log.exception("operation_failed", operation=str(operation))
            said = str(e) if isinstance(e, TickrailError) else type(e).__name__
            with self._queue.tenant(tenant, actor, f"operation:{operation}") as tx:
                self._operations.fail(tx, operation, said)
            more = False
        if not more:
            self._mine = None
        return 0.0

    def _take(self) -> tuple[UUID, TenantId, str] | None:
        taken = self._queue.take(HOLD)
        if taken is None:
            return None
        operation, tenant = taken
        with self._queue.tenant(tenant, "operation", f"operation:{operation}") as tx:
            found = tx.operations.find(operation)
        return None if found is None else (operation, tenant, found.created_by)


def find_operation(tx: Transaction, operation: UUID, *, lock: bool = False) -> OperationRecord:
    """The operation.

    Raises:
        NotFoundError: this tenant has no such operation.
    """
    found = tx.operations.find(operation, lock=lock)
    if found is None:
        raise NotFoundError(f"There is no operation with the id {operation}.")
    return found


def _filter(reader: Reader) -> JobFilter:
    tags: list[tuple[str, str | None]] = []
    for n, tag in enumerate(_texts(reader, "tag")):
        key, colon, value = tag.partition(":")
        if not TAG_KEY.fullmatch(key) or text_problem(value):
            where = f"{reader.pointer}/tag/{n}"
            expected = "key:value, or key for any value"
            reader.problems.append(Problem(where, f"is {tag[:80]!r}", expected))
        tags.append((key, value if colon else None))
    states: list[JobState] = []
    for n, state in enumerate(_texts(reader, "state")):
        if state in _STATES:
            states.append(JobState(state))
        else:
            where = f"{reader.pointer}/state/{n}"
            said = f"is {state[:60]!r}"
            reader.problems.append(Problem(where, said, nearest(state, _STATES)))
    prefix = reader.text("name_prefix", maximum=128)
    queue = reader.text("queue", pattern=NAME, expected="the name of a queue")
    return JobFilter(states, tags, prefix or None, queue)


def _texts(reader: Reader, name: str) -> list[str]:
    """An array of texts, or one text."""
    if not reader.has(name):
        return []
    raw = reader.raw(name)
    found = [raw] if isinstance(raw, str) else raw
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        reader.problem(name, "is not an array of strings", "an array of strings")
        return []
    if len(found) > _MOST:
        reader.problem(name, f"has {len(found)} entries", f"at most {_MOST}")
        return []
    return found

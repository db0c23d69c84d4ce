"""Operations: the same done to many rows, asked for, carried out in batches, cancelled.

What is done to which rows is a `Work`'s: pause and resume of jobs (`job_operations`), redrive and
purge of dead letters (`letter_operations`).

A batch is one transaction: it locks the operation, then its rows, does to each what the use case of
one does, and moves the position. A crash before the commit repeats the batch, after it the next one
follows. Whoever works at an operation holds it for a while; two that do so by mistake take turns by
the row's lock, and the position keeps either from repeating the other's work. An operation that
must wait, since a rate was asked for, is held by nobody meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import structlog

from tickrail.core.clock import Clock
from tickrail.core.documents import Reader
from tickrail.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SetupError,
    TickrailError,
    UnavailableError,
)
from tickrail.core.ids import TenantId, uuid7
from tickrail.core.ports_api import OperationQueue, Transaction
from tickrail.core.ports_letters import LetterRecord
from tickrail.core.ports_operations import OperationRecord, OperationState

log = structlog.get_logger("tickrail.operations")

BATCH = 50
"""Rows of one transaction."""
SHOWN = 100
"""Names that a dry run shows, and errors that an operation keeps."""
HOLD = timedelta(seconds=30)
"""For so long an operation stays with the process that took it, from its last batch on."""
IDLE = 1.0
"""Seconds between two looks for work."""
REFUSALS = (ConflictError, NotFoundError, InvalidInputError)
"""What one row may answer without harm to the rest."""
_MOST = 20


class Kind(StrEnum):
    """What is done to each row."""

    PAUSE = "jobs.pause"
    RESUME = "jobs.resume"
    REDRIVE = "dead_letters.redrive"
    PURGE = "dead_letters.purge"


@dataclass(frozen=True, slots=True)
class OperationPreview:
    """What an operation would be about: how many, and the first of them."""

    total: int
    names: Sequence[str] = ()
    letters: Sequence[LetterRecord] = ()


class Asked(NamedTuple):
    """A request that was read: how many rows it is about, and what is kept of it."""

    total: int
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What a batch did.

    Attributes:
        position: where the next one goes on, as JSON.
        done: rows dealt with.
        changed: those of them that were changed.
        errors: one for each row that refused.
        more: whether there may be more rows.
        wait: seconds until the next batch.
    """

    position: Any
    done: int
    changed: int
    errors: Sequence[Mapping[str, Any]]
    more: bool
    wait: float = 0.0


class Work(Protocol):
    """What operations of some kinds are about."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds."""
        ...

    def ask(self, tx: Transaction, kind: Kind, document: object) -> Asked | OperationPreview:
        """Read a request; a preview where it is a dry run.

        Raises:
            InvalidInputError: the document is not valid.
        """
        ...

    def step(self, tx: Transaction, operation: OperationRecord) -> Step:
        """The next batch; the operation's row is locked."""
        ...


class Operations:
    """The use cases."""

    def __init__(self, works: Sequence[Work], clock: Clock) -> None:
        """Use cases for the kinds of these works."""
        self._clock = clock
        self._works = {kind: work for work in works for kind in work.kinds}

    def request(
        self, tx: Transaction, kind: Kind, document: object
    ) -> OperationRecord | OperationPreview:
        """Begin an operation on all rows of a filter, or only say on which (`dry_run`).

        `filter` must be there, `{}` for all. What is made later is not touched.

        Raises:
            InvalidInputError: the document is not valid.
        """
        asked = self._works[kind].ask(tx, kind, document)
        if isinstance(asked, OperationPreview):
            return asked
        record = OperationRecord(
            id=uuid7(self._clock),
            kind=kind.value,
            state=OperationState.RUNNING,
            request=asked.request,
            created_by=tx.actor,
            created_at=tx.now,
            updated_at=tx.now,
            total=asked.total,
        )
        tx.operations.insert(record)
        note = {"kind": kind.value, **record.request, "total": asked.total}
        tx.audit("operation.create", f"operation:{record.id}", None, note)
        return record

    def cancel(self, tx: Transaction, operation: UUID) -> OperationRecord:
        """Cancel an operation: no further row is touched, what was done stays.

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
        before = {"state": found.state.value}
        after = {"state": ended.state.value, "done": found.done, "total": found.total}
        tx.audit("operation.cancel", f"operation:{operation}", before, after)
        return ended

    def batch(self, tx: Transaction, operation: UUID) -> float | None:
        """Do the next batch; seconds until the one after it, None where there is none."""
        op = tx.operations.find(operation, lock=True)
        if op is None or op.state is not OperationState.RUNNING:
            return None
        step = self._works[Kind(op.kind)].step(tx, op)
        done = op.done + step.done
        tx.operations.update(
            replace(
                op,
                state=OperationState.RUNNING if step.more else OperationState.FINISHED,
                position=step.position,
                # Rows that were changed meanwhile may not be of the filter any more.
                total=max(op.total, done) if step.more else done,
                done=done,
                changed=op.changed + step.changed,
                failed=op.failed + len(step.errors),
                errors=[*op.errors, *step.errors][:SHOWN],
                updated_at=tx.now,
                finished_at=None if step.more else tx.now,
            ),
            timedelta(seconds=step.wait) if step.wait else HOLD,
        )
        return step.wait if step.more else None

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
        wait: float | None
        try:
            with self._queue.tenant(tenant, actor, f"operation:{operation}") as tx:
                wait = self._operations.batch(tx, operation)
        except (UnavailableError, SetupError):
            raise
        except Exception as e:
            # Whatever it is, it would be so again: the operation ends, and says why.
            log.exception("operation_failed", operation=str(operation))
            said = str(e) if isinstance(e, TickrailError) else type(e).__name__
            with self._queue.tenant(tenant, actor, f"operation:{operation}") as tx:
                self._operations.fail(tx, operation, said)
            wait = None
        if wait != 0.0:
            # It has ended, or waits: another one, or another process, may have its turn.
            self._mine = None
        return 0.0 if wait is None else min(wait, IDLE)

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


def texts(reader: Reader, name: str, most: int = _MOST) -> list[str]:
    """An array of texts, or one text."""
    if not reader.has(name):
        return []
    raw = reader.raw(name)
    found = [raw] if isinstance(raw, str) else raw
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        reader.problem(name, "is not an array of strings", "an array of strings")
        return []
    if len(found) > most:
        reader.problem(name, f"has {len(found)} entries", f"at most {most}")
        return []
    return found

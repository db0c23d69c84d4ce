"""Redrive: a dead or abandoned launch begins another life.

Its id stays, so an effect that it had is not repeated by a receiver that keeps keys. Attempts are
numbered on, failures begin at 0: each life has all the attempts that the job allows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tickrail.core.dead_letters import MAX_REDRIVES
from tickrail.core.definition import parse_plan, payload_problems
from tickrail.core.documents import Reader
from tickrail.core.errors import ConflictError
from tickrail.core.ids import LaunchId
from tickrail.core.job_filter import JobState
from tickrail.core.policies import Overlap
from tickrail.core.ports_api import JobRecord, Transaction
from tickrail.core.ports_letters import Redriven
from tickrail.core.records import LaunchRecord
from tickrail.core.states import State
from tickrail.engine.job_rules import require
from tickrail.engine.launches import require_launch
from tickrail.engine.quotas import check_payload

REDRIVABLE = frozenset({State.DEAD, State.ABANDONED})


class Edit(NamedTuple):
    """What a redrive changes of its launch: the payload, where it was given."""

    payload: Any = None
    has_payload: bool = False


def read_edit(reader: Reader) -> Edit:
    """The edit of a document; what is wrong with it is noted in the reader."""
    has_payload = reader.names("payload")
    payload = reader.raw("payload")
    reader.problems.extend(payload_problems(payload))
    return Edit(payload, has_payload)


class Redrives:
    """The use case for one launch."""

    def redrive(self, tx: Transaction, launch: LaunchId, document: object) -> LaunchRecord:
        """Redrive a dead or abandoned launch; `payload` replaces its own.

        `expected_redrive_count` is what the caller saw: of two who saw the same, one is refused.

        Raises:
            NotFoundError: no such launch.
            ConflictError: it is not dead or abandoned, its job is deleted, it was redriven since it
                was seen, or as often as it may be.
            InvalidInputError: the document is not valid.
        """
        reader = Reader({} if document is None else document)
        edit = read_edit(reader)
        wanted: int | None = None
        if reader.has("expected_redrive_count"):
            wanted = reader.whole("expected_redrive_count", 0, low=0, high=MAX_REDRIVES)
        reader.finish("redrive")
        check_payload(tx, edit.payload)
        # Who inserts or redrives a launch holds the row of its job.
        job = require(tx, require_launch(tx, launch).job, lock=True)
        seen = require_launch(tx, launch)
        if wanted is not None and seen.redrive_count != wanted:
            raise ConflictError(
                f"The launch was redriven {seen.redrive_count} times, not {wanted}: somebody else"
                " was quicker."
            )
        made = redrive_locked(tx, job, seen, edit)
        tx.wake_schedulers()
        return made


def redrive_locked(tx: Transaction, job: JobRecord, seen: LaunchRecord, edit: Edit) -> LaunchRecord:
    """Redrive a launch whose job's row is locked.

    It is due now, or held while another launch of its job is open and the overlap policy forbids a
    second one. Nothing is cancelled for it.

    Raises:
        ConflictError: as `Redrives.redrive`.
    """
    if job.state is JobState.DELETED:
        raise ConflictError("The job is deleted; the launch stays as it is.")
    if seen.state not in REDRIVABLE:
        raise ConflictError(
            f"The launch is {seen.state}; only one that is dead or abandoned can be redriven."
        )
    if seen.redrive_count >= MAX_REDRIVES:
        raise ConflictError(
            f"The launch was redriven {seen.redrive_count} times, which is the limit: mend what it"
            " fails by and trigger its job anew."
        )
    plan = parse_plan(job.plan, job=job.id, now=tx.now)
    alone = plan.overlap is not Overlap.ALLOW
    state = State.HELD if alone and tx.launches.open_of(job.id).open else State.DUE
    made = tx.letters.redrive(seen, Redriven(state, job.partition, *edit))
    if made is None:
        raise ConflictError("The launch was redriven by somebody else at this moment.")
    before = {
        "state": seen.state.value,
        "attempt": seen.attempt,
        "failures": seen.failures,
        "redrive_count": seen.redrive_count,
    }
    after = {
        "state": made.state.value,
        "attempt": made.attempt,
        "redrive_count": made.redrive_count,
        "payload_edited": edit.has_payload,
    }
    tx.audit("launch.redrive", f"launch:{seen.id}", before, after)
    return made

"""Pause and resume for all jobs of a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from tickrail.core.definition import NAME, TAG_KEY
from tickrail.core.documents import Reader, nearest, text_problem
from tickrail.core.errors import NotFoundError, Problem
from tickrail.core.ids import JobId
from tickrail.core.job_filter import JobFilter, JobState
from tickrail.core.ports_api import JobRecord, Transaction
from tickrail.core.ports_operations import OperationRecord
from tickrail.engine.operations import (
    BATCH,
    REFUSALS,
    SHOWN,
    Asked,
    Kind,
    OperationPreview,
    Step,
    texts,
)
from tickrail.engine.pauses import InFlight, Pauses

_STATES = (JobState.ACTIVE, JobState.PAUSED, JobState.FINISHED)
_OURS = frozenset({"filter", "dry_run"})
_NOBODY = JobId(UUID(int=0))


class JobWork:
    """`operations.Work`: to each job what the use case of one job does, in the order of ids."""

    kinds: Sequence[Kind] = (Kind.PAUSE, Kind.RESUME)

    def __init__(self, pauses: Pauses) -> None:
        """Does to each job what `pauses` does to one."""
        self._each: Mapping[Kind, Callable[[Transaction, JobId, object], JobRecord]] = {
            Kind.PAUSE: pauses.pause,
            Kind.RESUME: pauses.resume,
        }

    def ask(self, tx: Transaction, kind: Kind, document: object) -> Asked | OperationPreview:
        """Read a request; its other members are those for one job.

        Raises:
            InvalidInputError: the document is not valid.
        """
        where, given, body, dry_run = self._read(tx, kind, document)
        total = tx.operations.count_jobs(where, tx.now)
        if dry_run:
            jobs = tx.operations.jobs(where, tx.now, None, SHOWN)
            return OperationPreview(total, [job.name for job in jobs])
        return Asked(total, {**body, "filter": given})

    def step(self, tx: Transaction, operation: OperationRecord) -> Step:
        """The next batch."""
        body = dict(operation.request)
        where = _filter(Reader(body.pop("filter")))
        # Of all jobs at once, after the loop: see `cancel_open`.
        cancels = body.get("in_flight") == InFlight.CANCEL
        if cancels:
            del body["in_flight"]
        after = None if operation.position is None else JobId(UUID(operation.position))
        jobs = tx.operations.jobs(where, operation.created_at, after, BATCH)
        changed, treated, errors = 0, [], []
        for job in jobs:
            try:
                now = self._each[Kind(operation.kind)](tx, job.id, body)
            except REFUSALS as e:
                named = {"id": str(job.id), "name": job.name}
                errors.append({"job": named, "code": e.code, "detail": str(e)[:500]})
            else:
                changed += now.updated_at == tx.now
                treated.append(job.id)
        if cancels and treated:
            tx.launches.cancel_open(treated, running=True)
        position = str(jobs[-1].id) if jobs else operation.position
        return Step(position, len(jobs), changed, errors, more=len(jobs) == BATCH)

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


def _filter(reader: Reader) -> JobFilter:
    tags = tag_filter(reader)
    states: list[JobState] = []
    for n, state in enumerate(texts(reader, "state")):
        if state in _STATES:
            states.append(JobState(state))
        else:
            where = f"{reader.pointer}/state/{n}"
            said = f"is {state[:60]!r}"
            reader.problems.append(Problem(where, said, nearest(state, _STATES)))
    prefix = reader.text("name_prefix", maximum=128)
    queue = reader.text("queue", pattern=NAME, expected="the name of a queue")
    reader.without_empty()
    return JobFilter(states, tags, prefix or None, queue)


def tag_filter(reader: Reader) -> list[tuple[str, str | None]]:
    """Tags of jobs: key and value, or None for any."""
    tags: list[tuple[str, str | None]] = []
    for n, tag in enumerate(texts(reader, "tag")):
        key, colon, value = tag.partition(":")
        if not TAG_KEY.fullmatch(key) or text_problem(value):
            where = f"{reader.pointer}/tag/{n}"
            expected = "key:value, or key for any value"
            reader.problems.append(Problem(where, f"is {tag[:80]!r}", expected))
        tags.append((key, value if colon else None))
    return tags

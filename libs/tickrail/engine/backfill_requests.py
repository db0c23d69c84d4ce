"""Backfills as their users ask for them: look first, begin, read, cancel.

Each use case runs in the caller's transaction. Who changes a backfill holds the lock of its job's
row, as the owner's pass does, so a cancel falls before or after a pass, never inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tickrail.core.backfill import (
    MAX_SLOTS,
    Backfill,
    BackfillState,
    Existing,
    has_past_slots,
    range_slots,
    upcoming_slots,
)
from tickrail.core.clock import Clock
from tickrail.core.definition import Plan, instant_text, payload_problems
from tickrail.core.documents import Reader
from tickrail.core.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from tickrail.core.ids import uuid7
from tickrail.core.job_filter import JobState
from tickrail.core.policies import CatchUpOrder, Overlap
from tickrail.core.ports_api import JobRecord, JobRef, Transaction
from tickrail.core.ports_backfill import BackfillRecord
from tickrail.core.schedule import slot_of
from tickrail.engine.job_rules import ANY, JobRules, Precondition, check_version, plan_of, require
from tickrail.engine.pauses import InFlight
from tickrail.engine.quotas import check_payload

MAX_RUNNING = 10
"""Backfills of one job that may run at once."""
MAX_OPEN = 10
"""The default of max_open, where launches may overlap."""
SAMPLE = 100
"""Slots that a dry run shows."""
COUNTED = 10_000
"""Up to so many slots a dry run says how many of them would be launched."""


class PreviewSlot(NamedTuple):
    """A slot of a dry run, and the launch that it has already: its id and state."""

    at: datetime
    launch: tuple[UUID, str] | None


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """What a backfill would do. `to_launch` None: too many slots to look at each."""

    job: JobRecord
    backfill: Backfill
    first: datetime | None
    last: datetime | None
    to_launch: int | None
    items: Sequence[PreviewSlot]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, as far as it can be read without its job."""

    from_at: datetime
    until_at: datetime
    order: CatchUpOrder
    existing: Existing
    max_count: int | None
    max_open: int | None
    per_minute: int | None
    payload: Any
    has_payload: bool
    reason: str
    dry_run: bool


class BackfillRequests:
    """The use cases."""

    def __init__(self, rules: JobRules, clock: Clock) -> None:
        """Use cases under an installation's rules."""
        self._rules = rules
        self._clock = clock

    def request(
        self, tx: Transaction, ref: JobRef, document: object, wanted: Precondition = ANY
    ) -> BackfillRecord | BackfillPreview:
        """Begin a backfill of a job, or only say what it would do (`dry_run`).

        A paused job may be backfilled, as it may be triggered.

        Raises:
            NotFoundError: no such job.
            PreconditionFailedError: the job is not at the version demanded.
            ConflictError: the job is deleted, or ten backfills of it are running.
            InvalidInputError: the document is not valid, or the job has no slots in the past.
        """
        asked = self._read(document, tx.now)
        check_payload(tx, asked.payload)
        job = require(tx, ref, lock=not asked.dry_run)
        check_version(tx, job, wanted)
        if job.state is JobState.DELETED:
            raise ConflictError("The job is deleted.")
        plan = plan_of(tx, job)
        draft = self._draft(asked, plan, tx.now)
        if asked.dry_run:
            return _preview(tx, job, plan, draft)
        if tx.backfills.running(job.id) >= MAX_RUNNING:
            raise ConflictError(
                f"{MAX_RUNNING} backfills of this job are running; wait for one or cancel one."
            )
        record = BackfillRecord(
            backfill=draft,
            job=job.id,
            job_name=job.name,
            partition=job.partition,
            state=BackfillState.RUNNING,
            reason=asked.reason,
            created_by=tx.actor,
            created_at=tx.now,
            updated_at=tx.now,
            payload=asked.payload,
            has_payload=asked.has_payload,
        )
        tx.backfills.insert(record)
        tx.audit("backfill.create", f"backfill:{draft.id}", None, _audited(record))
        tx.wake_schedulers()
        return record

    def cancel(self, tx: Transaction, backfill: UUID, document: object) -> BackfillRecord:
        """Cancel a backfill: what has not started is cancelled, what runs finishes unless asked.

        Raises:
            NotFoundError: no such backfill.
            ConflictError: it has finished.
            InvalidInputError: the document is not valid.
        """
        reader = Reader({} if document is None else document)
        in_flight = reader.choice("in_flight", InFlight.FINISH)
        reader.finish("cancel")
        found = find_backfill(tx, backfill)
        require(tx, found.job, lock=True)
        found = find_backfill(tx, backfill)
        if found.state is BackfillState.FINISHED:
            raise ConflictError("The backfill has finished.")
        tx.backfills.cancel(found, running=in_flight is InFlight.CANCEL)
        if found.state is BackfillState.RUNNING:
            before = {"state": found.state.value}
            after = {"state": BackfillState.CANCELLED.value, "in_flight": in_flight.value}
            tx.audit("backfill.cancel", f"backfill:{backfill}", before, after)
        # A launch that waits for the ones that were cancelled may go on.
        tx.wake_schedulers()
        return find_backfill(tx, backfill)

    def _read(self, document: object, now: datetime) -> _Asked:
        reader = Reader({} if document is None else document)
        from_at, until_at = reader.instant("from"), reader.instant("until")
        for name, value in (("from", from_at), ("until", until_at)):
            if value is None and not reader.has(name):
                reader.problem(name, "is missing", "an instant with offset: 2026-03-01T09:00:00Z")
        if until_at is not None and until_at > now:
            present = instant_text(now.replace(microsecond=0))
            reader.problem("until", "is in the future", f"at or before {present}")
        oldest = _oldest(now, self._rules.history)
        if from_at is not None and from_at < oldest:
            reader.problem(
                "from",
                f"is too old: launches are kept for {self._rules.history.days} days",
                f"at or after {instant_text(oldest)}",
            )
        if from_at is not None and until_at is not None and until_at <= from_at:
            reader.problem("until", "is not after from", "a later instant; it is not included")
        has_payload = isinstance(document, dict) and "payload" in document
        payload = reader.raw("payload")
        reader.problems.extend(payload_problems(payload))
        asked = _Asked(
            from_at=from_at or now,
            until_at=until_at or now,
            order=reader.choice("order", CatchUpOrder.OLDEST),
            existing=reader.choice("existing", Existing.LEAVE),
            max_count=_number(reader, "max_count", 1_000_000),
            max_open=_number(reader, "max_open", 1_000),
            per_minute=_number(reader, "per_minute", 100_000),
            payload=payload,
            has_payload=has_payload,
            reason=reader.text("reason", "", maximum=1000) or "",
            dry_run=reader.flag("dry_run", default=False),
        )
        reader.finish("backfill")
        return asked

    def _draft(self, asked: _Asked, plan: Plan, now: datetime) -> Backfill:
        """The backfill, its slots counted.

        Raises:
            InvalidInputError: the job has no slots in the past, or the range too many, or its
                policy allows less than was asked for.
        """
        if not has_past_slots(plan.schedule):
            what = (
                "is null: the job is launched by hand only"
                if plan.schedule is None
                else "is measured from the end of each run: it has no slots in the past"
            )
            raise _refused("/schedule", what, "a job whose slots can be told from its schedule")
        alone = plan.overlap is not Overlap.ALLOW
        if alone and (asked.max_open or 1) > 1:
            raise _refused(
                "/max_open",
                f"is {asked.max_open}, and the job's overlap policy is {plan.overlap}",
                "1, or overlap: allow in the job",
            )
        run = range_slots(plan, asked.from_at, asked.until_at, 1)
        total = 0 if run is None else run.count
        if total > MAX_SLOTS and asked.max_count is None:
            raise _refused(
                "/max_count",
                f"is missing: the range has {total} slots",
                f"a number, or a range of at most {MAX_SLOTS} slots",
            )
        return Backfill(
            id=uuid7(self._clock),
            from_at=asked.from_at,
            until_at=asked.until_at,
            order=asked.order,
            existing=asked.existing,
            max_count=asked.max_count,
            max_open=asked.max_open or (1 if alone else MAX_OPEN),
            per_minute=asked.per_minute,
            total=total,
            next_at=now,
        )


def find_backfill(tx: Transaction, backfill: UUID) -> BackfillRecord:
    """The backfill.

    Raises:
        NotFoundError: this tenant has no such backfill.
    """
    found = tx.backfills.find(backfill)
    if found is None:
        raise NotFoundError(f"There is no backfill with the id {backfill}.")
    return found


def _preview(tx: Transaction, job: JobRecord, plan: Plan, draft: Backfill) -> BackfillPreview:
    run = range_slots(plan, draft.from_at, draft.until_at, 1)
    whole = draft.total <= COUNTED
    limit = COUNTED if whole else SAMPLE
    slots = upcoming_slots(plan, draft, None, limit).slots
    there = tx.backfills.launched(job.id, [slot_of(s) for s in slots])
    to_launch: int | None = None
    if draft.existing is Existing.LAUNCH:
        to_launch = draft.total
    elif whole:
        to_launch = sum(slot_of(s) not in there for s in slots)
    if draft.max_count is not None and to_launch is not None:
        to_launch = min(to_launch, draft.max_count)
    return BackfillPreview(
        job=job,
        backfill=draft,
        first=None if run is None else slot_of(run.first),
        last=None if run is None else slot_of(run.last),
        to_launch=to_launch,
        items=[PreviewSlot(slot_of(s), there.get(slot_of(s))) for s in slots[:SAMPLE]],
    )


def _oldest(now: datetime, history: timedelta) -> datetime:
    """The first instant after the oldest day of the history, which is about to go."""
    day = (now - history).astimezone(UTC).date() + timedelta(days=1)
    return datetime.combine(day, time(), UTC)


def _number(reader: Reader, name: str, high: int) -> int | None:
    return reader.whole(name, 0, low=1, high=high) if reader.has(name) else None


def _refused(pointer: str, message: str, expected: str) -> InvalidInputError:
    return InvalidInputError("The backfill is not valid.", [Problem(pointer, message, expected)])


def _audited(record: BackfillRecord) -> Mapping[str, Any]:
    b = record.backfill
    return {
        "job": str(record.job),
        "from": instant_text(b.from_at),
        "until": instant_text(b.until_at),
        "order": b.order.value,
        "existing": b.existing.value,
        "max_count": b.max_count,
        "max_open": b.max_open,
        "per_minute": b.per_minute,
        "total": b.total,
        "reason": record.reason,
    }

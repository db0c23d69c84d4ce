"""Launches, their attempts, and the slots of a job's ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tickrail.sdk.client.reading import Model, model


@model
class LaunchJob(Model):
    """Which job, and the version that the launch runs."""

    id: str
    name: str
    version: int


@model
class Place(Model):
    """Where a message landed in Kafka."""

    topic: str
    partition: int
    offset: int


@model
class Result(Model):
    """How the last attempt ended; `place` of kafka targets, `value` of tasks."""

    outcome: str | None
    code: int | None
    message: str
    body: str
    place: Place | None = None
    value: Any = None


@model
class Launch(Model):
    """A launch: one run of a job, with all its attempts.

    Attributes:
        id: the same for ever for the same slot of a job.
        origin: schedule, manual or backfill.
        state: held, due, queued, running, retrying; and when it has ended succeeded, dead,
            abandoned, expired or cancelled.
        claim: the fencing token of the last attempt.
        progress: what its last run told of how far it is.
    """

    id: str
    job: LaunchJob
    origin: str
    scheduled_at: datetime
    due_at: datetime
    state: str
    attempt: int
    failures: int
    max_attempts: int
    queue: str
    priority: str
    worker: str | None
    claim: int | None
    cancel_requested: bool
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None
    result: Result | None
    redrive_count: int
    progress: Any

    @property
    def ended(self) -> bool:
        """Whether nothing further happens to it, unless it is redriven."""
        return self.state in _ENDED


_ENDED = frozenset({"succeeded", "dead", "abandoned", "expired", "cancelled"})


@model
class StaleResult(Model):
    """A result that came when the claim was over. It changed nothing; the effect may be there."""

    outcome: str
    code: int | None
    message: str
    body: str
    at: datetime


@model
class Attempt(Model):
    """An attempt. `outcome` None: it is under way.

    Attributes:
        certain: whether it is known that the run did not succeed.
        stale_result: what its worker told too late.
    """

    attempt: int
    outcome: str | None
    certain: bool | None
    code: int | None
    message: str
    body: str
    worker: str | None
    claim: int | None
    started_at: datetime | None
    finished_at: datetime | None
    stale_result: StaleResult | None


@model
class Log(Model):
    """The end of what an attempt printed.

    Attributes:
        body: the last 64 KiB of it.
        size: bytes in all.
        live: whether more may come.
    """

    attempt: int
    body: str
    size: int
    truncated: bool
    updated_at: datetime | None
    live: bool


@model
class Check(Model):
    """One check of an explanation; `ok` None: not known, or not its turn yet."""

    check: str
    ok: bool | None
    detail: str
    until: datetime | None


@model
class End(Model):
    """How a launch ended."""

    reason: str
    outcome: str | None
    attempts: int
    detail: str
    at: datetime | None


@model
class LaunchExplanation(Model):
    """Why a launch stands where it stands; `holds` names the check that keeps it."""

    launch: str
    state: str
    holds: str | None
    checks: tuple[Check, ...]
    ended: End | None


@model
class LedgerSlot(Model):
    """A slot of a job: launched, skipped and why, or upcoming.

    `reason` of an upcoming one whose instant has passed: `undecided`.
    `count` above 1: a run of slots from `at` to `last_at`.
    """

    at: datetime
    state: str
    launch: Launch | None
    reason: str | None
    count: int
    last_at: datetime

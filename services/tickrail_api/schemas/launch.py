"""A launch's documents."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, LAUNCH_ID, Document, Instant, Json

State = Literal[
    "held", "due", "queued", "running", "retrying", "succeeded", "dead", "abandoned", "expired",
    "cancelled",
]  # fmt: skip
Reason = Literal[
    "overlap",
    "misfire",
    "paused",
    "excluded",
    "quota",
    "too_old",
    "skipped_by_hand",
    "undecided",
]


class LaunchJob(Document):
    """Which job, and the version that it runs."""

    id: str
    name: str
    version: int


class Place(Document):
    """Where a message landed in Kafka."""

    topic: str
    partition: int
    offset: int


class Result(Document):
    """How the last attempt ended."""

    model_config = ConfigDict(extra="allow")

    outcome: str | None
    code: int | None
    message: str
    body: str
    place: Place | None = Field(None, description="Where the message of a `kafka` target landed.")
    value: Json = Field(None, description="What the function of a `task` target returned.")


class Launch(Document):
    """A launch."""

    id: str = Field(description="UUIDv8 of job, scheduled instant and origin.")
    job: LaunchJob
    origin: Literal["schedule", "manual", "backfill"]
    scheduled_at: Instant
    due_at: Instant
    state: State
    attempt: int
    failures: int
    max_attempts: int
    queue: str
    priority: Literal["high", "normal", "low"]
    worker: str | None
    claim: int | None = Field(description="The fencing token of the last attempt.")
    cancel_requested: bool
    created_at: Instant
    queued_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    next_attempt_at: Instant | None = Field(
        description="When a launch that is not at its first attempt is due: after a failure, or"
        " put off by its task."
    )
    result: Result | None
    redrive_count: int
    progress: Json = Field(description="What its last run told of how far it is; null: nothing.")


class LaunchPage(Document):
    """A page of launches."""

    items: list[Launch]
    next_cursor: str | None


class StaleResult(Document):
    """A result that came when the claim was over. It changed nothing; the effect may be there."""

    outcome: str
    code: int | None
    message: str
    body: str
    at: Instant


class Attempt(Document):
    """An attempt. `outcome` null: it is under way."""

    attempt: int
    outcome: str | None
    certain: bool | None = Field(description="Whether it is known that the run did not succeed.")
    code: int | None
    message: str
    body: str
    worker: str | None
    claim: int | None
    started_at: Instant | None
    finished_at: Instant | None
    stale_result: StaleResult | None = Field(
        description="What its worker told too late: another attempt had taken its place."
    )


class AttemptPage(Document):
    """A page of attempts."""

    items: list[Attempt]
    next_cursor: str | None


class Log(Document):
    """The end of what an attempt printed."""

    attempt: int = Field(description="0: the launch has had no attempt yet.")
    body: str = Field(description="The last 64 KiB of it; bytes that are not UTF-8 as U+FFFD.")
    size: int = Field(description="Bytes in all.")
    truncated: bool = Field(description="Whether `body` is not all of it.")
    updated_at: Instant | None
    live: bool = Field(description="Whether more may come: ask again in a second.")


class Check(Document):
    """One check of an explanation."""

    check: str = Field(examples=["tenant_cap"])
    ok: bool | None = Field(
        description="Whether it lets the launch go on; null: not known, or not its turn yet."
    )
    detail: str = Field(description="In words.")
    until: Instant | None = Field(description="When that changes by itself, where it is known.")


class End(Document):
    """How a launch ended."""

    reason: str = Field(
        description="`ok`, `deadline`, `cancelled`, `terminated`, or the reason of a dead letter."
    )
    outcome: str | None = Field(description="Of its last attempt; null: it had none.")
    attempts: int
    detail: str = Field(description="In words.")
    at: Instant | None


class LaunchExplanation(Document):
    """Why a launch stands where it stands."""

    launch: str
    state: State
    holds: str | None = Field(
        description="The check that keeps it; null: nothing does, it runs or has ended."
    )
    checks: list[Check] = Field(
        description="In the order in which a launch meets them; empty where it has ended."
    )
    ended: End | None


class LedgerSlot(Document):
    """A due slot of a job. `count` above 1: a run of slots from `at` to `last_at`."""

    at: Instant
    state: Literal["launched", "skipped", "upcoming"]
    launch: Launch | None
    reason: Reason | None = Field(
        description="Why it was skipped. `undecided`, of an upcoming one: its instant has passed,"
        " and no scheduler has launched or skipped it yet."
    )
    count: int
    last_at: Instant


class Ledger(Document):
    """A page of the ledger."""

    items: list[LedgerSlot]
    next_cursor: str | None


LAUNCH = {
    "id": LAUNCH_ID,
    "job": {"id": JOB_ID, "name": "nightly-invoice-run", "version": 1},
    "origin": "schedule",
    "scheduled_at": INSTANT,
    "due_at": INSTANT,
    "state": "succeeded",
    "attempt": 2,
    "failures": 1,
    "max_attempts": 5,
    "queue": "default",
    "priority": "normal",
    "worker": "worker-1",
    "claim": 8812,
    "cancel_requested": False,
    "created_at": "2026-03-02T01:00:00.004Z",
    "queued_at": "2026-03-02T01:00:02.213Z",
    "started_at": "2026-03-02T01:00:02.225Z",
    "finished_at": "2026-03-02T01:00:02.731Z",
    "next_attempt_at": None,
    "result": {"outcome": "succeeded", "code": 200, "message": "", "body": "ok"},
    "redrive_count": 0,
    "progress": None,
}
ATTEMPT = {
    "attempt": 1,
    "outcome": "http_500",
    "certain": True,
    "code": 500,
    "message": "the target answered 500",
    "body": "try again",
    "worker": "worker-1",
    "claim": 8801,
    "started_at": "2026-03-02T01:00:00.020Z",
    "finished_at": "2026-03-02T01:00:00.211Z",
    "stale_result": None,
}
LOG = {
    "attempt": 2,
    "body": "dumping 4 tables\n1 of 4\n",
    "size": 24,
    "truncated": False,
    "updated_at": "2026-03-02T01:00:02.714Z",
    "live": True,
}
EXPLANATION = {
    "launch": LAUNCH_ID,
    "state": "due",
    "holds": "tenant_cap",
    "checks": [
        {"check": "tenant", "ok": True, "detail": "The tenant is active.", "until": None},
        {
            "check": "tenant_cap",
            "ok": False,
            "detail": "The tenant runs 5 of at most 5.",
            "until": None,
        },
        {
            "check": "kafka",
            "ok": None,
            "detail": "It is not in Kafka.",
            "until": None,
        },
    ],
    "ended": None,
}
SLOT = {
    "at": INSTANT,
    "state": "launched",
    "launch": LAUNCH,
    "reason": None,
    "count": 1,
    "last_at": INSTANT,
}

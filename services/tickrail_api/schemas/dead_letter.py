"""Documents of dead letters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, LAUNCH_ID, Document, Instant, Json
from tickrail_api.schemas.launch import ATTEMPT, LAUNCH, Attempt, Launch, LaunchJob, Result

LaunchReason = Literal[
    "uncertain", "too_large", "worker_lost", "rejected", "not_retryable", "attempts_exhausted"
]
LetterReason = Literal[
    "uncertain", "too_large", "worker_lost", "rejected", "not_retryable", "attempts_exhausted",
    "undecodable",
]  # fmt: skip
LetterState = Literal["dead", "abandoned"]
MOST_PER_MINUTE = 60_000


class DeadLaunch(Document):
    """A launch that was given up."""

    kind: Literal["launch"]
    id: str = Field(description="The launch.")
    reason: LaunchReason = Field(description="Why it was given up.")
    state: LetterState
    error: str = Field(description="Its last failure, in a line.")
    job: LaunchJob
    queue: str
    scheduled_at: Instant
    died_at: Instant
    attempt: int
    failures: int = Field(description="Of this life: since the last redrive.")
    redrive_count: int
    published: bool = Field(description="Whether it is in the dead letter topic already.")


class UndecodableMessage(Document):
    """A Kafka message that no worker could read; operators see them."""

    kind: Literal["undecodable"]
    id: str = Field(description="topic/partition/offset")
    reason: Literal["undecodable"]
    error: str = Field(description="Why it cannot be read.")
    queue: str
    topic: str
    partition: int
    offset: int
    size: int = Field(description="Bytes of its value.")
    died_at: Instant


class DeadLetterPage(Document):
    """A page of dead letters."""

    items: list[Annotated[DeadLaunch | UndecodableMessage, Field(discriminator="kind")]]
    next_cursor: str | None


class InspectedLaunch(DeadLaunch):
    """A launch that was given up, with all that is known of it."""

    launch: Launch
    last_response: Result | None = Field(description="What came back last, at most 4 KiB of it.")
    attempts: list[Attempt] = Field(description="The last fifty.")
    target: Json = Field(description="As the run had it, headers too; secrets by their names.")
    payload: Json
    payload_own: bool = Field(description="Whether the payload is the launch's own, not its job's.")


class UndecodableValue(Document):
    """The first 64 KiB of a message: as text where it is UTF-8."""

    text: str | None
    base64: str | None
    truncated: bool


class InspectedMessage(UndecodableMessage):
    """A message that no worker could read, and its value."""

    value: UndecodableValue


class Redrive(Document):
    """How to redrive a launch."""

    payload: Json = Field(None, description="Instead of the payload that it had.")
    expected_redrive_count: int = Field(
        0,
        ge=0,
        le=10,
        description="What was seen; where it has risen meanwhile, the answer is 409.",
    )


class LetterFilter(Document):
    """Which dead letters: those that meet every member; `{}` is all of them."""

    launch: list[str] = Field(
        default_factory=list, min_length=1, max_length=100, description="Launches by id."
    )
    job: str = Field("", description="Of this job: id or `name:<name>`.")
    queue: str = ""
    reason: list[LaunchReason] = Field(default_factory=list, min_length=1)
    state: list[LetterState] = Field(default_factory=list, min_length=1)
    tag: list[str] = Field(
        default_factory=list,
        min_length=1,
        description="`key:value`, or `key` for any value; all of them.",
    )
    since: Instant = Field("", alias="from", description="Died at or after this instant.")
    to: Instant = Field("", description="Died before this instant.")


class RedriveMany(Document):
    """Which dead letters to redrive, the oldest first, and how."""

    filter: LetterFilter
    payload: Json = Field(None, description="Instead of the payload that each had.")
    per_minute: int = Field(
        MOST_PER_MINUTE, ge=1, le=MOST_PER_MINUTE, description="So many a minute at most."
    )
    max_count: int = Field(1_000_000, ge=1, le=1_000_000, description="Look at so many at most.")
    dry_run: bool = Field(False, description="Only say which.")


class UndecodableFilter(Document):
    """With an operator's key: which undecodable messages."""

    kind: Literal["undecodable"]
    id: list[str] = Field(default_factory=list, min_length=1, max_length=100)
    queue: str = ""
    since: Instant = Field("", alias="from")
    to: Instant = ""


class PurgeMany(Document):
    """Which dead letters are to show no more; launches stay dead, messages are deleted."""

    filter: LetterFilter | UndecodableFilter
    max_count: int = Field(1_000_000, ge=1, le=1_000_000, description="So many at most.")
    dry_run: bool = Field(False, description="Only say which.")


class LetterPreview(Document):
    """Which dead letters an operation would be about; nothing is changed."""

    total: int
    items: list[DeadLaunch] = Field(description="The first twenty.")


class PurgeAnswer(Document):
    """What a purge is about, or what one of messages did, which is done at once."""

    total: int = Field(description="Of the filter.")
    purged: int = Field(description="0: it is a dry run.")
    items: list[Annotated[DeadLaunch | UndecodableMessage, Field(discriminator="kind")]] = Field(
        description="The first twenty, of a dry run."
    )


DEAD_LAUNCH: dict[str, Any] = {
    "kind": "launch",
    "id": LAUNCH_ID,
    "reason": "attempts_exhausted",
    "state": "dead",
    "error": "http_500: the target answered 500",
    "job": {"id": JOB_ID, "name": "nightly-invoice-run", "version": 1},
    "queue": "default",
    "scheduled_at": INSTANT,
    "died_at": "2026-03-02T01:00:31.204Z",
    "attempt": 5,
    "failures": 5,
    "redrive_count": 0,
    "published": True,
}
UNDECODABLE: dict[str, Any] = {
    "kind": "undecodable",
    "id": "tickrail.launch.default.normal/3/1042",
    "reason": "undecodable",
    "error": "not JSON: unexpected character: line 1 column 1 (char 0)",
    "queue": "default",
    "topic": "tickrail.launch.default.normal",
    "partition": 3,
    "offset": 1042,
    "size": 5,
    "died_at": INSTANT,
}
_FAILED = {**ATTEMPT, "attempt": 5}
INSPECTED = {
    **DEAD_LAUNCH,
    "launch": {
        **LAUNCH,
        "state": "dead",
        "attempt": 5,
        "failures": 5,
        "result": {
            "outcome": "http_500",
            "code": 500,
            "message": "the target answered 500",
            "body": "try again",
        },
    },
    "last_response": {
        "outcome": "http_500",
        "code": 500,
        "message": "the target answered 500",
        "body": "try again",
    },
    "attempts": [_FAILED],
    "target": {
        "webhook": {
            "url": "https://example.org/hook",
            "method": "POST",
            "headers": {"X-Team": "billing"},
        }
    },
    "payload": {"dry": False},
    "payload_own": False,
}
INSPECTED_MESSAGE = {
    **UNDECODABLE,
    "value": {"text": "hello", "base64": None, "truncated": False},
}
REDRIVE = {"payload": {"dry": True}, "expected_redrive_count": 0}
REDRIVE_MANY = {
    "filter": {"queue": "default", "reason": ["attempts_exhausted"]},
    "per_minute": 60,
}
DRY_LETTERS = {"filter": {}, "dry_run": True}
PURGE_MANY = {"filter": {"to": INSTANT}}
LETTER_PREVIEW = {"total": 1, "items": [DEAD_LAUNCH]}
PURGE_ANSWER = {"total": 1, "purged": 0, "items": [DEAD_LAUNCH]}

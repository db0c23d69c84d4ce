"""Work that goes on, backfills and operations; and dead letters, which some of it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tickrail.sdk.client.models.definitions import JobName
from tickrail.sdk.client.models.launches import Attempt, Launch, LaunchJob, Result
from tickrail.sdk.client.reading import Model, model


@model
class Backfill(Model):
    """A backfill and how far it is.

    Attributes:
        state: running, finished (no launch of it is open) or cancelled.
        total: slots of the range.
        launched: launches made.
        left_alone: slots that had a launch, or are older than the history.
        remaining: slots still to deal with.
        launches: its launches by state.
    """

    id: str
    job: JobName
    state: str
    from_: datetime
    until: datetime
    order: str
    existing: str
    per_minute: int | None
    max_count: int | None
    max_open: int
    reason: str
    total: int
    launched: int
    left_alone: int
    remaining: int
    launches: Mapping[str, int]
    created_by: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


@model
class SlotLaunch(Model):
    """The launch that a slot has."""

    id: str
    state: str


@model
class BackfillSlot(Model):
    """A slot of a backfill's range."""

    at: datetime
    launch: SlotLaunch | None


@model
class BackfillPreview(Model):
    """What a backfill would do; `to_launch` None: too many to say. `items`: the first hundred."""

    job: JobName
    total: int
    to_launch: int | None
    first: datetime | None
    last: datetime | None
    items: tuple[BackfillSlot, ...]


@model
class OperationError(Model):
    """Why something was not done to a job or a launch; `job` None: why the operation failed."""

    job: JobName | None
    launch: str | None = None
    code: str
    detail: str


@model
class OperationRequest(Model):
    """What was asked for; `raw` has the rest of it."""

    filter: Any


@model
class Operation(Model):
    """Work on many jobs or dead letters, done in batches.

    Attributes:
        state: running, finished, cancelled or failed.
        total: jobs or dead letters of the filter.
        done: those dealt with.
        changed: those changed; one that was so already is not.
        failed: those that refused it.
        errors: why; the first hundred.
    """

    id: str
    kind: str
    state: str
    request: OperationRequest
    total: int
    done: int
    changed: int
    failed: int
    errors: tuple[OperationError, ...]
    created_by: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


@model
class OperationPreview(Model):
    """Which jobs an operation would be about; the names of the first hundred."""

    total: int
    names: tuple[str, ...]


@model
class DeadLetter(Model):
    """What was given up: a `DeadLaunch`, or an `UndecodableMessage`."""

    kind: str
    id: str
    reason: str
    error: str
    queue: str
    died_at: datetime


@model
class DeadLaunch(DeadLetter):
    """A launch that was given up.

    Attributes:
        state: dead or abandoned.
        failures: of this life, since the last redrive.
        published: whether it is in the dead letter topic already.
    """

    state: str
    job: LaunchJob
    scheduled_at: datetime
    attempt: int
    failures: int
    redrive_count: int
    published: bool


@model
class UndecodableMessage(DeadLetter):
    """A Kafka message that no worker could read; operators see them."""

    topic: str
    partition: int
    offset: int
    size: int


DeadLetter.variants = {"launch": DeadLaunch, "undecodable": UndecodableMessage}


@model
class InspectedLaunch(DeadLaunch):
    """A launch that was given up, with all that is known of it.

    Attributes:
        last_response: what came back last, at most 4 KiB of it.
        attempts: the last fifty.
        target: as the run had it, headers too; secrets by their names.
        payload_own: whether the payload is the launch's own, not its job's.
    """

    launch: Launch
    last_response: Result | None
    attempts: tuple[Attempt, ...]
    target: Any
    payload: Any
    payload_own: bool


@model
class UndecodableValue(Model):
    """The first 64 KiB of a message: as text where it is UTF-8."""

    text: str | None
    base64: str | None
    truncated: bool


@model
class InspectedMessage(UndecodableMessage):
    """A message that no worker could read, and its value."""

    value: UndecodableValue


@model
class LetterPreview(Model):
    """Which dead letters an operation would be about; the first twenty."""

    total: int
    items: tuple[DeadLaunch, ...]


@model
class PurgeAnswer(Model):
    """What a purge is about, or what one of messages did, which is done at once.

    `purged` 0: it was a dry run; then `items` has the first twenty.
    """

    total: int
    purged: int
    items: tuple[DeadLetter, ...]

"""An operation's documents."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, Document, Instant, Json
from tickrail_api.schemas.job import Pause, Resume


class OperationFilter(Document):
    """Which jobs: those that meet every member; `{}` is all of them."""

    tag: list[str] = Field(
        default_factory=list,
        min_length=1,
        description="`key:value`, or `key` for any value; all of them.",
    )
    name_prefix: str = Field(default_factory=str, min_length=1)
    queue: str = Field(default_factory=str, min_length=1)
    state: list[Literal["active", "paused", "finished"]] = Field(default_factory=list, min_length=1)


class PauseMany(Pause):
    """Which jobs to pause, and how."""

    filter: OperationFilter
    dry_run: bool = Field(False, description="Only say which.")


class ResumeMany(Resume):
    """Which jobs to let go on, and how."""

    filter: OperationFilter
    dry_run: bool = Field(False, description="Only say which.")


class OperationJob(Document):
    """Which job."""

    id: str
    name: str


class OperationError(Document):
    """Why something was not done to a job or a launch; job null: why the operation failed."""

    job: OperationJob | None
    launch: str | None = Field(None, description="The launch that refused; of dead letters only.")
    code: str
    detail: str


class OperationRequest(Document):
    """What was asked for."""

    model_config = ConfigDict(extra="allow")

    filter: Json


class Operation(Document):
    """Work on many jobs or dead letters, done in batches."""

    id: str
    kind: Literal["jobs.pause", "jobs.resume", "dead_letters.redrive", "dead_letters.purge"]
    state: Literal["running", "finished", "cancelled", "failed"]
    request: OperationRequest
    total: int = Field(description="Jobs or dead letters of the filter.")
    done: int = Field(description="Those dealt with.")
    changed: int = Field(description="Those changed; one that was so already is not.")
    failed: int = Field(description="Those that refused it, such as finished jobs.")
    errors: list[OperationError] = Field(description="Why; the first hundred.")
    created_by: str
    created_at: Instant
    updated_at: Instant
    finished_at: Instant | None


class OperationPage(Document):
    """A page of operations."""

    items: list[Operation]
    next_cursor: str | None


class OperationPreview(Document):
    """Which jobs an operation would be about; nothing is changed."""

    total: int
    names: list[str] = Field(description="Of the first hundred jobs.")


PAUSE_MANY = {"filter": {"tag": ["team:billing"]}, "reason": "maintenance"}
RESUME_MANY = {"filter": {"tag": ["team:billing"]}, "catch_up": "none"}
DRY_MANY = {"filter": {}, "dry_run": True}
OPERATION = {
    "id": "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b",
    "kind": "jobs.pause",
    "state": "running",
    "request": PAUSE_MANY,
    "total": 120,
    "done": 50,
    "changed": 49,
    "failed": 1,
    "errors": [
        {
            "job": {"id": JOB_ID, "name": "nightly-invoice-run"},
            "code": "conflict",
            "detail": "The job is finished; only an active job can be paused.",
        }
    ],
    "created_by": "key:abcdefgh",
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "finished_at": None,
}
OPERATION_PREVIEW = {"total": 1, "names": ["nightly-invoice-run"]}

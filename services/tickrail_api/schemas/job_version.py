"""The documents of a job's saved definitions."""

from __future__ import annotations

from pydantic import Field

from tickrail_api.schemas.base import Document, Instant
from tickrail_api.schemas.job import JOB, JobDocument


class JobVersion(Document):
    """A saved definition of a job."""

    version: int
    definition: JobDocument
    created_at: Instant
    created_by: str = Field(description="Who wrote it: `key:<id>` and the like.")


class JobVersionPage(Document):
    """A page of saved definitions, the newest first."""

    items: list[JobVersion]
    next_cursor: str | None


JOB_VERSION = {
    "version": 1,
    "definition": {name: JOB[name] for name in JobDocument.model_fields if name in JOB},
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "key:45s3mqrpn44coxpe",
}

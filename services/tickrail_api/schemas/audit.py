"""The documents of the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tickrail_api.schemas.base import JOB_ID, Document, Instant


class AuditEntry(Document):
    """Who changed what."""

    id: str
    at: Instant
    actor: str = Field(
        description="`key:<id>`, `subject:<issuer>/<subject>` of a token, or an operator's."
    )
    action: str = Field(description="`job.create`, `launch.cancel`, `operator.read`, ...")
    subject: str = Field(description="`job:<id>`, `secret:<name>`, ..., or the path of a read.")
    before: dict[str, Any] | None = Field(description="What it was; secrets are masked.")
    after: dict[str, Any] | None = Field(description="What it is since.")
    request_id: str
    address: str = Field(description="Where the request came from.")


class AuditPage(Document):
    """A page of entries."""

    items: list[AuditEntry]
    next_cursor: str | None


AUDIT_ENTRY = {
    "id": "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b",
    "at": "2026-03-02T01:00:00Z",
    "actor": "key:45s3mqrpn44coxpe",
    "action": "job.pause",
    "subject": f"job:{JOB_ID}",
    "before": None,
    "after": {
        "by": "key:45s3mqrpn44coxpe",
        "at": "2026-03-02T01:00:00Z",
        "reason": "maintenance",
        "until": None,
    },
    "request_id": "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2c",
    "address": "192.0.2.7",
}

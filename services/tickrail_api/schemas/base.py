"""What every document shares."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

INSTANT = "2026-03-02T01:00:00Z"
JOB_ID = "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b"
LAUNCH_ID = "0195a1b2-3c4d-8e5f-8a6b-7c8d9e0f1a2b"

Instant = Annotated[
    str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339; answered in UTC.")
]
Duration = Annotated[
    str, Field(description="`30s`, `5m`, `1h30m`, `2d` (24 hours each), or ISO 8601.")
]
Json = Any
CHANNEL = r"^(webhook:[a-z0-9][a-z0-9._-]{0,127}|kafka:[A-Za-z0-9._-]{1,249})$"
"""Where notices go."""


def one_of(schema: dict[str, Any]) -> None:
    """Say that exactly one of the forms is right: each needs a member that no other takes."""
    schema["oneOf"] = schema.pop("anyOf")


class Document(BaseModel):
    """A document: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=False)


class ProblemEntry(Document):
    """One thing wrong with a request."""

    pointer: str = Field(description="JSON pointer into the body, or `?name` of a query parameter.")
    message: str
    expected: str = Field(description="What would be right.")


class ProblemDocument(Document):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:tickrail:problem:not_found"])
    title: str
    status: int
    code: str = Field(examples=["not_found"])
    detail: str
    errors: list[ProblemEntry]
    request_id: str

"""A secret's documents."""

from __future__ import annotations

from pydantic import Field

from tickrail_api.schemas.base import Document, Instant


class NewSecret(Document):
    """A value to keep."""

    value: str = Field(
        min_length=1,
        max_length=65536,
        description="At most 64 KiB in UTF-8. It is encrypted, and never answered.",
    )


class Secret(Document):
    """What is told of a secret: its name, not its value."""

    name: str
    updated_at: Instant


class SecretPage(Document):
    """A page of secrets."""

    items: list[Secret]
    next_cursor: str | None


NEW_SECRET = {"value": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
SECRET = {"name": "billing-signature", "updated_at": "2026-03-01T12:00:00Z"}

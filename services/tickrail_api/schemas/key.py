"""Documents of API keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, Document, Duration, Instant

Scope = Literal["read", "run", "write", "admin"]
_RATE = "Requests in a second that it may make; null: as many as its tenant."


class NewApiKey(Document):
    """A key to make. It ends at an instant, after a time, or not at all."""

    name: str = Field(min_length=1, max_length=128, description="What it is called.")
    scopes: list[Scope] = Field(
        min_length=1, max_length=4, description="What it may do; none that who asks lacks."
    )
    description: str = Field("", max_length=1024)
    requests_per_second: int | None = Field(None, ge=1, le=10_000, description=_RATE)
    expires_at: Instant | None = Field(None, description="Until when it is valid.")
    expires_in: Duration | None = Field(None, description="Instead: for how long.")


class RotateApiKey(Document):
    """A new key in the place of one."""

    grace: Duration = Field("1d", description="How long the old one stays valid: 0s to 30d.")


class ApiKey(Document):
    """An API key, without its secret."""

    id: str
    prefix: str = Field(description="What the key begins with, to recognise it by.")
    name: str
    description: str
    scopes: list[Scope]
    requests_per_second: int | None = Field(description=_RATE)
    state: Literal["active", "expired", "revoked"]
    created_at: Instant
    created_by: str
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None = Field(description="Within a minute or so.")
    replaced_by: str | None = Field(description="The key that a rotation put in its place.")


class MadeApiKey(ApiKey):
    """A key just made."""

    token: str | None = Field(
        description="The whole key. It is told here and kept nowhere: null where the same request"
        " is answered again by its Idempotency-Key."
    )


class ApiKeyPage(Document):
    """A page of keys."""

    items: list[ApiKey]
    next_cursor: str | None


NEW_KEY = {"name": "deploy", "scopes": ["read", "write"], "expires_in": "90d"}
ROTATE_KEY = {"grace": "2d"}
API_KEY = {
    "id": "45s3mqrpn44coxpe",
    "prefix": "trk_45s3mqrpn44coxpe",
    "name": "deploy",
    "description": "",
    "scopes": ["read", "write"],
    "requests_per_second": None,
    "state": "active",
    "created_at": INSTANT,
    "created_by": "key:bm7qyzh4qhqpr2ux",
    "expires_at": "2026-05-31T01:00:00Z",
    "revoked_at": None,
    "last_used_at": None,
    "replaced_by": None,
}
MADE_KEY = {**API_KEY, "token": "trk_<key id>_<secret>"}

"""Documents of queues and tenants."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, Document, Duration, Instant
from tickrail_api.schemas.usage import QuotaSettings

Kind = Literal["webhook", "kafka", "command", "task", "noop"]


class Rate(Document):
    """At most `count` launches start in each `per`, spread evenly over it."""

    count: int = Field(ge=1, le=1_000_000)
    per: Duration = Field("1m", description="1s to 1d.")


class Limits(Document):
    """How much may run at once and start in a time; null: as much as there is."""

    max_running: int | None = Field(None, ge=1, le=1_000_000, description="So many run at once.")
    rate: Rate | None = None


class NewQueue(Limits):
    """A queue to put."""

    kinds: list[Kind] = Field(description="The kinds of target that it serves.")


class TenantPart(Limits):
    """What a tenant has set for its own launches in a queue."""

    paused: bool
    paused_reason: str
    version: int = Field(description="The ETag for the tenant.")


class Depth(Document):
    """Launches in the queue; `later`: due later, as retries are, and those that a limit refused."""

    due: int
    later: int
    queued: int
    running: int


class Queue(NewQueue):
    """A queue of the installation, the kinds of target it serves, its limits for everybody."""

    name: str
    paused: bool = Field(description="For everybody.")
    paused_reason: str
    version: int = Field(description="The ETag for operators.")
    created_at: Instant
    tenant: TenantPart | None = Field(description="The tenant's own part; null for operators.")
    depth: Depth | None = Field(
        description="Of the tenant, or of all for operators; null in lists."
    )


class QueuePage(Document):
    """A page of queues."""

    items: list[Queue]
    next_cursor: str | None


class PauseQueue(Document):
    """Why a queue is paused."""

    reason: str = Field("", max_length=1024)


class TenantSettings(Document):
    """What operators set of a tenant."""

    weight: int = Field(1, ge=1, le=100, description="Its share of turns among tenants.")
    max_running: int | None = Field(
        None, ge=1, le=1_000_000, description="So many of its launches run at once."
    )
    egress: dict[str, Any] | None = Field(
        None,
        description='What its targets may reach: `{"allow": [], "deny": [], "only": []}`, lists of'
        " hosts and networks beside those of the installation.",
    )
    kafka_topics: list[str] = Field(
        default_factory=list, description="Topics that its targets may send to; `*` for any text."
    )
    quotas: QuotaSettings = Field(
        default_factory=QuotaSettings, description="Its own; the rest is as for everybody."
    )


class NewTenant(TenantSettings):
    """A tenant to make."""

    name: str = Field(
        pattern="^[a-z0-9][a-z0-9._-]{0,127}$",
        description="Its name for ever; not of the form of an id.",
    )


class TenantReason(Document):
    """Why a tenant is suspended, or goes on."""

    reason: str = Field("", max_length=1024)


class Tenant(TenantSettings):
    """A tenant."""

    id: str
    name: str
    state: Literal["active", "suspended", "deleted"]
    state_reason: str = Field(description="Why it is in its state.")
    state_at: Instant | None = Field(description="Since when; null: since it was made.")
    version: int
    created_at: Instant


class TenantPage(Document):
    """A page of tenants."""

    items: list[Tenant]
    next_cursor: str | None


NEW_QUEUE = {
    "kinds": ["webhook"],
    "max_running": 50,
    "rate": {"count": 600, "per": "1m"},
}
PATCH_LIMITS = {"max_running": 10, "rate": None}
PAUSE_QUEUE = {"reason": "the mail server is being moved"}
QUEUE = {
    "name": "mail",
    **NEW_QUEUE,
    "paused": False,
    "paused_reason": "",
    "version": 2,
    "created_at": INSTANT,
    "tenant": {
        "max_running": 10,
        "rate": None,
        "paused": False,
        "paused_reason": "",
        "version": 2,
    },
    "depth": {"due": 3, "later": 40, "queued": 12, "running": 10},
}
NEW_TENANT = {"name": "acme", "max_running": 200}
SUSPEND = {"reason": "the contract has ended"}
PATCH_TENANT = {"weight": 3, "max_running": 200, "quotas": {"jobs": 500}}
TENANT = {
    "id": "0195a3f0-0000-7000-8000-000000000001",
    "name": "acme",
    "state": "active",
    "state_reason": "",
    "state_at": None,
    "weight": 3,
    "max_running": 200,
    "egress": {"allow": ["10.0.0.0/8"]},
    "kafka_topics": ["acme.*"],
    "quotas": {"jobs": 500},
    "version": 2,
    "created_at": INSTANT,
}

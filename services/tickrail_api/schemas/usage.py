"""Documents of quotas and of what is used of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tickrail_api.schemas.base import CHANNEL, INSTANT, Document, Duration, Instant

Unlimited = Literal["unlimited"]


class QuotaSettings(Document):
    """Quotas as operators set them: a number, a duration, or `unlimited`.

    What is left out, or null, is as it is for everybody; what is not set for everybody either is
    not limited.
    """

    jobs: int | Unlimited | None = Field(
        None, ge=0, le=100_000_000, description="So many live jobs."
    )
    launches_per_minute: int | Unlimited | None = Field(
        None,
        ge=0,
        le=1_000_000_000,
        description="So many launch records in each minute (UTC); slots beyond are skipped with"
        " reason `quota`, triggers answered 429, backfills wait.",
    )
    launches_per_day: int | Unlimited | None = Field(
        None, ge=0, le=1_000_000_000, description="The same for each day (UTC)."
    )
    payload_bytes: int | Unlimited | None = Field(
        None, ge=0, le=262_144, description="The largest payload; never more than 256 KiB."
    )
    requests_per_second: float | Unlimited | None = Field(
        None, ge=0.001, le=100_000, description="Requests to this API, on average."
    )
    request_burst: int | Unlimited | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Requests at once after a rest; what comes in a second, unless it is set.",
    )
    min_interval: Duration | None = Field(
        None,
        description="The least time between two slots of a schedule, `1s` to `366d`, or"
        " `unlimited`.",
    )


class Quotas(Document):
    """What a tenant may have; `unlimited`: as much as there is."""

    jobs: int | Unlimited
    launches_per_minute: int | Unlimited
    launches_per_day: int | Unlimited
    running: int | Unlimited = Field(description="So many launches run at once (`max_running`).")
    payload_bytes: int
    requests_per_second: float | Unlimited
    request_burst: int | Unlimited
    min_interval: Duration | Unlimited


class QuotaNotify(Document):
    """Who is told of a tenant's quotas."""

    notify: list[Annotated[str, Field(pattern=CHANNEL)]] = Field(
        max_length=5,
        description="Channels, as a job's `on_failures` names them: `webhook:<secret>` or"
        " `kafka:<topic>`, each once.",
        json_schema_extra={"uniqueItems": True},
    )


class UsageItem(Document):
    """What is used of one quota."""

    used: int | None = Field(
        description="Null: not counted, since there is no quota; counted since it is there."
    )
    limit: int | Unlimited
    resets_at: Instant | None = Field(
        description="When the window ends, or the tokens for requests are all there again."
    )


class Usage(Document):
    """What a tenant uses of its quotas."""

    at: Instant
    jobs: UsageItem = Field(description="Live jobs.")
    launches_per_minute: UsageItem = Field(description="Launch records made in this minute.")
    launches_per_day: UsageItem = Field(description="Launch records made today, UTC.")
    running: UsageItem = Field(description="Launches that run now.")
    requests: UsageItem = Field(description="Requests at once: tokens taken out of the bucket.")


NOTIFY: dict[str, Any] = {"notify": ["webhook:ops"]}
PATCH_QUOTAS: dict[str, Any] = {"launches_per_minute": 600, "jobs": "unlimited"}
QUOTAS = {
    "jobs": 500,
    "launches_per_minute": 600,
    "launches_per_day": "unlimited",
    "running": 50,
    "payload_bytes": 262_144,
    "requests_per_second": 10,
    "request_burst": 100,
    "min_interval": "1m",
}
USAGE = {
    "at": INSTANT,
    "jobs": {"used": 431, "limit": 500, "resets_at": None},
    "launches_per_minute": {"used": 12, "limit": 600, "resets_at": "2026-03-02T01:01:00Z"},
    "launches_per_day": {"used": None, "limit": "unlimited", "resets_at": None},
    "running": {"used": 7, "limit": 50, "resets_at": None},
    "requests": {"used": 3, "limit": 100, "resets_at": "2026-03-02T01:00:01Z"},
}

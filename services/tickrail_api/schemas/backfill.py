"""A backfill's documents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, LAUNCH_ID, Document, Instant, Json

Order = Literal["oldest", "newest"]
Existing = Literal["leave", "launch"]


class NewBackfill(Document):
    """A past range of a job's slots to launch."""

    from_: Instant = Field(alias="from", description="The first instant of the range.")
    until: Instant = Field(description="Its end, not included; not in the future.")
    order: Order = Field("oldest", description="Which end comes first.")
    per_minute: int | None = Field(None, ge=1, le=100_000, description="Launches a minute at most.")
    max_count: int | None = Field(None, ge=1, le=1_000_000, description="Launches at most.")
    max_open: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="Open launches of it at most: 10 where the job's overlap policy is allow, else"
        " 1, and then only while no other launch of the job is open.",
    )
    existing: Existing = Field("leave", description="Slots that have a launch already.")
    payload: Json = Field(None, description="Instead of the job's own.")
    reason: str = ""
    dry_run: bool = Field(False, description="Only say what it would do.")


class CancelBackfill(Document):
    """How to cancel a backfill."""

    in_flight: Literal["finish", "cancel"] = Field("finish", description="What runs already.")


class BackfillJob(Document):
    """Which job."""

    id: str
    name: str


class Backfill(Document):
    """A backfill and how far it is."""

    id: str
    job: BackfillJob
    state: Literal["running", "finished", "cancelled"] = Field(
        description="finished: every slot is dealt with and no launch of it is open."
    )
    from_: Instant = Field(alias="from")
    until: Instant
    order: Order
    existing: Existing
    per_minute: int | None
    max_count: int | None
    max_open: int
    reason: str
    total: int = Field(description="Slots of the range.")
    launched: int = Field(description="Launches made.")
    left_alone: int = Field(description="Slots that had a launch, or are older than the history.")
    remaining: int = Field(description="Slots still to deal with.")
    launches: dict[str, int] = Field(description="Its launches by state.")
    created_by: str
    created_at: Instant
    updated_at: Instant
    finished_at: Instant | None


class BackfillPage(Document):
    """A page of backfills."""

    items: list[Backfill]
    next_cursor: str | None


class SlotLaunch(Document):
    """The launch that a slot has."""

    id: str
    state: str


class BackfillSlot(Document):
    """A slot of the range."""

    at: Instant
    launch: SlotLaunch | None


class BackfillPreview(Document):
    """What a backfill would do; nothing is saved."""

    job: BackfillJob
    total: int = Field(description="Slots of the range.")
    to_launch: int | None = Field(description="How many would be launched; null: too many to say.")
    first: Instant | None
    last: Instant | None
    items: list[BackfillSlot] = Field(description="The first hundred, in the order asked for.")


NEW_BACKFILL = {
    "from": "2026-02-01T00:00:00Z",
    "until": "2026-03-01T00:00:00Z",
    "order": "oldest",
    "per_minute": 60,
    "reason": "the target was down",
}
DRY_BACKFILL = {**NEW_BACKFILL, "dry_run": True}
CANCEL_BACKFILL = {"in_flight": "finish"}
_JOB = {"id": JOB_ID, "name": "nightly-invoice-run"}
BACKFILL = {
    "id": "0195a1b2-3c4d-7e5f-8a6b-7c8d9e0f1a2b",
    "job": _JOB,
    "state": "running",
    "from": "2026-02-01T00:00:00Z",
    "until": "2026-03-01T00:00:00Z",
    "order": "oldest",
    "existing": "leave",
    "per_minute": 60,
    "max_count": None,
    "max_open": 1,
    "reason": "the target was down",
    "total": 28,
    "launched": 3,
    "left_alone": 20,
    "remaining": 5,
    "launches": {"succeeded": 2, "running": 1},
    "created_by": "key:abcdefgh",
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "finished_at": None,
}
BACKFILL_PREVIEW = {
    "job": _JOB,
    "total": 28,
    "to_launch": 8,
    "first": "2026-02-01T01:00:00Z",
    "last": "2026-02-28T01:00:00Z",
    "items": [
        {"at": "2026-02-01T01:00:00Z", "launch": {"id": LAUNCH_ID, "state": "succeeded"}},
        {"at": "2026-02-02T01:00:00Z", "launch": None},
    ],
}

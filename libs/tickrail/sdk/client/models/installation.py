"""What belongs to the installation: queues, tenants, schedulers, workers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tickrail.sdk.client.models.definitions import JobName
from tickrail.sdk.client.reading import Model, model


@model
class Rate(Model):
    """At most `count` launches start in each `per`."""

    count: int
    per: timedelta = timedelta(minutes=1)


@model
class TenantPart(Model):
    """What a tenant has set for its own launches in a queue."""

    max_running: int | None
    rate: Rate | None
    paused: bool
    paused_reason: str
    version: int


@model
class Depth(Model):
    """Launches in a queue; `later`: due later, as retries are, and those that a limit refused."""

    due: int
    later: int
    queued: int
    running: int


@model
class Queue(Model):
    """A queue of the installation, the kinds of target it serves, its limits for everybody.

    Attributes:
        tenant: the tenant's own part; None for operators.
        depth: of the tenant, or of all for operators; None in lists.
    """

    name: str
    kinds: tuple[str, ...]
    max_running: int | None
    rate: Rate | None
    paused: bool
    paused_reason: str
    version: int
    created_at: datetime
    tenant: TenantPart | None
    depth: Depth | None


@model
class Tenant(Model):
    """A tenant.

    Attributes:
        state: active, suspended or deleted.
        state_at: since when it is in its state; None: since it was made.
        weight: its share of turns among tenants.
        max_running: so many of its launches run at once.
        egress: what its targets may reach.
        kafka_topics: topics that its targets may send to.
        quotas: its own, by name: a number, a duration, or `unlimited`.
    """

    id: str
    name: str
    state: str
    state_reason: str
    state_at: datetime | None
    weight: int = 1
    max_running: int | None
    egress: Mapping[str, Any] | None
    kafka_topics: tuple[str, ...] = ()
    quotas: Mapping[str, Any]
    version: int
    created_at: datetime


@model
class Owner(Model):
    """The member that holds a partition's owner key."""

    name: str
    identity: str


@model
class Partition(Model):
    """A partition, its owner, and its epoch as PostgreSQL and etcd have it.

    Attributes:
        state: owned, moving, unowned, fence_behind or fence_ahead.
        lease_remaining: until the owner's lease ends.
    """

    partition: int
    state: str
    owner: Owner | None
    epoch: int
    claimed_epoch: int | None
    lease_remaining: timedelta | None
    taken_by: str
    taken_at: datetime | None
    tzdata: str


@model
class Drain(Model):
    """Since when and by whom a member is drained."""

    since: datetime | None
    by: str


@model
class Member(Model):
    """A scheduler; or a name that is drained and of which none is present."""

    name: str
    identity: str | None
    state: str
    weight: float | None
    partitions: int
    since: datetime | None
    lease_remaining: timedelta | None
    drain: Drain | None


@model
class Members(Model):
    """All schedulers; `drains_ignored`: drains have no effect, since everybody is drained."""

    items: tuple[Member, ...]
    next_cursor: str | None
    drains_ignored: bool


@model
class Drained(Model):
    """A drain that was asked for, and the members of the name as they then are."""

    name: str
    drains_ignored: bool
    items: tuple[Member, ...]


@model
class Worker(Model):
    """A worker process; `state`: active, draining or absent."""

    id: str
    name: str
    state: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    tasks: tuple[str, ...]
    version: str
    concurrency: int
    running: int
    draining: bool
    started_at: datetime
    seen_at: datetime


@model
class QueueLag(Model):
    """What of one queue and class waits and runs; for how long the first of each waits."""

    queue: str
    priority: str
    due: int
    queued: int
    running: int
    oldest_due: timedelta | None
    oldest_queued: timedelta | None


@model
class Lag(Model):
    """How far behind planning, publishing and starting are."""

    plan: timedelta
    publish: timedelta
    start: timedelta
    items: tuple[QueueLag, ...]
    next_cursor: str | None


@model
class ZoneChange(Model):
    """A next run that newer zone data moved; `versions` and `next_run_at` are before and after."""

    changed_at: datetime
    job: JobName
    tenant: str
    time_zones: tuple[str, ...]
    versions: Mapping[str, str]
    next_run_at: Mapping[str, datetime | None]


@model
class ZoneData(Model):
    """The zone data in use, and a page of the changes that it made."""

    version: str
    partitions: Mapping[str, int]
    items: tuple[ZoneChange, ...]
    next_cursor: str | None

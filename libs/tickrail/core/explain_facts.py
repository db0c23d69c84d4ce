"""What is read to explain where a launch stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from tickrail.core.ids import LaunchId, Partition
from tickrail.core.job_filter import JobState
from tickrail.core.limits import Limit
from tickrail.core.records import LaunchRecord
from tickrail.core.states import State


class Other(NamedTuple):
    """Another launch of the same tenant: of the job and open, or under the same key and running."""

    id: LaunchId
    state: State
    worker: str | None


class Cap(NamedTuple):
    """A limit that the launch falls under, and how many run under it.

    `shared`: the installation's, not the tenant's own; `queue`: of the queue, else of the tenant.
    """

    shared: bool
    queue: bool
    limit: Limit
    reason: str
    running: int


class Wait(NamedTuple):
    """The launch waits at a limit: which one, and for what (`core.limits`' reasons)."""

    shared: bool
    kind: str
    reason: str


class Ahead(NamedTuple):
    """How many stand before a launch: due ones of its lane, and messages of its Kafka partition.

    Counted up to a bound; those of other tenants are among them.
    """

    relay: int
    kafka: int


class Serving(NamedTuple):
    """Workers heard of lately that serve the launch's queue, and those that run its target."""

    queue: int
    target: int
    draining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Where a launch stands, as one transaction saw it.

    Attributes:
        now: the database's clock.
        launch: the launch.
        partition: of its job.
        kind: of its target.
        start_before: until when its first attempt must start.
        claim_expires_at: until when its worker holds it.
        publications: how often it was published.
        key: its concurrency key, or None.
        key_limit: how many may run under it.
        tenant_active: whether the tenant is.
        job_state: the job's.
        job_paused: who paused it, why, until when.
        overlap: the policy of the version that it runs.
        calendars: names of the version's calendars.
        others: open launches of the job that are not held, the oldest first, a few.
        held_before: held launches of the job before this one.
        holders: who runs under the key, a few.
        holding: how many run under the key.
        queue_there: whether there is such a queue.
        queue_paused: whether it is paused for everybody.
        caps: limits that it falls under.
        waits: where it waits.
        ahead: what stands before it.
        serving: which workers could take it.
        owner: the scheduler that owns the partition; None: nobody.
        owner_known: False: etcd did not say.
    """

    now: datetime
    launch: LaunchRecord
    partition: Partition
    kind: str
    start_before: datetime | None
    claim_expires_at: datetime | None
    publications: int
    key: str | None
    key_limit: int | None
    tenant_active: bool
    job_state: JobState
    job_paused: Mapping[str, Any] | None
    overlap: str
    calendars: Sequence[str]
    others: Sequence[Other]
    held_before: int
    holders: Sequence[Other]
    holding: int
    queue_there: bool
    queue_paused: bool
    caps: Sequence[Cap]
    waits: Sequence[Wait]
    ahead: Ahead
    serving: Serving
    owner: str | None = None
    owner_known: bool = False

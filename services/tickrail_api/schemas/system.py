"""Documents of members, partitions and workers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, Document, Duration, Instant


class Owner(Document):
    """The member that holds a partition's owner key."""

    name: str
    identity: str = Field(description="The name and a random part, never used twice.")


class Partition(Document):
    """A partition, its owner, and its epoch as PostgreSQL and etcd have it."""

    partition: int
    state: Literal["owned", "moving", "unowned", "fence_behind", "fence_ahead"] = Field(
        description="`moving`: another member should have it and gets it when the members are"
        " quiet. `fence_behind`: the owner's epoch is not stored yet, or was lost. `fence_ahead`:"
        " a higher epoch is stored, so etcd lost history."
    )
    owner: Owner | None = Field(description="By etcd; null: nobody.")
    epoch: int = Field(description="As stored in PostgreSQL; writes of a lower one are refused.")
    claimed_epoch: int | None = Field(description="As etcd has it: that of the owner key.")
    lease_remaining: Duration | None = Field(description="Until the owner's lease ends.")
    taken_by: str = Field(description="The identity that stored the epoch; empty: nobody ever.")
    taken_at: Instant | None
    tzdata: str = Field(description="The zone data by which its next runs were computed.")


class PartitionPage(Document):
    """A page of partitions."""

    items: list[Partition]
    next_cursor: str | None


class Drain(Document):
    """Since when and by whom a member is drained."""

    since: Instant | None
    by: str


class Member(Document):
    """A scheduler; or a name that is drained and of which none is present."""

    name: str
    identity: str | None = Field(description="Name and incarnation; null: none is present.")
    state: Literal["active", "draining", "drained", "drain_ignored", "absent"] = Field(
        description="`draining`: drained, and still owns partitions; `drained`: owns none;"
        " `drain_ignored`: every member that may own partitions is drained, so it owns its share;"
        " `absent`: drained and not present."
    )
    weight: float | None = Field(description="Its share against the others'; 0 owns none.")
    partitions: int = Field(description="How many it owns.")
    since: Instant | None = Field(description="When it became a member, by its own clock.")
    lease_remaining: Duration | None = Field(description="Until its lease ends unless renewed.")
    drain: Drain | None


class MemberPage(Document):
    """All members."""

    items: list[Member]
    next_cursor: str | None
    drains_ignored: bool = Field(
        description="Whether drains have no effect, since every member that may own partitions is"
        " drained: an unowned partition is worse."
    )


class Drained(Document):
    """A drain that was asked for, and the members of the name as they then are."""

    name: str
    drains_ignored: bool
    items: list[Member]


class Worker(Document):
    """A worker process."""

    id: str = Field(description="The name and a random part, new at each start.")
    name: str
    state: Literal["active", "draining", "absent"] = Field(
        description="`absent`: not heard of for 20 s; taken off the list after 60 s."
    )
    queues: list[str]
    kinds: list[str] = Field(description="The kinds of target that it runs.")
    tasks: list[str] = Field(description="The tasks that it knows.")
    version: str
    concurrency: int = Field(description="Runs that it holds open at most.")
    running: int
    draining: bool
    started_at: Instant
    seen_at: Instant


class WorkerPage(Document):
    """All workers."""

    items: list[Worker]
    next_cursor: str | None


class QueueLag(Document):
    """What of one queue and class waits and runs, of all tenants."""

    queue: str
    priority: Literal["high", "normal", "low"]
    due: int = Field(description="Due, and not published yet; also what a pause or a limit holds.")
    queued: int = Field(description="Published, and not started yet.")
    running: int
    oldest_due: Duration | None = Field(description="For how long the first of `due` is due.")
    oldest_queued: Duration | None = Field(
        description="For how long the first of `queued` is published."
    )


class Lag(Document):
    """How far behind each step is."""

    plan: Duration = Field(
        description="For how long the job that is due longest waits for its launch record: long"
        " where its partition has no owner."
    )
    publish: Duration = Field(description="The longest `oldest_due`: what schedulers owe Kafka.")
    start: Duration = Field(description="The longest `oldest_queued`: what workers have not read.")
    items: list[QueueLag]
    next_cursor: str | None


PARTITION = {
    "partition": 0,
    "state": "owned",
    "owner": {"name": "scheduler-1", "identity": "scheduler-1-5f1c9a02"},
    "epoch": 41,
    "claimed_epoch": 41,
    "lease_remaining": "8s",
    "taken_by": "scheduler-1-5f1c9a02",
    "taken_at": INSTANT,
    "tzdata": "2026c",
}
MEMBER = {
    "name": "scheduler-1",
    "identity": "scheduler-1-5f1c9a02",
    "state": "draining",
    "weight": 1.0,
    "partitions": 32,
    "since": INSTANT,
    "lease_remaining": "8s",
    "drain": {"since": INSTANT, "by": "operator:45s3mqrpn44coxpe"},
}
MEMBERS = {"items": [MEMBER], "next_cursor": None, "drains_ignored": False}
DRAINED = {"name": "scheduler-1", "drains_ignored": False, "items": [MEMBER]}
WORKER = {
    "id": "worker-1-5f1c9a02",
    "name": "worker-1",
    "state": "active",
    "queues": ["default"],
    "kinds": ["webhook", "kafka", "task"],
    "tasks": ["billing.close"],
    "version": "0.1.0",
    "concurrency": 256,
    "running": 12,
    "draining": False,
    "started_at": INSTANT,
    "seen_at": INSTANT,
}
LAG = {
    "plan": "0s",
    "publish": "2s",
    "start": "1s",
    "items": [
        {
            "queue": "default",
            "priority": "normal",
            "due": 120,
            "queued": 40,
            "running": 256,
            "oldest_due": "2s",
            "oldest_queued": "1s",
        }
    ],
    "next_cursor": None,
}

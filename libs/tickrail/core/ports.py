"""The database as the loops see it: ports and the rows that cross them.

The docstrings are the contract; `tests/contract/` holds every adapter to it. Each method is one
transaction. `UnavailableError` from any of them: the database does not answer, nothing is known of
the call's effect, and the next call opens a new connection.

Owner methods take `owned`, the partitions this process may act for with its epochs, and compare
each with the stored fence inside their transaction (docs/protocols.md 1). What was refused comes
back in a `FenceReport`; the rows of such partitions are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from tickrail.core.ids import (
    Claim,
    Epoch,
    JobId,
    LaunchId,
    Partition,
    TenantId,
)
from tickrail.core.limits import Limit, Scope
from tickrail.core.plan import Decision
from tickrail.core.policies import Concurrency
from tickrail.core.quotas import Reached
from tickrail.core.states import State
from tickrail.core.verdict import Verdict

Owned = Mapping[Partition, Epoch]


def in_turns(batch: int) -> int:
    """How many of a batch of due jobs go in turns where more are due than it holds."""
    return max(2, batch // 4)


@dataclass(frozen=True, slots=True)
class FenceReport:
    """Partitions refused by the fence.

    `higher`: another owner has raised the stored epoch above ours; step down. `lower`: the stored
    epoch is below ours, so the database lost our raise; take the partition again.
    """

    higher: Sequence[Partition] = ()
    lower: Sequence[Partition] = ()

    def __bool__(self) -> bool:
        """Whether anything was refused."""
        return bool(self.higher or self.lower)


class DueJob(NamedTuple):
    """A job whose next run has come. `plan` is the JSON text of its plan document.

    `last_slot`: up to where slots are decided on. `skip_next`: so many are to be left out by hand.
    `catch_up`: JSON text of a `core.catch_up.CatchUp`. `awaits`: the next run is
    measured from the end of a launch. `resume_at`: when a paused job's pause ends; of an active
    job, when a suspension of its tenant ended during which it became due.
    """

    id: JobId
    tenant: TenantId
    partition: Partition
    version: int
    due_at: datetime
    last_slot: datetime | None
    launched: int
    plan: str
    skip_next: int = 0
    catch_up: str | None = None
    awaits: bool = False
    resume_at: datetime | None = None


class EndedJob(NamedTuple):
    """A job that awaited the end of its launch, and when the last launch ended."""

    job: DueJob
    ended_at: datetime


class CalendarText(NamedTuple):
    """A calendar as stored: its version and the JSON text of its document.

    `made`: when it was made, microseconds; one that was deleted and made again has version 1 again.
    """

    version: int
    document: str
    made: int = 0


Calendars = Mapping[tuple[TenantId, str], CalendarText]
"""By tenant and name."""


class Lane(NamedTuple):
    """A class (by rank) of a queue: what shares a topic and its window."""

    queue: str
    priority: int


Place = tuple[Lane, Partition]
"""What of a lane is in a partition."""


class Publication(NamedTuple):
    """A due launch, with what a publication of it needs. `weight`: its tenant's share of turns.

    `trace`: the traceparent of the launch, where it is traced.
    """

    id: LaunchId
    scheduled_at: datetime
    job: JobId
    tenant: TenantId
    partition: Partition
    queue: str
    priority: int
    attempt: int
    due_at: datetime
    weight: int = 1
    trace: str | None = None

    @property
    def lane(self) -> Lane:
        """The class of the queue that it belongs to."""
        return Lane(self.queue, self.priority)


class NewLaunch(NamedTuple):
    """A launch record to insert. `trace`: its traceparent, where it is traced."""

    id: LaunchId
    scheduled_at: datetime
    due_at: datetime
    state: State
    queue: str
    priority: int
    max_attempts: int
    rerun: bool
    visibility: float
    start_before: datetime | None
    concurrency: Concurrency | None = None
    trace: str | None = None


class OpenCount(NamedTuple):
    """Open launches of a job, how many of them are held, and how many are of backfills."""

    open: int
    held: int
    backfilled: int = 0


class Planned(NamedTuple):
    """What the tick wants written for one due job. `error`: it could not be planned."""

    job: DueJob
    decision: Decision
    launches: Sequence[NewLaunch]
    error: str | None = None


class NamesCalendars(Protocol):
    """A planner that needs calendars."""

    def calendars(self, job: DueJob) -> Sequence[str]:
        """The calendars that planning the job needs."""
        ...


class Planner(NamesCalendars, Protocol):
    """Called inside the tick's transaction; must not block."""

    def needs_open(self, job: DueJob) -> bool:
        """Whether planning the job needs the number of its open launches."""
        ...

    def plan(
        self,
        jobs: Sequence[DueJob],
        opened: Mapping[JobId, OpenCount],
        calendars: Calendars,
        now: datetime,
        oldest: datetime,
        rooms: dict[TenantId, int],
    ) -> Sequence[Planned]:
        """Decide for the jobs in their order; `oldest`: the oldest slot that is still recorded.

        The last ones may be left out when there is enough to write; never the first. `rooms`: how
        many launches a tenant may still make, where it has such a quota; taken from here. Slots
        beyond are skipped.
        """
        ...

    def resume(
        self, jobs: Sequence[DueJob], calendars: Calendars, now: datetime, oldest: datetime
    ) -> Sequence[Planned]:
        """Decide for paused jobs whose time to resume has come."""
        ...

    def complete(
        self, jobs: Sequence[EndedJob], calendars: Calendars, now: datetime
    ) -> Sequence[Planned]:
        """Decide for jobs whose awaited launch has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one tick did.

    `inserted` are the new due launches; `next_due` the next instant a job of these partitions waits
    for (None: nothing waits); `full`: there is more to do now. `reached`: how much of their quotas
    tenants have used now, where they are told of it.
    """

    now: datetime
    jobs: int = 0
    inserted: Sequence[Publication] = ()
    existed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    errors: int = 0
    cancelled: int = 0
    full: bool = False
    next_due: datetime | None = None
    fence: FenceReport = field(default_factory=FenceReport)
    reached: Sequence[tuple[TenantId, Reached]] = ()


class Load(NamedTuple):
    """A limit, how many are under way to it (published, or refused by it), how many run."""

    limit: Limit
    under_way: int
    running: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Due launches found for the relay, what is in flight already, and what is limited."""

    now: datetime
    due: Sequence[Publication] = ()
    queued: Mapping[Place, int] = field(default_factory=dict)
    loads: Mapping[Scope, Load] = field(default_factory=dict)
    limited: bool = False
    waits: bool = False
    next_due: datetime | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Marked:
    """Which publications became `queued`; the rest had moved on (an ordinary answer)."""

    marked: int = 0
    fence: FenceReport = field(default_factory=FenceReport)


class LostClaim(NamedTuple):
    """A running launch whose claim has expired."""

    id: LaunchId
    scheduled_at: datetime
    job: JobId
    partition: Partition
    attempt: int
    failures: int
    max_attempts: int
    rerun: bool
    claim: Claim
    expires_at: datetime
    worker: str
    retry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass of the owner's housekeeping moved, by kind."""

    moved: Mapping[str, int] = field(default_factory=dict)
    fence: FenceReport = field(default_factory=FenceReport)

    @property
    def total(self) -> int:
        """Rows moved."""
        return sum(self.moved.values())


class OwedLetter(NamedTuple):
    """A launch that ended dead or abandoned and whose dead letter is not published yet."""

    id: LaunchId
    scheduled_at: datetime
    job: JobId
    job_name: str
    tenant: TenantId
    partition: Partition
    queue: str
    attempt: int
    failures: int
    redrive_count: int
    state: State
    result: Mapping[str, Any]
    finished_at: datetime
    history: Sequence[Mapping[str, Any]]


class OwnerStore(Protocol):
    """What the owner of partitions does in the database; one thread, one connection."""

    def tick(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Turn due jobs into launch records and move their next run, in one transaction.

        Locks up to `limit` due jobs (those locked elsewhere are left for the next tick), then the
        fence rows, asks the planner, inserts launches and skips (a record that is there already is
        left as it is), moves the jobs on. Where more are due than that, `in_turns` of the batch go
        first and in turns: tenants, and of each the job that has just become due and the one that
        waits longest. Jobs that the planner left out stay due, and so do those of a tenant whose
        quotas of launches another transaction holds: they are tried again soon.
        """
        ...

    def resume(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Let paused jobs go on whose time to resume has come."""
        ...

    def complete(self, owned: Owned, limit: int, planner: Planner) -> Ticked:
        """Measure the next run of active jobs that awaited the end of a launch, once it is there.

        Open launches of backfills are not waited for. The end is that of the job's last launch by
        scheduled instant, backfills aside; without any, the last slot, or now.
        """
        ...

    def queued(self, owned: Owned) -> Mapping[Place, int]:
        """How much of each lane in each partition is published and not started."""
        ...

    def backlog(
        self, owned: Owned, limit: int, others: Collection[tuple[TenantId, str]] = ()
    ) -> Backlog:
        """Due launches whose time has come, the oldest `limit` of each tenant in each lane.

        Of each partition, that is. What is paused is left out. `loads` has the limits of the
        tenants and queues found, and of `others`; `limited`: there are any at all;
        `waits`: a launch waits at one, `rouse` may have something to do.
        """
        ...

    def rouse(self, owned: Owned) -> Swept:
        """Make due, since when they were, launches that wait at a limit and may try again.

        Those whose token has come, and as many as there are places that nobody told them of.
        """
        ...

    def mark_queued(self, owned: Owned, published: Sequence[Publication]) -> Marked:
        """Record publications: `due` with the published attempt -> `queued`.

        Rows locked by somebody (being claimed or cancelled) are passed over.
        """
        ...

    def mark_unpublishable(self, owned: Owned, dead: Sequence[Publication], reason: str) -> Marked:
        """`due` with this attempt -> `dead`, dead letter owed: it can never be published."""
        ...

    def sweep(self, owned: Owned, lost_after: timedelta, limit: int) -> Swept:
        """What time alone makes due, in one transaction.

        `queued` for longer than `lost_after` (doubled at each further publication, up to an hour)
        -> `due`, same attempt (`lost_message`); first attempts past their start deadline ->
        `expired`; held launches whose job has no other open one -> `due`, the oldest of each job
        (`released`). What does not run of a tenant that is deleted -> `cancelled`.
        """
        ...

    def reap(self, owned: Owned, limit: int, decide: Callable[[LostClaim], Verdict]) -> Swept:
        """End claims that expired.

        Each update names the claim and the expiry that it saw and takes a cancel request as it
        then is; zero rows is an ordinary answer. Rows locked by somebody are passed over.
        """
        ...

    def owed(self, owned: Owned, older_than: timedelta, limit: int) -> Sequence[OwedLetter]:
        """Dead letters owed for longer than this."""
        ...

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        """Record that the dead letter of (launch, scheduled instant, attempt) is published."""
        ...

    def dead_letters(self, most: int) -> int:
        """How many launches of all partitions are dead letters, counted up to `most`."""
        ...

    def make_days(self, ahead: int) -> int:
        """Make the history's days up to `ahead` days from now; how many were not known yet."""
        ...

    def drop_days(self) -> int:
        """Drop the days before the history's horizon that hold nothing open; how many.

        Places and waits under limits that are over are forgotten, too.
        """
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...

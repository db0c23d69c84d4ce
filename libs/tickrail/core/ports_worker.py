"""The database as a worker sees it: claims, their ends, and the rows that cross.

As in `core.ports`: the docstrings are the contract, each method is one transaction, and
`UnavailableError` says that nothing is known of the call's effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from tickrail.core.ids import (
    ORIGIN_SCHEDULE,
    Claim,
    JobId,
    LaunchId,
    Partition,
    TenantId,
)
from tickrail.core.messages import UndecodableLetter
from tickrail.core.ports import OwedLetter
from tickrail.core.states import State
from tickrail.core.verdict import Verdict


class ClaimRequest(NamedTuple):
    """What a message asks for."""

    id: LaunchId
    scheduled_at: datetime
    attempt: int


class Claimed(NamedTuple):
    """A claim that was granted.

    `definition` is the JSON text of the version it was planned with; `payload` the override of a
    trigger or a backfill, as JSON text, or None. `limited`: it holds a place under a limit, which
    its end must give back.
    """

    id: LaunchId
    scheduled_at: datetime
    job: JobId
    job_version: int
    tenant: TenantId
    partition: Partition
    queue: str
    attempt: int
    failures: int
    max_attempts: int
    rerun: bool
    visibility: float
    due_at: datetime
    claim: Claim
    definition: str
    payload: str | None
    redrive_count: int
    origin: str = ORIGIN_SCHEDULE
    limited: bool = False


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """Claims granted; for the rest of the requests, why not.

    `refused` holds, by launch id, one of `duplicate` (running or queued again under a later
    attempt's message), `stale` (an attempt that is over), `early` (not due yet), `cancelled`,
    `expired`, `ended`, `unknown` (no such launch), or one of `core.limits.THROTTLED`: a limit
    stands in the way, the launch is due again and published when it may be tried.
    """

    now: datetime
    granted: Sequence[Claimed] = ()
    refused: Mapping[LaunchId, str] = field(default_factory=dict)


class Finish(NamedTuple):
    """The end of an attempt.

    `verdict` applies unless a cancel was asked for; `result` is the JSON text kept on the launch;
    `wakes`: the job may have a held launch that waits for this end; `limited`: as in the claim.
    """

    id: LaunchId
    scheduled_at: datetime
    claim: Claim
    attempt: int
    verdict: Verdict
    outcome: str
    certain: bool
    code: int | None
    message: str
    body: str
    result: str
    wakes: bool = False
    limited: bool = False


@dataclass(frozen=True, slots=True)
class FinishAnswer:
    """What became of each finish: the launch's state after it; `stale` ones changed nothing."""

    states: Mapping[LaunchId, State] = field(default_factory=dict)
    stale: Sequence[LaunchId] = ()


class Extension(NamedTuple):
    """A claim to keep, until `visibility` seconds from now."""

    id: LaunchId
    scheduled_at: datetime
    claim: Claim
    visibility: float


@dataclass(frozen=True, slots=True)
class ExtendAnswer:
    """Claims still held, and those of them whose cancel was asked for; the rest is gone."""

    held: frozenset[LaunchId] = frozenset()
    cancel: frozenset[LaunchId] = frozenset()


class TargetName(NamedTuple):
    """What a job's target is. `name`: of a task; empty for other kinds."""

    kind: str
    name: str = ""


class WorkerStore(Protocol):
    """What a worker does in the database. Safe to use from several threads."""

    def targets(
        self, jobs: Collection[JobId], kinds: Collection[str]
    ) -> Mapping[JobId, TargetName]:
        """The targets of those of these jobs that have one of these kinds, as defined now."""
        ...

    def claim(self, requests: Sequence[ClaimRequest], worker: str) -> ClaimAnswer:
        """Claim what can start now: `due` or `queued`, the attempt as asked, its time come."""
        ...

    def finish(self, ends: Sequence[Finish]) -> FinishAnswer:
        """Record the ends of attempts: where the launch is running under this claim."""
        ...

    def extend(self, claims: Sequence[Extension], ceiling: timedelta) -> ExtendAnswer:
        """Keep claims for longer; refused for a run that began more than `ceiling` ago."""
        ...

    def asked_to_stop(self, launches: Sequence[tuple[LaunchId, datetime]]) -> frozenset[LaunchId]:
        """Those of these running launches whose cancel was asked for."""
        ...

    def owed(self, launches: Sequence[tuple[LaunchId, datetime]]) -> Sequence[OwedLetter]:
        """The dead letters that these launches owe."""
        ...

    def settle(self, letters: Sequence[tuple[LaunchId, datetime, int]]) -> int:
        """Record that the dead letter of (launch, scheduled instant, attempt) is published."""
        ...

    def keep_undecodable(self, letter: UndecodableLetter, queue: str) -> None:
        """Record a message that cannot be read, its first 64 KiB; a second time changes nothing."""
        ...

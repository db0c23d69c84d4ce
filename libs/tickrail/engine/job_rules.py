"""What the use cases of jobs share: rules, preconditions, and finding the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tickrail.core.catch_up import stored_catch_up
from tickrail.core.definition import Plan, instant_text, parse_plan
from tickrail.core.errors import (
    InvalidInputError,
    NotFoundError,
    PreconditionFailedError,
    Problem,
)
from tickrail.core.plan import Situation
from tickrail.core.ports_api import JobRecord, JobRef, SkippedRun, Transaction
from tickrail.core.timetable import Allowance

PAUSED = "paused"
SKIPPED_BY_HAND = "skipped_by_hand"
EXCLUDED = "excluded"
UNDECIDED = "undecided"
"""Of a slot to come: its instant has passed, and no scheduler has launched it or left it out."""


TargetCheck = Callable[[Any], list[Problem]]
"""A further check of one target."""


@dataclass(frozen=True, slots=True)
class JobRules:
    """What an installation says of jobs.

    Attributes:
        partitions: P.
        history: how far back a slot may lie and still be recorded.
        check_target: further checks of a target, under the tenant's egress lists (the egress
            guard); may ask a name server.
        topic_prefix: first part of the names of Tickrail's own topics.
        check_targets: the same for the many targets of one request: makes a check under the
            tenant's lists that asks for each host once and within a bound of all of them together.
    """

    partitions: int
    history: timedelta = timedelta(days=30)
    check_target: Callable[[Any, Mapping[str, Any] | None], list[Problem]] | None = None
    topic_prefix: str = "tickrail"
    check_targets: Callable[[Mapping[str, Any] | None], TargetCheck] | None = None


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a caller demands of the job's present version (If-Match, If-None-Match).

    `versions` None: any. `exists` True: there must be a job; False: there must be none.
    """

    versions: frozenset[int] | None = None
    exists: bool | None = None


ANY = Precondition()


def require(tx: Transaction, ref: JobRef, *, lock: bool = False) -> JobRecord:
    """The job.

    Raises:
        NotFoundError: this tenant has no such job.
    """
    job = tx.jobs.find(ref, lock=lock)
    if job is None:
        what = f"of the name {ref!r}" if isinstance(ref, str) else f"with the id {ref}"
        raise NotFoundError(f"There is no job {what}.")
    return job


def plan_of(tx: Transaction, job: JobRecord) -> Plan:
    """The job's plan, its calendars with it."""
    return resolve(tx, parse_plan(job.plan, job=job.id, now=tx.now))


def resolve(tx: Transaction, plan: Plan, *, lock: bool = False) -> Plan:
    """The plan with the calendars that it names; `lock` shares their rows until the commit.

    Raises:
        InvalidInputError: one of them is not there.
        InProgressError: one of them is being changed at this moment.
    """
    use = plan.calendars
    if use is None:
        return plan
    found = tx.calendars.load(use.names, lock=lock)
    problems = [
        Problem(f"/calendars/{field}/{i}", f"there is no calendar {name!r}", "an existing calendar")
        for field, names in (("exclude", use.exclude), ("include", use.include))
        for i, name in enumerate(names)
        if name not in found
    ]
    if problems:
        raise InvalidInputError("The job is not valid.", problems)
    allowance = Allowance(
        tuple(found[name] for name in use.exclude),
        tuple(found[name] for name in use.include),
        use.on_excluded,
    )
    return replace(plan, allowance=allowance)


def check_version(tx: Transaction, job: JobRecord | None, wanted: Precondition) -> None:
    """Hold a precondition against the job as it is.

    Raises:
        PreconditionFailedError: says what changed since the newest version that was named.
    """
    if wanted.exists is False and job is not None:
        raise PreconditionFailedError(f"The job is there already, at version {job.version}.")
    if wanted.exists and job is None:
        raise PreconditionFailedError("There is no such job.")
    if job is None or wanted.versions is None or job.version in wanted.versions:
        return
    newest = max(wanted.versions, default=0)
    before = tx.jobs.definition_of(job.id, newest)
    problems = [
        Problem(f"/{name}", "is not as in the version named")
        for name, value in job.definition.items()
        if before is not None and not same(before.get(name), value)
    ]
    raise PreconditionFailedError(
        f"The job is at version {job.version}, not {newest}: read it again.", problems
    )


def within_history(
    runs: Sequence[SkippedRun], reason: str, now: datetime, history: timedelta
) -> list[SkippedRun]:
    """The runs with a reason, their ends moved to where the history still has room.

    What a calendar left out keeps its reason.
    """
    oldest = (now - history).replace(microsecond=0)
    return [
        SkippedRun(
            EXCLUDED if r.reason == EXCLUDED else reason,
            max(r.first, oldest),
            max(r.last, oldest),
            r.count,
        )
        for r in runs
    ]


def pause_note(tx: Transaction, until: datetime | None, reason: str) -> dict[str, Any]:
    """Who paused a job, when, why and until when."""
    return {
        "by": tx.actor,
        "at": instant_text(tx.now.replace(microsecond=0)),
        "reason": reason,
        "until": instant_text(until),
    }


def situation(job: JobRecord) -> Situation:
    """A paused or overdue job as the planner wants it."""
    due = job.next_run_at or datetime.max.replace(tzinfo=UTC)
    return Situation(
        job.id,
        due,
        launched=job.launched,
        last_slot=job.last_slot_at,
        skip_next=job.skip_next,
        catch_up=None if job.catch_up is None else stored_catch_up(job.catch_up),
    )


def same(a: Any, b: Any) -> bool:  # noqa: ANN401 - JSON values
    """Whether two JSON values are the same: 2 is 2.0, and 1 is not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)

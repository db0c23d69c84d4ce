"""What is legal in a job but probably not meant, as those who write and read it are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tickrail.core.definition import Plan, parse_plan
from tickrail.core.errors import TickrailError
from tickrail.core.job_filter import JobState
from tickrail.core.lint import HERD, LintWarning, herd, lint, untold
from tickrail.core.ports_api import JobRecord, Transaction


def crowd_hints(
    tx: Transaction, at: datetime | None, told: Iterable[LintWarning]
) -> list[LintWarning]:
    """The warning that many jobs of the tenant wait for this very instant, where they do.

    A schedule that holds an `H` is not warned: it does what the warning asks for, and may land in
    the crowd by its hash.

    Args:
        tx: the transaction of the tenant.
        at: the next run; None warns of nothing.
        told: the warnings about the schedule itself.
    """
    if at is None or any(warning.code == "hashed" for warning in told):
        return []
    if tx.jobs.waiting_at(at, HERD) < HERD:
        return []
    return [herd(at)]


def plan_hints(plan: Plan, now: datetime) -> list[LintWarning]:
    """Warnings about the schedule of a plan."""
    return lint(plan.schedule, max(now, plan.starts_at or now))


def failure_hints(definition: Mapping[str, Any]) -> list[LintWarning]:
    """Warnings about what a canonical document wants when launches fail."""
    wanted = definition.get("on_failures") or {}
    return untold(
        wanted.get("pause_after") is not None,
        wanted.get("expect_success_every") is not None,
        bool(wanted.get("notify")),
    )


def job_hints(
    tx: Transaction, job: JobRecord, *, crowd: bool = False, plan: Plan | None = None
) -> list[LintWarning]:
    """Warnings about a job, and about the crowd that its next run is in if asked.

    `plan`: its plan, where the caller has read it.
    """
    try:
        found = plan_hints(plan or parse_plan(job.plan, job=job.id, now=tx.now), tx.now)
    except TickrailError:
        return []  # a plan that this version cannot read; the job's `error` says it
    found += failure_hints(job.definition)
    if crowd and job.state is JobState.ACTIVE:
        found += crowd_hints(tx, job.next_run_at, found)
    return found

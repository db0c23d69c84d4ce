"""What a tenant's quotas leave room for: asked where jobs and launches are made by a request."""

from __future__ import annotations

from math import ceil

import structlog

from tickrail.core.definition import MAX_PAYLOAD, Definition, Plan, payload_size
from tickrail.core.durations import format_duration
from tickrail.core.errors import (
    InvalidInputError,
    Problem,
    QuotaExceededError,
    RateLimitedError,
)
from tickrail.core.ports_api import Transaction
from tickrail.core.quotas import Counted, Quota, Reached, reached, reached_document, window_of
from tickrail.core.spacing import closest

log = structlog.get_logger("tickrail.quotas")


def check_definition(tx: Transaction, definition: Definition, plan: Plan) -> None:
    """Hold a definition against the tenant's quotas: its payload, and how often it is due.

    Args:
        tx: the transaction in which it is written.
        definition: of a job that is made, changed or brought back.
        plan: its plan, the calendars with it.

    Raises:
        InvalidInputError: it has more than the quotas allow; with every problem.
    """
    problems = _payload_problems(tx, definition.payload)
    least = tx.quotas.read().min_interval
    found = None if least is None else closest(plan, tx.now, least)
    if found is not None and least is not None:
        problems.append(
            Problem(
                "/schedule",
                f"is due twice within {format_duration(found)}",
                f"at least {format_duration(least)} between two slots: a quota of the tenant",
            )
        )
    if problems:
        raise InvalidInputError("The job is not valid.", problems)


def check_payload(tx: Transaction, payload: object) -> None:
    """Hold the payload of a launch against the tenant's quota.

    Raises:
        InvalidInputError: it is too large.
    """
    problems = _payload_problems(tx, payload)
    if problems:
        raise InvalidInputError("The payload is too large.", problems)


def _payload_problems(tx: Transaction, payload: object) -> list[Problem]:
    most = tx.quotas.read().payload_bytes
    if payload is None or most >= MAX_PAYLOAD:
        return []
    size = payload_size(payload)
    if size <= most:
        return []
    return [Problem("/payload", f"has {size} bytes", f"at most {most}: a quota of the tenant")]


def admit_job(tx: Transaction) -> None:
    """Go on only while there is room for one more job; no other is made until the commit.

    Before the first job of the transaction is written; `note_job` follows each that was.

    Raises:
        QuotaExceededError: there is none.
    """
    most = tx.quotas.read().jobs
    if most is None:
        return
    there = tx.quotas.hold_jobs(most)
    if there >= most:
        raise QuotaExceededError(
            f"The tenant may have {most} jobs and has {there}: delete some, or ask an operator for"
            f" more (quota {Quota.JOBS}).",
            quota=Quota.JOBS,
        )


def note_job(tx: Transaction) -> None:
    """A job was made that `admit_job` let through; tells of the levels that this reaches."""
    most = tx.quotas.read().jobs
    if most is None:
        return
    there = tx.quotas.hold_jobs(most)
    tx.quotas.add_job()
    counted = Counted(Quota.JOBS, window_of(Quota.JOBS, tx.now), most)
    before = reached(counted, there)
    told = 0 if before is None else before.percent
    _tell(tx, reached(counted._replace(used=there, told=told), 1))


def hold_launches(tx: Transaction) -> list[Counted]:
    """Go on only while there is room for one more launch; before a launch is touched.

    Raises:
        RateLimitedError: there is none in this minute, or on this day.
    """
    held = list(tx.quotas.hold_launches())
    full = [c for c in held if not c.left]
    if full:
        last = max(full, key=lambda c: c.window.ends_at)
        wait = (last.window.ends_at - tx.now).total_seconds()
        raise RateLimitedError(
            f"The tenant may launch {last.limit} times"
            f" a {'minute' if last.quota is Quota.LAUNCHES_PER_MINUTE else 'day'} and has done so"
            f" (quota {last.quota}).",
            retry_after=max(1, ceil(wait)),
            quota="launches",
        )
    return held


def note_launch(tx: Transaction, held: list[Counted]) -> None:
    """A launch was made that `hold_launches` let through."""
    tx.quotas.count_launches(held, 1)
    for one in held:
        _tell(tx, reached(one, 1))


def _tell(tx: Transaction, level: Reached | None) -> None:
    if level is not None and tx.quotas.tell(level):
        log.info("quota_reached", tenant=str(tx.tenant), **reached_document(level))

"""Jobs that expect a success every so often: who is silent, and when to look again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from tickrail.core.definition import instant_text
from tickrail.core.durations import format_duration
from tickrail.core.ids import JobId, TenantId
from tickrail.core.on_failures import channels_of
from tickrail.core.ports_notice import NewNotice, NoticeKind

AGAIN: Final = timedelta(seconds=30)
"""A silent job is looked at so often: whether it has succeeded again."""


class ExpectingJob(NamedTuple):
    """A job whose success was due, as it is found.

    Attributes:
        id: the job.
        tenant: whose it is.
        name: its name.
        every: it is silent when so much time has passed without a success.
        silent_since: since when it is silent, where that was told already.
        now: the present.
        works: whether it and its tenant are active; of others no success is expected.
        since: from when on the time counts: its last success that is known, when the expectation
            was set, when the job or its tenant went on.
        on_failures: its canonical document.
        succeeded_at: the latest success after that.
    """

    id: JobId
    tenant: TenantId
    name: str
    every: timedelta
    silent_since: datetime | None
    now: datetime
    works: bool
    since: datetime
    on_failures: Mapping[str, Any] | None
    succeeded_at: datetime | None


class Expectation(NamedTuple):
    """When to look next; since when the job is silent; whether that is new and is told."""

    due_at: datetime
    silent_since: datetime | None = None
    tell: bool = False


def verdict_of(job: ExpectingJob) -> Expectation:
    """What becomes of a job whose success was due."""
    if not job.works:
        # It counts anew from when it goes on, which is within this time or after it.
        return Expectation(job.now + job.every)
    since = job.since if job.succeeded_at is None else max(job.since, job.succeeded_at)
    if since + job.every > job.now:
        return Expectation(since + job.every)
    known = job.silent_since is not None and job.succeeded_at is None and since == job.silent_since
    return Expectation(job.now + AGAIN, since, tell=not known)


def silence_notice(job: ExpectingJob, since: datetime) -> NewNotice:
    """That a job has had no success for too long; without channels where nobody is to be told."""
    every = format_duration(job.every)
    return NewNotice(
        job.tenant,
        NoticeKind.JOB_SILENT,
        f"job:{job.id}",
        f"{job.name}: no success since {instant_text(since)}; one is expected every {every}",
        {
            "job": {"id": str(job.id), "name": job.name},
            "silence": {"since": instant_text(since), "expect_success_every": every},
        },
        [channel for _, channel in channels_of(job.on_failures)],
    )

"""Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tickrail.sdk.client.errors import ApiError, ApiProblem, error_class
from tickrail.sdk.client.models.launches import Launch
from tickrail.sdk.client.reading import Model, model


@model
class Misfire(Model):
    """What becomes of slots that are late by more than `grace`."""

    policy: str = "fire_once"
    grace: timedelta = timedelta(minutes=1)
    max_count: int = 10
    max_age: timedelta = timedelta(days=1)
    order: str = "oldest"
    per_minute: int = 60


@model
class Retry(Model):
    """Exponential backoff with jitter; `max_attempts` counts failures."""

    max_attempts: int = 5
    initial: timedelta = timedelta(seconds=2)
    multiplier: float = 2.0
    max: timedelta = timedelta(hours=1)
    jitter: float = 0.2
    on: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()


@model
class CalendarUse(Model):
    """The calendars of a job."""

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    on_excluded: str = "skip"


@model
class Concurrency(Model):
    """At most `limit` launches of the tenant with the same `key` run at a time."""

    key: str
    limit: int = 1


@model
class PausedNote(Model):
    """Who paused a job, when, why and until when.

    `launch`: the one after whose end the job paused itself (`by` is `system`).
    """

    by: str
    at: datetime
    reason: str
    until: datetime | None
    launch: str | None


@model
class OnFailures(Model):
    """What becomes of launches that end dead or abandoned, and of a job that is silent."""

    pause_after: int | None
    notify: tuple[str, ...] = ()
    expect_success_every: timedelta | None = None


@model
class Warn(Model):
    """What is legal but probably not meant."""

    code: str
    message: str
    pointer: str


@model
class Job(Model):
    """A job, every default filled in.

    Attributes:
        schedule: the schedule's document; None: by hand only.
        target: the target's document.
        version: counts definitions; for `if_match`.
        state: active, paused, finished or deleted.
        schedule_words: the schedule in plain English.
        error: why the job cannot be planned, if it cannot.
    """

    id: str
    name: str
    description: str = ""
    tags: Mapping[str, str]
    schedule: Mapping[str, Any] | None
    starts_at: datetime | None
    ends_at: datetime | None
    max_launches: int | None
    jitter: timedelta = timedelta(0)
    calendars: CalendarUse | None
    misfire: Misfire = Misfire()
    overlap: str = "skip"
    if_uncertain: str = "rerun"
    target: Mapping[str, Any]
    payload: Any
    queue: str = "default"
    priority: str = "normal"
    concurrency: Concurrency | None
    timeout: timedelta = timedelta(minutes=1)
    start_deadline: timedelta | None
    visibility_timeout: timedelta = timedelta(seconds=30)
    retry: Retry = Retry()
    on_failures: OnFailures | None
    version: int
    state: str
    paused: PausedNote | None
    next_run_at: datetime | None
    last_launch: Launch | None
    partition: int
    schedule_words: str | None
    skip_next: int
    error: str | None
    silent_since: datetime | None
    created_at: datetime
    updated_at: datetime


@model
class JobAnswer(Job):
    """A job read or saved by itself; `lint` says what is legal but probably not meant."""

    lint: tuple[Warn, ...] = ()


@model
class Problem(Model):
    """One thing wrong with a request."""

    pointer: str
    message: str
    expected: str


@model
class JobProblem(Model):
    """Why a job of a batch was not created."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: tuple[Problem, ...]

    def exception(self) -> ApiError:
        """The error that the job alone would have raised."""
        problems = tuple(ApiProblem(p.pointer, p.message, p.expected) for p in self.errors)
        kind = error_class(self.code, self.status)
        return kind(self.status, self.code, self.detail, problems)


@model
class JobResult(Model):
    """What became of a job of a batch: `job` or `error`."""

    status: int
    job: JobAnswer | None
    error: JobProblem | None


@model
class JobResults(Model):
    """What became of the jobs of a batch, in the order of the request."""

    items: tuple[JobResult, ...]
    created: int
    failed: int
    dry_run: bool


@model
class JobVersion(Model):
    """A saved definition of a job: its document, and who wrote it."""

    version: int
    definition: Mapping[str, Any]
    created_at: datetime
    created_by: str

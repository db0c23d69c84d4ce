"""Jobs, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from tickrail.sdk.client.documents.parts import (
    CalendarUse,
    Concurrency,
    Misfire,
    OnFailures,
    Retry,
    Schedule,
    Target,
)
from tickrail.sdk.client.documents.values import (
    Duration,
    InFlight,
    Instant,
    Order,
    Overlap,
    Priority,
)


class JobMembers(TypedDict, total=False):
    """What a job may have beside its name and target."""

    description: str
    tags: Mapping[str, str]
    schedule: Schedule | None
    starts_at: Instant | None
    ends_at: Instant | None
    max_launches: int | None
    jitter: Duration
    calendars: CalendarUse | None
    misfire: Misfire
    overlap: Overlap
    if_uncertain: Literal["rerun", "skip"]
    payload: Any
    queue: str
    priority: Priority
    concurrency: Concurrency | None
    timeout: Duration
    start_deadline: Duration | None
    visibility_timeout: Duration
    retry: Retry
    on_failures: OnFailures | None


class NewJob(JobMembers, total=False):
    """A job to create, or to put in the place of another."""

    name: Required[str]
    target: Required[Target]
    paused: bool


class JobChanges(TypedDict, total=False):
    """Parts of a job to change: a JSON merge patch, in which None takes a member away."""

    name: str
    description: str | None
    tags: Mapping[str, str | None] | None
    schedule: Schedule | None
    starts_at: Instant | None
    ends_at: Instant | None
    max_launches: int | None
    jitter: Duration | None
    calendars: CalendarUse | None
    misfire: Misfire | None
    overlap: Overlap | None
    if_uncertain: Literal["rerun", "skip"] | None
    target: Target
    payload: Any
    queue: str | None
    priority: Priority | None
    concurrency: Concurrency | None
    timeout: Duration | None
    start_deadline: Duration | None
    visibility_timeout: Duration | None
    retry: Retry | None
    on_failures: OnFailures | None


class Pause(TypedDict, total=False):
    """How to pause a job."""

    until: Instant | None
    reason: str
    in_flight: InFlight


class CatchUp(TypedDict, total=False):
    """The bounds within which slots that passed during a pause are launched."""

    max_count: int
    max_age: Duration
    order: Order
    per_minute: int


class Resume(TypedDict, total=False):
    """How to let a job go on."""

    catch_up: Literal["none", "policy"] | CatchUp


class JobFilter(TypedDict, total=False):
    """Which jobs: those that meet every member."""

    tag: Sequence[str]
    name_prefix: str
    queue: str
    state: Sequence[Literal["active", "paused", "finished"]]


class PauseMany(Pause, total=False):
    """Which jobs to pause, and how."""

    filter: Required[JobFilter]


class ResumeMany(Resume, total=False):
    """Which jobs to let go on, and how."""

    filter: Required[JobFilter]


class Trigger(TypedDict, total=False):
    """A launch by hand: what of it differs from the job."""

    payload: Any
    priority: Priority
    overlap: Overlap
    copy_of: str


class NewBackfill(TypedDict, total=False):
    """A past range of a job's slots to launch."""

    from_: Required[Instant]
    until: Required[Instant]
    order: Order
    per_minute: int | None
    max_count: int | None
    max_open: int | None
    existing: Literal["leave", "launch"]
    payload: Any
    reason: str


class NewJobs(TypedDict, total=False):
    """Jobs to create."""

    jobs: Required[Sequence[NewJob]]
    dry_run: bool

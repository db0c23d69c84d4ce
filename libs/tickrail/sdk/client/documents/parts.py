"""The parts of a job's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from tickrail.sdk.client.documents.values import (
    Duration,
    Instant,
    Order,
    SecretName,
)


class Pattern(TypedDict, total=False):
    """Every so many days, weeks, months or years, on a day, at a local time."""

    every: int
    unit: Required[Literal["day", "week", "month", "year"]]
    on: int | str
    at: str
    anchor: str


class Schedule(TypedDict, total=False):
    """When a job runs: one of `cron`, `every`, `calendar`, `at` and `any_of`, with its options."""

    cron: str
    every: Duration
    anchor: Instant
    measured_from: Literal["schedule", "completion"]
    calendar: Pattern
    at: Instant
    any_of: Sequence[Schedule]
    time_zone: str
    gap: Literal["after", "shift", "skip"]
    fold: Literal["first", "second", "both"]


class Tls(TypedDict, total=False):
    """Certificates of a call."""

    ca: SecretName
    client_certificate: SecretName
    client_key: SecretName


class Signature(TypedDict):
    """The secrets that a call is signed with."""

    secrets: Sequence[SecretName]


class Webhook(TypedDict, total=False):
    """An HTTP call."""

    url: Required[str]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    headers: Mapping[str, str | SecretName]
    success: str | int | Sequence[str | int]
    body: Any
    content_type: str
    redirects: int
    tls: Tls
    signature: Signature


class Kafka(TypedDict, total=False):
    """A message to a topic."""

    topic: Required[str]
    key: str
    headers: Mapping[str, str]
    value: Any
    partition: int


class Command(TypedDict, total=False):
    """A program on the worker's machine."""

    argv: Sequence[str]
    shell: str
    env: Mapping[str, str | SecretName]
    cwd: str
    user: str
    stdin: str
    limits: Mapping[str, Any]


class TaskCall(TypedDict, total=False):
    """A Python function of the worker's app."""

    name: Required[str]
    args: Mapping[str, Any]


class Target(TypedDict, total=False):
    """What a job runs: one of these."""

    webhook: Webhook
    kafka: Kafka
    command: Command
    task: TaskCall
    noop: Mapping[str, Any]


class CalendarUse(TypedDict, total=False):
    """The calendars of a job."""

    exclude: Sequence[str]
    include: Sequence[str]
    on_excluded: Literal["skip", "next_allowed"]


class Misfire(TypedDict, total=False):
    """What becomes of slots that are late by more than `grace`."""

    policy: Literal["fire_once", "fire_all", "skip"]
    grace: Duration
    max_count: int
    max_age: Duration
    order: Order
    per_minute: int


class Retry(TypedDict, total=False):
    """Exponential backoff with jitter."""

    max_attempts: int
    initial: Duration
    multiplier: float
    max: Duration
    jitter: float
    on: Sequence[str]
    not_on: Sequence[str]


class OnFailures(TypedDict, total=False):
    """What becomes of launches that end dead or abandoned, and of a job that is silent."""

    pause_after: int | None
    notify: Sequence[str]
    expect_success_every: Duration | None


class Concurrency(TypedDict, total=False):
    """At most `limit` launches of the tenant with the same `key` run at a time."""

    key: Required[str]
    limit: int

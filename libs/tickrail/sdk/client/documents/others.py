"""Documents of everything but jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from tickrail.sdk.client.documents.parts import CalendarUse, Schedule
from tickrail.sdk.client.documents.values import (
    Duration,
    Instant,
    Kind,
    LaunchReason,
    LetterState,
    Scope,
    Weekday,
)


class Preview(TypedDict, total=False):
    """A schedule to look at, saved or not."""

    schedule: Schedule | None
    starts_at: Instant | None
    ends_at: Instant | None
    calendars: CalendarUse | None
    after: Instant | None
    n: int
    job: str | None


class Redrive(TypedDict, total=False):
    """How to redrive a launch."""

    payload: Any
    expected_redrive_count: int


LetterFilter = TypedDict(
    "LetterFilter",
    {
        "launch": Sequence[str],
        "job": str,
        "queue": str,
        "reason": Sequence[LaunchReason],
        "state": Sequence[LetterState],
        "tag": Sequence[str],
        "from": Instant,
        "to": Instant,
    },
    total=False,
)
"""Which dead letters: those that meet every member."""
UndecodableFilter = TypedDict(
    "UndecodableFilter",
    {
        "kind": Required[Literal["undecodable"]],
        "id": Sequence[str],
        "queue": str,
        "from": Instant,
        "to": Instant,
    },
    total=False,
)
"""Which undecodable messages; for operators."""


class RedriveMany(TypedDict, total=False):
    """Which dead letters to redrive, the oldest first, and how."""

    filter: Required[LetterFilter]
    payload: Any
    per_minute: int
    max_count: int


class PurgeMany(TypedDict, total=False):
    """Which dead letters are to show no more."""

    filter: Required[LetterFilter]
    max_count: int


class PurgeMessages(TypedDict, total=False):
    """Which undecodable messages to delete."""

    filter: Required[UndecodableFilter]
    max_count: int


DayRange = TypedDict("DayRange", {"from": str, "to": str})
"""Days from one to another, both included."""
CalendarWindow = TypedDict(
    "CalendarWindow",
    {"from": Required[str], "to": Required[str], "weekdays": Sequence[Weekday]},
    total=False,
)
"""A time of the day, round midnight where `to` is not after `from`."""
CalendarEvent = TypedDict(
    "CalendarEvent",
    {
        "summary": str,
        "start": Required[str],
        "end": str | None,
        "duration": str | None,
        "time_zone": str | None,
        "rrule": str | None,
        "except": Sequence[str],
    },
    total=False,
)
"""A span of time, once or at each occurrence of a rule."""


class NewCalendar(TypedDict, total=False):
    """A calendar to put, or parts of it to change."""

    description: str | None
    time_zone: str | None
    dates: Sequence[str | DayRange] | None
    yearly: Sequence[str | DayRange] | None
    weekdays: Sequence[Weekday] | None
    windows: Sequence[CalendarWindow] | None
    events: Sequence[CalendarEvent] | None
    icalendar: str
    dry_run: bool


class Rate(TypedDict, total=False):
    """At most `count` launches start in each `per`."""

    count: Required[int]
    per: Duration


class QueueLimits(TypedDict, total=False):
    """How much may run at once and start in a time; None: as much as there is."""

    max_running: int | None
    rate: Rate | None


class NewQueue(QueueLimits, total=False):
    """A queue to put."""

    kinds: Required[Sequence[Kind]]


class QueueChanges(QueueLimits, total=False):
    """Parts of a queue to change; a tenant changes limits alone."""

    kinds: Sequence[Kind]


class QuotaChanges(TypedDict, total=False):
    """Quotas to set; None: as it is for everybody, which is not limited unless that is set."""

    jobs: int | Literal["unlimited"] | None
    launches_per_minute: int | Literal["unlimited"] | None
    launches_per_day: int | Literal["unlimited"] | None
    payload_bytes: int | Literal["unlimited"] | None
    requests_per_second: float | Literal["unlimited"] | None
    request_burst: int | Literal["unlimited"] | None
    min_interval: Duration | None


class TenantChanges(TypedDict, total=False):
    """What operators set of a tenant."""

    weight: int
    max_running: int | None
    egress: Mapping[str, Any] | None
    kafka_topics: Sequence[str]
    quotas: QuotaChanges


class NewTenant(TenantChanges, total=False):
    """A tenant to make; its name is for ever."""

    name: Required[str]


class NewApiKey(TypedDict, total=False):
    """A key to make; it ends at an instant, after a time, or not at all."""

    name: Required[str]
    scopes: Required[Sequence[Scope]]
    description: str
    requests_per_second: int | None
    expires_at: Instant | None
    expires_in: Duration | None

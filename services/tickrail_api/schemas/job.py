"""A job's documents."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tickrail_api.schemas.base import (
    CHANNEL,
    INSTANT,
    JOB_ID,
    Document,
    Duration,
    Instant,
    Json,
    one_of,
)
from tickrail_api.schemas.launch import LAUNCH, Launch
from tickrail_api.schemas.schedule import SCHEDULES, Schedule
from tickrail_api.schemas.target import TARGETS, Target

Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other"]
Priority = Literal["high", "normal", "low"]


class Misfire(Document):
    """What becomes of slots that are late by more than `grace`."""

    policy: Literal["fire_once", "fire_all", "skip"] = "fire_once"
    grace: Duration = "1m"
    max_count: int = Field(10, ge=1, le=10_000, description="`fire_all` launches so many at most.")
    max_age: Duration = Field("1d", description="And none older than this.")
    order: Literal["oldest", "newest"] = "oldest"
    per_minute: int = Field(60, ge=1, description="And so many a minute.")


class Retry(Document):
    """Exponential backoff with jitter; `max_attempts` counts failures.

    `on` and `not_on` name outcomes: `http_404`, `http_4xx`, `http_500-503`, `exit_3`, `exit_64-78`,
    `signal_9`, `raised_<TypeName>`, `timed_out`, `connect_failed`, and the others of
    docs/outcomes.md; any other word is refused.
    """

    max_attempts: int = Field(5, ge=1, le=1000)
    initial: Duration = "2s"
    multiplier: float = Field(2, ge=1, le=100)
    max: Duration = Field(
        "1h", description="The longest wait, jitter included; also of a `Retry-After`."
    )
    jitter: float = Field(0.2, ge=0, le=0.9)
    on: list[str] = Field(
        default_factory=list, max_length=50,
        description="Failures that are tried again although that is usually of no use. What "
        "neither list names is tried again as usual.",
    )  # fmt: skip
    not_on: list[str] = Field(
        default_factory=list, max_length=50,
        description="Failures that are never tried again; these go before `on`.",
    )  # fmt: skip


class CalendarUse(Document):
    """The calendars of a job: times that are left out, and those outside of which all are."""

    exclude: list[str] = Field(default_factory=list, max_length=20)
    include: list[str] = Field(default_factory=list, max_length=20)
    on_excluded: Literal["skip", "next_allowed"] = "skip"


class Concurrency(Document):
    """At most `limit` launches of the tenant with the same `key` run at a time."""

    key: str = Field(min_length=1, max_length=200)
    limit: int = Field(1, ge=1, le=100_000)


class OnFailures(Document):
    """What becomes of launches that end dead or abandoned, and of a job that is silent."""

    pause_after: int | None = Field(
        None, ge=1, le=1000, description="Pause the job after so many of them in a row."
    )
    notify: list[Annotated[str, Field(pattern=CHANNEL)]] = Field(
        [],
        max_length=5,
        json_schema_extra={"uniqueItems": True},
        description="Who is told: `webhook:<secret>` (the secret holds the hook's URL, or a JSON"
        " document with `url`, `signing_secret`, `headers`) or `kafka:<topic>`.",
    )
    expect_success_every: Duration | None = Field(
        None,
        description="Tell `notify` once when the job has not succeeded for so long, from 1m to"
        " 400d; again after a success and another silence.",
    )


class JobDocument(Document):
    """A job as its owner writes it."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", description="Unique among the live jobs."
    )
    description: str = Field("", max_length=4096)
    tags: dict[str, str] = Field(default_factory=dict)
    schedule: Schedule | None = Field(
        None,
        description="One of `cron`, `every`, `calendar`, `at`, `any_of`; null: by hand only.",
        examples=SCHEDULES,
        json_schema_extra=one_of,
    )
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_launches: int | None = Field(None, ge=1)
    jitter: Duration = Field("0s", description="Spreads the due instants of slots by up to this.")
    calendars: CalendarUse | None = None
    misfire: Misfire = Misfire()
    overlap: Overlap = Field("skip", description="What a due slot does while a launch is open.")
    if_uncertain: Literal["rerun", "skip"] = Field(
        "rerun", description="What is worse: a missing run (`rerun`) or a doubled one (`skip`)."
    )
    target: Target = Field(
        description="One of `webhook`, `kafka`, `command`, `task`; the queue must serve its kind.",
        examples=TARGETS,
        json_schema_extra=one_of,
    )
    payload: Json = Field(None, description="Handed to the target; at most 256 KiB.")
    queue: str = "default"
    priority: Priority = "normal"
    concurrency: Concurrency | None = None
    timeout: Duration = "1m"
    start_deadline: Duration | None = None
    visibility_timeout: Duration = "30s"
    retry: Retry = Retry()
    on_failures: OnFailures | None = None


class NewJob(JobDocument):
    """A job to create."""

    paused: bool = Field(False, description="Start it paused; read when the job is created only.")


class PausedNote(Document):
    """Who paused a job, when, why and until when."""

    by: str
    at: Instant
    reason: str
    until: Instant | None
    launch: str | None = Field(
        None, description="The launch after whose end the job paused itself (`by` is `system`)."
    )


class Job(JobDocument):
    """A job as answered."""

    id: str
    version: int = Field(description="Counts definitions; the ETag.")
    state: Literal["active", "paused", "finished", "deleted"]
    paused: PausedNote | None
    next_run_at: Instant | None
    last_launch: Launch | None
    partition: int
    schedule_words: str | None = Field(description="The schedule in plain English.")
    skip_next: int = Field(description="So many of the next slots are left out by hand.")
    error: str | None = Field(description="Why the job cannot be planned, if it cannot.")
    silent_since: Instant | None = Field(
        description="The last success of a job that expects one and has not had it in time, or"
        " from when on it was expected."
    )
    created_at: Instant
    updated_at: Instant


class Warn(Document):
    """What is legal but probably not meant."""

    code: str
    message: str
    pointer: str


class JobAnswer(Job):
    """One job as answered, with what is probably not meant in it."""

    lint: list[Warn]


class JobPage(Document):
    """A page of jobs."""

    items: list[Job]
    next_cursor: str | None


class Pause(Document):
    """How to pause a job."""

    until: Instant | None = Field(None, description="Resume by itself then.")
    reason: str = ""
    in_flight: Literal["finish", "cancel"] = Field("finish", description="What open launches do.")


class CatchUp(Document):
    """The bounds within which slots that passed during a pause are launched."""

    max_count: int = Field(10, ge=1, le=10_000)
    max_age: Duration = "1d"
    order: Literal["oldest", "newest"] = "oldest"
    per_minute: int = Field(60, ge=1)


class Resume(Document):
    """How to let a job go on."""

    catch_up: Literal["none", "policy"] | CatchUp = Field(
        "none",
        description="What becomes of the slots that passed: none is launched, the misfire policy"
        " decides, or they are launched within bounds.",
    )


class SkipNext(Document):
    """How many of the next slots are left out."""

    n: int = Field(ge=0, le=1000, description="0 takes back what was said before.")


class Trigger(Document):
    """A launch by hand: what of it differs from the job."""

    payload: Json = None
    priority: Priority | None = None
    overlap: Overlap | None = None
    copy_of: str | None = Field(None, description="An ended launch of the job: with its payload.")


NEW_JOB = {
    "name": "nightly-invoice-run",
    "description": "Closes the day's invoices",
    "tags": {"team": "billing"},
    "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
    "target": {"webhook": {"url": "https://example.org/hook", "headers": {"X-Team": "billing"}}},
    "payload": {"dry": False},
}
INTERVAL_JOB = {
    "name": "poll-orders",
    "schedule": {"every": "15m"},
    "overlap": "buffer_one",
    "target": {"webhook": {"url": "https://example.org/poll", "method": "GET"}},
}
SIGNED_JOB = {
    "name": "announce-invoice",
    "schedule": {"every": "1h"},
    "target": {
        "webhook": {
            "url": "https://example.org/invoices/{{ payload.id }}",
            "headers": {"Authorization": {"secret": "partner-token"}},
            "body": {"invoice": "{{ payload.id }}", "slot": "{{ scheduled_at }}"},
            "signature": {"secrets": [{"secret": "partner-signature"}]},
            "redirects": 1,
        }
    },
    "payload": {"id": "2026-117"},
    "on_failures": {
        "pause_after": 20,
        "notify": ["webhook:ops"],
        "expect_success_every": "1d2h",
    },
}
KAFKA_JOB = {
    "name": "announce-orders",
    "schedule": {"every": "5m"},
    "target": {
        "kafka": {
            "topic": "orders.due",
            "key": "{{ payload.region }}",
            "headers": {"team": "billing"},
            "value": {"region": "{{ payload.region }}", "slot": "{{ scheduled_at }}"},
        }
    },
    "payload": {"region": "eu"},
}
TASK_JOB = {
    "name": "import-orders",
    "schedule": {"every": "1h"},
    "target": {"task": {"name": "import_orders", "args": {"shop": "north", "limit": 500}}},
    "retry": {"not_on": ["raised_LookupError"]},
}
PATCH = {"schedule": {"cron": "30 2 * * *"}, "tags": {"team": None, "owner": "finance"}}
JOB = {
    "id": JOB_ID,
    **NEW_JOB,
    "schedule": {
        "cron": "0 2 * * *",
        "time_zone": "Europe/Berlin",
        "gap": "after",
        "fold": "first",
    },
    "target": {
        "webhook": {
            "url": "https://example.org/hook",
            "method": "POST",
            "headers": {"X-Team": "billing"},
            "success": "2xx",
        }
    },
    "version": 1,
    "state": "active",
    "paused": None,
    "next_run_at": INSTANT,
    "last_launch": LAUNCH,
    "partition": 3,
    "schedule_words": "At 02:00 every day in Europe/Berlin",
    "skip_next": 0,
    "error": None,
    "silent_since": None,
    "created_at": "2026-03-01T12:00:00Z",
    "updated_at": "2026-03-01T12:00:00Z",
}
JOB_ANSWER = {
    **JOB,
    "lint": [
        {
            "code": "in_gap",
            "message": "2026-03-29 02:00 does not exist in Europe/Berlin; it fires at"
            " 2026-03-29T03:00:00+02:00 (gap: after)",
            "pointer": "/schedule/cron",
        }
    ],
}
PAUSE = {"until": "2099-01-01T00:00:00Z", "reason": "maintenance", "in_flight": "finish"}
RESUME = {"catch_up": {"max_count": 5, "max_age": "6h", "order": "newest"}}
SKIP_NEXT = {"n": 2}
TRIGGER = {"payload": {"dry": True}, "priority": "high", "overlap": "allow"}

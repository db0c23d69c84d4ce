"""Documents of schedules, queues and the system."""

from __future__ import annotations

from pydantic import Field

from tickrail_api.schemas.base import INSTANT, JOB_ID, Document, Instant, one_of
from tickrail_api.schemas.job import CalendarUse, Warn
from tickrail_api.schemas.schedule import Schedule


class UpcomingSlot(Document):
    """A slot to come: `local` is the wall clock of the schedule's zone with its offset."""

    at: Instant
    local: str
    notes: list[str] = Field(
        description="`moved_by_gap`, `first_pass`, `second_pass`, `excluded:<calendar>`,"
        " `moved_by_calendar:<calendar>`, `skipped_by_hand`"
    )


class Upcoming(Document):
    """Slots to come."""

    items: list[UpcomingSlot]


class PreviewRequest(Document):
    """A schedule to look at, saved or not."""

    schedule: Schedule | None = Field(
        None,
        description="As in a job; null is by hand. Left out beside `job`: that job's own.",
        json_schema_extra=one_of,
    )
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    calendars: CalendarUse | None = Field(None, description="As in a job.")
    after: Instant | None = Field(None, description="From when on; now.")
    n: int = Field(10, ge=1, le=500, description="How many slots.")
    job: str | None = Field(None, description="Id or `name:<name>` of a job to compare with.")


class Difference(Document):
    """How the slots differ from those of a job, among the next ones of either."""

    added: list[Instant]
    removed: list[Instant]


class Preview(Document):
    """What a schedule means."""

    items: list[UpcomingSlot]
    words: str
    schedule: Schedule | None = Field(
        description="With every default filled in.", json_schema_extra=one_of
    )
    lint: list[Warn]
    difference: Difference | None


class ZoneChange(Document):
    """A next run that newer zone data moved; `next_run_at.after` null: no run was left."""

    changed_at: Instant
    job: dict[str, str] = Field(description="Its id and name.")
    tenant: str
    time_zones: list[str]
    versions: dict[str, str] = Field(description="The zone data `before` and `after`.")
    next_run_at: dict[str, Instant | None] = Field(description="The instant `before` and `after`.")


class ZoneData(Document):
    """The zone data in use, and what the last changes of it moved."""

    version: str = Field(description="The one that this process has.")
    partitions: dict[str, int] = Field(
        description="How many partitions have next runs by each version."
    )
    items: list[ZoneChange]
    next_cursor: str | None


class Status(Document):
    """Whether the process can do its work; `problems` names what is missing."""

    status: str
    problems: dict[str, str] = Field(default_factory=dict)


SLOT = {"at": INSTANT, "local": "2026-03-02T02:00:00+01:00", "notes": []}
PREVIEW_REQUEST = {"schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"}, "n": 3}
PREVIEW = {
    "items": [SLOT],
    "words": "At 02:00 every day in Europe/Berlin",
    "schedule": {
        "cron": "0 2 * * *",
        "time_zone": "Europe/Berlin",
        "gap": "after",
        "fold": "first",
    },
    "lint": [],
    "difference": None,
}
ZONE_DATA = {
    "version": "2026c",
    "partitions": {"2026c": 64},
    "items": [
        {
            "changed_at": "2026-03-01T12:00:00Z",
            "job": {"id": JOB_ID, "name": "nightly-invoice-run"},
            "tenant": "default",
            "time_zones": ["Europe/Berlin"],
            "versions": {"before": "2026b", "after": "2026c"},
            "next_run_at": {"before": "2026-03-02T01:00:00Z", "after": "2026-03-02T00:00:00Z"},
        }
    ],
    "next_cursor": None,
}

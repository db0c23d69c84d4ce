"""The traffic of a fault test: jobs of every second, from now until they are judged."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from tests.fault.history import Effects, History
from tests.fault.judgement import Judgement
from tests.support.processes import CLOCK, Installation
from tests.support.until import until

from tickrail.core.ids import JobId

SECOND = timedelta(seconds=1)
LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00Z")
DOCUMENT: dict[str, Any] = {
    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
    "overlap": "allow",
    "visibility_timeout": "5s",
    "misfire": {"policy": "fire_all", "grace": "1m", "max_count": 10000, "per_minute": 100000},
    "retry": {"max_attempts": 10, "initial": "1s"},
}


class Traffic:
    """Jobs of every second, some of whose runs have effects, and the history of all of it.

    Under way when made: each job has a launch.
    """

    def __init__(
        self,
        found: Installation,
        effects: Effects,
        folder: Path,
        name: str,
        *,
        webhooks: int = 8,
        noops: int = 16,
    ) -> None:
        self.found, self.effects, self.folder, self.name = found, effects, folder, name
        self.logs = {s.name: s.log.stat().st_size for s in found.services.values()}
        self.history = History(found, effects)
        webhook = {**DOCUMENT, "target": effects.target()}
        self.jobs: list[JobId] = [
            *self.history.add_jobs(webhooks, webhook),
            *self.history.add_jobs(noops, {**DOCUMENT, "target": {"noop": {}}}),
        ]
        until(lambda: self.latest() > LONG_AGO, 30, 0.05)

    def latest(self) -> datetime:
        """The last slot of which every job has a record; long ago if there is none."""
        try:
            rows = self.found.query(
                "select max(l.scheduled_at) from unnest(%s::uuid[]) as j"
                " left join launches l on l.job_id = j group by j", list(self.jobs),
            )  # fmt: skip
        except psycopg.OperationalError:
            return LONG_AGO  # the database may be away at this moment
        return min(last or LONG_AGO for (last,) in rows)

    def goes_on(self, seconds: float) -> float:
        """Wait until each job has a record of this moment's slot; how long that took."""
        now = CLOCK.now()
        return until(lambda: self.latest() >= now - SECOND, seconds, 0.05)

    def lines(self, service: str) -> list[dict[str, Any]]:
        """What a service logged since the traffic began."""
        return self.found.services[service].lines_since(self.logs[service])

    def said(self, service: str, event: str) -> list[dict[str, Any]]:
        """Its lines of this event since then."""
        return [line for line in self.lines(service) if line["event"] == event]

    def judge(self) -> Judgement:
        """All slots up to now have a record, all launches end, and the history is right."""
        last = CLOCK.now().replace(microsecond=0)
        try:
            until(lambda: self.history.ended(last), 60, 0.1)
        except AssertionError:
            raise AssertionError(f"not ended within 60 s: {self._open(last)}") from None
        self.found.pause_jobs()
        judgement = self.history.judge(last, self.folder, self.name)
        assert all(service.alive for service in self.found.services.values())
        return judgement

    def _open(self, last: datetime) -> list[tuple[Any, ...]]:
        """What has not ended: launches of slots up to this one, and jobs with no record of it."""
        jobs = list(self.jobs)
        return [
            *self.found.query(
                "select id::text, scheduled_at, partition, state, attempt, publications,"
                " queued_at, started_at, worker, claim, claim_expires_at, clock_timestamp()"
                " from launches where job_id = any(%s::uuid[]) and phase < 3"
                " and scheduled_at <= %s order by scheduled_at limit 20", jobs, last,
            ),
            *self.found.query(
                "select id::text, partition, next_run_at from jobs where id = any(%s::uuid[])"
                " and state = 'active' and next_run_at <= %s", jobs, last,
            ),
        ]  # fmt: skip

"""Schedulers that come up with newer zone data than the one their partitions' next runs are by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.running import CLOCK, Running, data_folder, launches_of
from tests.support.until import until

from tickrail.core.schedule import TZDATA_VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ZONE = "Etc/GMT-2"


@pytest.fixture
def up() -> Iterator[Running]:
    with data_folder() as folder, Running(folder) as made:
        yield made


def daily(up: Running, name: str, slot: datetime, last: datetime | None, waits: datetime) -> UUID:
    """A paused job, daily at this instant's local time, written long ago, left as by older data."""
    local = slot + 2 * HOUR
    document = {
        "name": name,
        "schedule": {"cron": f"{local.minute} {local.hour} * * *", "time_zone": ZONE},
        "target": {"command": {"shell": "true"}},
        "misfire": {"policy": "fire_once", "grace": "10m"},
        "paused": True,
    }
    with up.client() as client:
        job = UUID(client.request("POST", "/v1/jobs", json=document)["id"])
    up.rows(
        "update job_versions set created_at = now() - interval '9 days' where job_id = %s"
        " returning 1",
        [job],
    )
    up.rows(
        "update jobs set next_run_at = %s, last_slot_at = %s, state = 'active', paused = null"
        " where id = %s returning 1",
        [waits, last, job],
    )
    return job


def restart_schedulers(up: Running) -> None:
    for name in [n for n in up.processes() if n.startswith("scheduler")]:
        up.kill(name)


def test_next_runs_move_and_each_local_day_has_one_launch(up: Running) -> None:
    now = CLOCK.now().replace(second=0, microsecond=0)
    to_come, passed, done = now + 6 * HOUR, now - HOUR / 2, now + HOUR / 2
    moved = daily(up, "to-come", to_come, to_come - DAY + HOUR, to_come + HOUR)
    late = daily(up, "passed", passed, passed - DAY + HOUR, passed + HOUR)
    ran = daily(up, "ran", done, done - HOUR, done - HOUR + DAY)
    right = daily(up, "right", to_come, to_come - DAY, to_come)
    up.rows("update partitions set tzdata = '2000a' returning 1")
    restart_schedulers(up)
    versions = "select distinct tzdata from partitions"
    until(lambda: up.rows(versions) == [(TZDATA_VERSION,)], 90)
    until(lambda: len(launches_of(up, late)) == 1, 60)

    assert next_runs(up) == {
        moved: to_come,
        late: passed + DAY,
        ran: done + DAY,
        right: to_come,
    }
    assert set(launches_of(up, late)) == {passed}
    for job in (moved, ran, right):
        assert not launches_of(up, job)
    listed = up.rows("select job_id, from_version, before_at, after_at from tzdata_changes")
    assert sorted(listed) == sorted(
        [
            (moved, "2000a", to_come + HOUR, to_come),
            (late, "2000a", passed + HOUR, passed),
            (ran, "2000a", done - HOUR + DAY, done + DAY),
        ]
    )

    restart_schedulers(up)
    up.rows("update partitions set tzdata = '' returning 1")
    restart_schedulers(up)
    until(lambda: up.rows(versions) == [(TZDATA_VERSION,)], 90)
    assert len(up.rows("select from tzdata_changes")) == len(listed), "nothing moved again"
    assert len(launches_of(up, late)) == 1


def next_runs(up: Running) -> dict[UUID, Any]:
    return dict(up.rows("select id, next_run_at from jobs"))

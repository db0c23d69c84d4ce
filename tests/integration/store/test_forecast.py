"""The sample of jobs that a forecast is made of, and the days of the history."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from tests.support.clock import FakeClock
from tests.support.store_bed import P0, PostgresBed, make_job

from tickrail.core.ids import Partition
from tickrail.store.engine import ApiDatabase
from tickrail.store.forecast import PostgresJobSampler
from tickrail.store.history import read_days
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration
DAY = timedelta(hours=24)


def test_a_sample_of_few_jobs_is_all_of_those_due_within_a_day(bed: PostgresBed) -> None:
    hourly = {"schedule": {"cron": "0 * * * *"}}
    due = {make_job(bed, due_in=3600.0, **hourly), make_job(bed, due_in=-5.0, **hourly)}
    make_job(bed, due_in=90_000.0, **hourly)
    make_job(bed, due_in=60.0, state="paused", **hourly)
    make_job(bed, due_in=60.0, partition=Partition(3), **hourly)
    found = PostgresJobSampler(bed.settings).sample([P0], DAY, 1000)
    assert {job.id for job in found.jobs} == due
    assert found.weight == 1.0
    assert all("0 * * * *" in job.plan for job in found.jobs)


def test_of_many_jobs_a_part_stands_for_all(bed: PostgresBed) -> None:
    for _ in range(400):
        make_job(bed, due_in=3600.0, schedule={"cron": "0 * * * *"})
    bed.conn.execute("analyze jobs")
    sampler = PostgresJobSampler(bed.settings)
    found = [sampler.sample([P0], DAY, 100) for _ in range(20)]
    assert {round(f.weight, 3) for f in found} == {4.0}
    assert any(0 < len(f.jobs) < 400 for f in found)


def test_nothing_owned_is_nothing_sampled(bed: PostgresBed) -> None:
    make_job(bed, due_in=60.0)
    assert PostgresJobSampler(bed.settings).sample([], DAY, 10).jobs == []


def test_the_days_of_the_history_are_seen_by_the_api(bed: PostgresBed) -> None:
    database = ApiDatabase(DatabaseSettings(bed.database.api_url, name="tests"), FakeClock())
    try:
        owner = bed.owner()
        owner.make_days(4)
        with database.installation() as tx:
            days, today = read_days(tx), tx.now.astimezone(UTC).date()
        assert days is not None
        assert (days.newest - today).days == 4
        assert days.oldest <= today
        bed.conn.execute("select make_day(%s)", [today + timedelta(days=6)])
        bed.conn.execute("select make_day(%s)", [today - timedelta(days=40)])
        with database.installation() as tx:
            days = read_days(tx)
        assert days is not None
        assert ((days.newest - today).days, (today - days.oldest).days) == (6, 40)
    finally:
        database.close()

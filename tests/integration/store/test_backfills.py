"""Backfills on PostgreSQL: what the memory does not show."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from tests.support.backfill_bed import make_backfill
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, PostgresBed, claim_one, make_job

from tickrail.engine.backfills import Backfills
from tickrail.engine.upkeep import Upkeep

pytestmark = pytest.mark.integration


def test_a_payload_of_null_is_not_no_payload(bed: PostgresBed) -> None:
    start = bed.now().astimezone(UTC) - timedelta(days=1)
    found = []
    for has in (True, False):
        job = make_job(bed, schedule={"cron": "0 * * * *"}, payload={"of": "the job"})
        make_backfill(bed, job, start, start + timedelta(hours=1), has_payload=has)
        Backfills(bed.owner(), Counted()).run_once(OWNED)
        (launch,) = bed.launches(job)
        found.append(claim_one(bed, bed.worker(), launch.id).payload)
    assert found == ["null", None]


def test_a_job_that_is_being_changed_is_left_for_the_next_pass(bed: PostgresBed) -> None:
    start = bed.now().astimezone(UTC) - timedelta(days=1)
    job = make_job(bed, schedule={"cron": "0 * * * *"})
    make_backfill(bed, job, start, start + timedelta(hours=1))
    backfills = Backfills(bed.owner(), Counted())
    with bed.database.admin() as other, other.transaction():
        other.execute("select from jobs where id = %s for update", [job])
        assert list(backfills.run_once(OWNED).inserted) == []
    assert len(backfills.run_once(OWNED).inserted) == 1


def test_the_relay_looks_as_far_back_as_a_backfill_went(bed: PostgresBed) -> None:
    """The scan is bounded by the oldest open slot, which is read every few seconds only."""
    job = make_job(bed, schedule={"cron": "0 * * * *"})
    owner = bed.owner()
    assert list(owner.backlog(OWNED, 10).due) == []
    start = bed.now().astimezone(UTC) - timedelta(days=20)
    make_backfill(bed, job, start, start + timedelta(hours=1))
    Backfills(owner, Counted()).run_once(OWNED)
    assert len(owner.backlog(OWNED, 10).due) == 1


def test_what_has_ended_goes_with_the_history(bed: PostgresBed, upkeep_loop: Upkeep) -> None:
    job = make_job(bed, schedule={"cron": "0 * * * *"})
    start = bed.now() - timedelta(days=1)
    found = [make_backfill(bed, job, start, bed.now()) for _ in range(3)]
    bed.conn.execute(
        "insert into operations (id, tenant_id, kind, state, request)"
        " select id, tenant_id, 'jobs.pause', 'running', '{}' from backfills"
    )
    for table in (b"backfills", b"operations"):
        for backfill, days in zip(found, (31, 29), strict=False):
            bed.conn.execute(
                b"update " + table + b" set state = 'finished',"
                b" finished_at = now() - make_interval(days => %s) where id = %s",
                [days, backfill],
            )
    upkeep_loop.run_once()
    for table in ("backfills", "operations"):
        rows = bed.conn.execute(f"select id from {table} order by id".encode()).fetchall()
        assert [r[0] for r in rows] == sorted(found[1:])

"""The owner's pass in memory: what a lost reply does, and the turns of the loop."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from tests.support.backfill_bed import make_backfill
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, MemoryBed, make_job

from tickrail.core.errors import UnavailableError
from tickrail.engine.backfills import Backfills

HOUR = timedelta(hours=1)


def test_a_lost_reply_repeats_nothing() -> None:
    bed = MemoryBed()
    job = make_job(bed, schedule={"cron": "0 * * * *"}, overlap="allow")
    start = bed.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start -= timedelta(days=2)
    make_backfill(bed, job, start, start + 5 * HOUR, max_open=2)
    backfills = Backfills(bed.owner(), Counted())
    bed.db.lose_reply.add("backfill")
    with pytest.raises(UnavailableError):
        backfills.run_once(OWNED)
    assert len(backfills.run_once(OWNED).inserted) == 0
    assert [x.scheduled_at.hour for x in bed.launches(job)] == [0, 1]


def test_what_is_launched_is_counted() -> None:
    bed, metrics = MemoryBed(), Counted()
    job = make_job(bed, schedule={"cron": "* * * * *"}, overlap="allow")
    start = bed.now() - timedelta(days=1)
    make_backfill(bed, job, start, start + timedelta(minutes=7))
    done = Backfills(bed.owner(), metrics).run_once(OWNED)
    assert metrics.counts[("backfill_launches_total",)] == len(done.inserted) == 7


def test_more_slots_than_are_looked_at_at_once_are_more_to_do() -> None:
    bed = MemoryBed()
    job = make_job(bed, schedule={"cron": "* * * * *"}, overlap="allow")
    start = bed.now() - timedelta(days=1)
    make_backfill(bed, job, start, start + timedelta(minutes=250), max_open=1000)
    backfills = Backfills(bed.owner(), Counted())
    first, second = backfills.run_once(OWNED), backfills.run_once(OWNED)
    assert (len(first.inserted), first.more) == (200, True)
    assert (len(second.inserted), second.more) == (50, False)

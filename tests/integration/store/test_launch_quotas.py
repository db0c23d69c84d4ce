"""Owners, backfills and triggers that make launches of one tenant at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from tests.support.backfill_bed import make_backfill
from tests.support.database import Database
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, P0, P1, P2, TENANT, PostgresBed, make_job
from tests.support.stub_planner import StubPlanner
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import RateLimitedError
from tickrail.core.ids import Partition
from tickrail.core.quotas import Quota
from tickrail.engine.backfills import Backfills
from tickrail.engine.launches import Launches
from tickrail.store.engine import ApiDatabase
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller

pytestmark = pytest.mark.integration

LIMIT = 60


@pytest.fixture
def bed(database: Database) -> Iterator[PostgresBed]:
    made = PostgresBed(database)
    yield made
    made.close()


def test_all_who_make_launches_together_stay_within_the_quota(bed: PostgresBed) -> None:
    until(lambda: (bed.now() + timedelta(seconds=60)).date() == bed.now().date(), 90)
    bed.set_quota(TENANT, Quota.LAUNCHES_PER_DAY, LIMIT)
    slots = [make_job(bed, due_in=-1, partition=p) for p in (P0, P1) for _ in range(40)]
    hourly = {"every": "1h", "anchor": "2026-01-01T00:00:00Z"}
    filled = make_job(bed, partition=P2, schedule=hourly, overlap="allow")
    begin = (bed.now() - timedelta(days=3)).replace(hour=0, minute=0, second=0, microsecond=0)
    make_backfill(bed, filled, begin, begin + timedelta(hours=40), max_open=100)
    # As the schedulers do it, days ahead of what is launched in them.
    bed.owner().make_days(1)
    for day in range(4):
        bed.conn.execute("select make_day(%s)", [(begin + timedelta(days=day)).date()])
    by_hand = [make_job(bed, partition=P0, overlap="allow") for _ in range(4)]
    start = Barrier(7)

    def tick(partition: Partition) -> int:
        owner, count = bed.owner(), 0
        start.wait(30)
        while due(partition):
            count += len(owner.tick({partition: OWNED[partition]}, 7, StubPlanner()).inserted)
        return count

    def due(partition: Partition) -> int:
        with bed.database.admin() as conn:
            [(found,)] = conn.execute(
                "select count(*) from jobs where partition = %s and next_run_at <= now()"
                " and state = 'active'",
                [partition],
            ).fetchall()
        return int(str(found))

    def fill() -> int:
        work, count = Backfills(bed.owner(), Counted(), batch=3), 0
        start.wait(30)
        for _ in range(30):
            count += len(work.run_once({P2: OWNED[P2]}).inserted)
        return count

    def trigger(n: int) -> int:
        database, launches = ApiDatabase(api, SystemClock()), Launches(SystemClock())
        start.wait(30)
        count = 0
        try:
            for _ in range(12):
                try:
                    with database.tenant(TENANT, Caller("key:test")) as tx:
                        launches.trigger(tx, by_hand[n], None)
                except RateLimitedError:
                    continue
                count += 1
        finally:
            database.close()
        return count

    api = DatabaseSettings(bed.database.api_url, name="tests")
    with ThreadPoolExecutor(7) as pool:
        ticks = [pool.submit(tick, p) for p in (P0, P1)]
        fills = [pool.submit(fill)]
        triggers = [pool.submit(trigger, n) for n in range(4)]
        made = [f.result(120) for f in (*ticks, *fills, *triggers)]
    assert sum(made) == LIMIT
    assert bed.value("select count(*) from launches") == LIMIT
    assert bed.used(TENANT) == {Quota.LAUNCHES_PER_DAY: LIMIT}
    skipped = bed.value("select count(*) from skips where reason = 'quota'")
    assert skipped == len(slots) - sum(made[:2]), "each slot that was not launched has its record"
    told = bed.value("select array_agg((after ->> 'percent')::int order by at) from audit_log"
                     " where action = 'quota.reached'")  # fmt: skip
    assert told == [80, 100]

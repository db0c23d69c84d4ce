"""Places and waits that are over are forgotten; those that are in use are not, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.support.crowds import ask, crowd
from tests.support.store_bed import TENANT, PostgresBed
from tests.support.until import until

from tickrail.core.limits import QUEUE, Limit, Scope
from tickrail.core.states import State

pytestmark = pytest.mark.integration

MINE = Scope(TENANT, QUEUE, "default")


def held(bed: PostgresBed) -> Sequence[Any]:
    return [r[0] for r in bed.conn.execute("select launch_id from holds").fetchall()]


def test_what_is_over_is_forgotten_and_what_is_in_use_stays(bed: PostgresBed) -> None:
    bed.set_limit(MINE, Limit(max_running=2))
    launches = crowd(bed, 6)
    granted = ask(bed, bed.worker(), launches).granted
    assert len(held(bed)) == 6
    over, runs = granted[0].id, granted[1].id
    queued, due, cancelled, again = (x for x in launches if x not in {over, runs})
    bed.change(over, state=State.CANCELLED)
    bed.change(queued, state=State.QUEUED)
    bed.change(cancelled, state=State.CANCELLED)
    bed.change(again, attempt=2)
    bed.owner().drop_days()
    assert set(held(bed)) == {runs, queued, due}


def test_a_place_that_is_used_again_at_that_moment_stays(bed: PostgresBed) -> None:
    bed.set_limit(MINE, Limit(max_running=1))
    (launch,) = crowd(bed, 1)
    ask(bed, bed.worker(), [launch])
    bed.change(launch, state=State.DUE)  # ended from outside: its place is left over
    owner = bed.owner()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(bed.database.admin_url) as claims:
        claims.execute("update holds set claim = 77")
        claims.execute("update launches set state = 'running', phase = 2, claim = 77")
        done = pool.submit(owner.drop_days)
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        until(lambda: done.done() or bed.value(waits) > 0, 30, 0.02)
        claims.commit()
        done.result(30)
    assert held(bed) == [launch]

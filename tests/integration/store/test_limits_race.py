"""Limits where many claim at once, on PostgreSQL: never exceeded, used whole, no deadlock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.support.store_bed import (
    OWNED,
    PostgresBed,
    end_of,
    make_job,
    make_launch,
    verdict,
)
from tests.support.until import until

from tickrail.core.ids import LaunchId
from tickrail.core.limits import INSTALLATION, QUEUE, Limit, Rate, Scope
from tickrail.core.ports_worker import ClaimRequest
from tickrail.core.states import State

pytestmark = pytest.mark.integration

EVERYBODY = Scope(INSTALLATION, QUEUE, "default")
CLAIMERS = 4


def requests(bed: PostgresBed) -> list[ClaimRequest]:
    rows = bed.conn.execute(
        "select id, scheduled_at, attempt from launches"
        " where state = 'due' and due_at <= now() order by random() limit 20"
    ).fetchall()
    return [ClaimRequest(LaunchId(r[0]), r[1], r[2]) for r in rows]


def test_all_workers_together_never_exceed_a_limit(bed: PostgresBed) -> None:
    """Four workers; five may run in the queue, two with one key; a third is in another queue."""
    bed.set_limit(EVERYBODY, Limit(max_running=5))
    job = make_job(bed, overlap="allow")
    for n in range(240):
        keyed = {"concurrency_key": f"k{n % 2}", "concurrency_limit": 2} if n % 2 else {}
        make_launch(bed, job, queue="other" if n % 3 == 0 else "default", **keyed)
    stores = [bed.worker() for _ in range(CLAIMERS)]
    owner = bed.owner()
    lock, done = threading.Lock(), threading.Event()
    seen: list[tuple[int, int]] = []

    def work(number: int) -> int:
        store, count = stores[number], 0
        while not done.is_set():
            with lock:
                asked = requests(bed)
            claimed = store.claim(asked, f"w-{number}").granted if asked else ()
            if claimed:
                ends = [
                    end_of(c, verdict(c, State.SUCCEEDED))._replace(limited=c.limited)
                    for c in claimed
                ]
                assert not store.finish(ends).stale
            count += len(claimed)
        return count

    def look() -> bool:
        with lock:
            row = bed.conn.execute(
                "select count(*) filter (where state = 'running' and queue = 'default'),"
                " count(*) filter (where state = 'running' and concurrency_key = 'k1'),"
                " count(*) filter (where phase < 3) from launches"
            ).fetchone()
        assert row is not None
        seen.append((row[0], row[1]))
        owner.rouse(OWNED)
        return row[2] == 0

    with ThreadPoolExecutor(CLAIMERS) as pool:
        workers = [pool.submit(work, n) for n in range(CLAIMERS)]
        try:
            until(look, 60)
        finally:
            done.set()
        assert sum(w.result() for w in workers) == 240
    assert max(n for n, _ in seen) <= 5
    assert max(n for _, n in seen) <= 2
    assert bed.value("select count(*) from holds where claim is not null") == 0


def test_keys_alone_are_never_exceeded(bed: PostgresBed) -> None:
    """No limit has a row here, so nothing but the locks of the keys keeps the workers apart."""
    job = make_job(bed, overlap="allow")
    keyed = [{"concurrency_key": f"k{n}", "concurrency_limit": 2} for n in range(8)]
    launches = [make_launch(bed, job, **keyed[n % 8]) for n in range(8 * 24)]
    stores = [bed.worker() for _ in range(CLAIMERS)]
    asked = [ClaimRequest(x, bed.row(x).scheduled_at, 1) for x in launches]
    gate = threading.Barrier(CLAIMERS)

    def claim(number: int) -> None:
        mine = [asked[n : n + 8] for n in range(8 * number, len(asked), 8 * CLAIMERS)]
        for batch in mine:
            gate.wait(30)
            stores[number].claim(batch, f"w-{number}")

    with ThreadPoolExecutor(CLAIMERS) as pool:
        for done in [pool.submit(claim, n) for n in range(CLAIMERS)]:
            done.result()
    running = bed.conn.execute(
        "select concurrency_key, count(*) from launches where state = 'running' group by 1"
    ).fetchall()
    assert dict(running) == {f"k{n}": 2 for n in range(8)}


def test_a_limit_is_used_whole(bed: PostgresBed) -> None:
    """What four workers get at the same moment is as much as the limit gives."""
    bed.set_limit(EVERYBODY, Limit(max_running=7))
    job = make_job(bed, overlap="allow")
    launches = [make_launch(bed, job) for _ in range(40)]
    stores = [bed.worker() for _ in range(CLAIMERS)]
    asked = [ClaimRequest(x, bed.row(x).scheduled_at, 1) for x in launches]
    gate = threading.Barrier(CLAIMERS)

    def claim(number: int) -> int:
        gate.wait()
        return len(stores[number].claim(asked[number::CLAIMERS], f"w-{number}").granted)

    with ThreadPoolExecutor(CLAIMERS) as pool:
        assert sum(pool.map(claim, range(CLAIMERS))) == 7


def test_a_rate_holds_in_real_time(bed: PostgresBed) -> None:
    """20 a second for five seconds, asked for by two workers all the time: 100 and the burst."""
    bed.set_limit(EVERYBODY, Limit(rate=Rate(1200, 60.0)))
    job = make_job(bed, overlap="allow")
    for _ in range(200):
        make_launch(bed, job)
    stores, owner, granted = [bed.worker(), bed.worker()], bed.owner(), 0
    began = bed.now()
    while bed.now() - began < timedelta(seconds=5):
        owner.rouse(OWNED)
        for store in stores:
            asked = requests(bed)
            granted += len(store.claim(asked, "w").granted) if asked else 0
    passed = (bed.now() - began).total_seconds()
    # The bucket was full: 21 tokens.
    assert 0.95 * 20 * passed <= granted <= 20 * passed + 21

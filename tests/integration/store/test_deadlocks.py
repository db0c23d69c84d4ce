"""G-05: everybody writes the same rows for some seconds, in every order, and nobody deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from tests.support.store_bed import (
    OWNED,
    PostgresBed,
    end_of,
    make_job,
    make_launch,
    request_of,
    verdict,
)
from tests.support.until import pause

from tickrail.core.ids import JobId
from tickrail.core.ports_reports import RunReport
from tickrail.core.ports_worker import Claimed, ClaimRequest, Extension
from tickrail.core.states import State
from tickrail.engine.reaper import decide
from tickrail.store.queries import load
from tickrail.store.reports import PostgresReportStore

pytestmark = pytest.mark.integration

REFILL = """
with l as (
  select scheduled_at, id from launches where phase = 3 or attempt > 1
  order by id for no key update skip locked
)
update launches t
set state = 'due', phase = 1, attempt = 1, failures = 0, claim = null, due_at = now(),
    cancel_requested = false
from l where t.scheduled_at = l.scheduled_at and t.id = l.id
"""


class Crowd:
    """Everybody who writes launches, each with a connection of its own."""

    def __init__(self, bed: PostgresBed) -> None:
        self.bed = bed
        self.jobs: list[JobId] = [make_job(bed) for _ in range(4)]
        launches = [make_launch(bed, self.jobs[n % 4], ago=1 + n % 50) for n in range(400)]
        self.requests: list[ClaimRequest] = [request_of(bed, x) for x in launches]
        self.relay, self.reaper = bed.owner(), bed.owner()
        self.workers = [bed.worker(), bed.worker()]
        self.reports = PostgresReportStore(bed.settings)
        self.granted: list[Claimed] = []
        self.api, self.hand = bed.database.admin(), bed.database.admin()
        self.cancel_sql = load("owner")["cancel_open"]

    def mark(self) -> None:
        self.relay.mark_queued(OWNED, list(self.relay.backlog(OWNED, 100).due)[::-1])

    def keep(self) -> None:
        self.reaper.sweep(OWNED, timedelta(0), 200)
        self.reaper.reap(OWNED, 200, decide)

    def work(self, n: int) -> None:
        store = self.workers[n]
        granted = store.claim(self.requests[:: 1 if n else -1][:100], f"w-{n}").granted
        if granted:
            self.granted = [*self.granted[-100:], *granted]
            kept = [Extension(c.id, c.scheduled_at, c.claim, 0.5) for c in granted[::-1]]
            store.extend(kept, timedelta(hours=12))
            store.finish([end_of(c, verdict(c, State.DUE)) for c in granted[::-1]])

    def tell(self) -> None:
        told = [
            RunReport(c.id, c.scheduled_at, c.tenant, c.attempt, c.claim, "x", 1, False, "1")
            for c in {c.id: c for c in self.granted}.values()
        ]
        self.reports.write_runs(told[::-1])

    def cancel(self) -> None:
        self.api.execute(self.cancel_sql, {"jobs": self.jobs[::-1]})

    def refill(self) -> None:
        self.hand.execute(REFILL)

    def close(self) -> None:
        self.reports.close()
        self.api.close()
        self.hand.close()


def test_g05_no_deadlock_between_claims_marks_sweeps_ends_and_cancels(bed: PostgresBed) -> None:
    crowd = Crowd(bed)
    bodies: list[Callable[[], None]] = [
        crowd.mark,
        crowd.keep,
        lambda: crowd.work(0),
        lambda: crowd.work(1),
        crowd.tell,
        crowd.cancel,
        crowd.refill,
    ]
    failed: list[Exception] = []
    rounds = [0] * len(bodies)
    over = threading.Event()

    def run(n: int) -> None:
        try:
            while not over.is_set():
                bodies[n]()
                rounds[n] += 1
        except Exception as e:  # noqa: BLE001 - shown by the test
            failed.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(bodies))]
    for one in threads:
        one.start()
    pause(5)
    over.set()
    for one in threads:
        one.join(30)
    crowd.close()
    assert failed == []
    assert min(rounds) > 3, rounds


def test_g05_the_test_would_see_a_deadlock(bed: PostgresBed) -> None:
    one, two = make_launch(bed), make_launch(bed)
    lock = b"select from launches where id = %s for update"
    first, second = bed.database.admin(), bed.database.admin()
    seen: list[psycopg.Error] = []

    def other() -> None:
        try:
            with second.transaction():
                second.execute(lock, [two])
                ready.set()
                second.execute(lock, [one])
        except psycopg.Error as e:
            seen.append(e)

    ready = threading.Event()
    with first, second:
        thread = threading.Thread(target=other)
        try:
            with first.transaction():
                first.execute(lock, [one])
                thread.start()
                assert ready.wait(10)
                first.execute(lock, [two])
        except psycopg.Error as e:
            seen.append(e)
        thread.join(10)
    assert [e.sqlstate for e in seen] == ["40P01"]

"""Transactions that cross, each in a named order: C-17, G-01, G-03 and G-05 on the real tables."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors as pg
from tests.support.at_once import at_once
from tests.support.store_bed import (
    OWNED,
    P0,
    TENANT,
    PostgresBed,
    end_of,
    make_job,
    make_launch,
    verdict,
)
from tests.support.stub_planner import StubPlanner
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.ids import LaunchId
from tickrail.core.ports_worker import ClaimRequest, Extension
from tickrail.core.states import State
from tickrail.engine.job_operations import JobWork
from tickrail.engine.job_rules import JobRules
from tickrail.engine.operations import Kind, OperationRunner, Operations
from tickrail.engine.pauses import Pauses
from tickrail.engine.reaper import decide
from tickrail.store.engine import ApiDatabase
from tickrail.store.operations import PostgresOperationQueue
from tickrail.store.queries import load
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
TWO = timedelta(hours=2)
OURS = load("owner")["fence"]
GUARDED = (
    b"update partitions set epoch = epoch where partition = any(%(partitions)s) and epoch <= 7"
)
PLAIN = b"select epoch from partitions where partition = any(%(partitions)s)"
LANDED, WAITED = "the old owner's record landed", "the take-over waited"


@pytest.mark.parametrize(
    ("isolation", "check", "expected"),
    [
        pytest.param("read committed", PLAIN, LANDED, id="plain select, read committed"),
        pytest.param("repeatable read", PLAIN, LANDED, id="plain select, repeatable read"),
        pytest.param("serializable", PLAIN, LANDED, id="plain select, serializable"),
        pytest.param("read committed", PLAIN + b" for share", WAITED, id="select for share"),
        pytest.param("read committed", GUARDED, WAITED, id="guarded update"),
        pytest.param("read committed", OURS, WAITED, id="ours"),
    ],
)
def test_c17_which_checks_stop_an_owner_that_commits_after_the_take_over(
    bed: PostgresBed, isolation: str, check: bytes, expected: str
) -> None:
    """The old owner checks; the new one takes over, records and commits; the old one records."""
    bed.conn.execute("create table records (epoch bigint)")
    with bed.database.admin() as old, bed.database.admin() as new:
        old.execute(f"begin isolation level {isolation}".encode())
        old.execute(check, {"partitions": [P0]})
        new.execute(f"begin isolation level {isolation}".encode())
        new.execute("set local lock_timeout = '300ms'")
        try:
            new.execute("update partitions set epoch = 8 where partition = %s", [P0])
            new.execute("insert into records values (8)")
            new.execute("commit")
            outcome = LANDED
        except pg.LockNotAvailable:
            new.execute("rollback")
            outcome = WAITED
        old.execute("insert into records values (7)")
        old.execute("commit")
    assert outcome == expected
    found = bed.conn.execute("select epoch from records order by 1").fetchall()
    assert found == [(7,), (8,)] if expected is LANDED else [(7,)]


@pytest.mark.parametrize(
    "check", [pytest.param(GUARDED, id="guarded update"), pytest.param(OURS, id="ours")]
)
def test_c17_after_the_take_over_the_old_owner_waits_and_is_refused(
    bed: PostgresBed, check: bytes
) -> None:
    with bed.database.admin() as old, bed.database.admin() as new, ThreadPoolExecutor(1) as pool:
        new.execute("begin")
        new.execute("update partitions set epoch = 8 where partition = %s", [P0])
        asked = pool.submit(lambda: old.execute(check, {"partitions": [P0]}))
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        until(lambda: bed.value(waits) == 1)
        new.execute("commit")
        answer = asked.result(10)
        seen = answer.fetchall() if check is OURS else answer.rowcount
    assert seen == ([(P0, 8)] if check is OURS else 0)


COPY = """
insert into launches
select (jsonb_populate_record(l, jsonb_build_object('id', %s::text, 'state', 'due', 'phase', 1,
  'queued_at', null, 'publications', 0, 'step', nextval('steps')))).*
from launches l where l.id = %s
"""


class Writers:
    """A few open transactions that insert due launches, in any order."""

    def __init__(self, bed: PostgresBed, count: int) -> None:
        self._conns = [psycopg.connect(bed.database.admin_url) for _ in range(count)]
        self._first = make_launch(bed)
        self.open: dict[int, list[UUID]] = {n: [] for n in range(count)}
        self.committed: list[UUID] = [self._first]

    def insert(self, n: int) -> None:
        new = uuid4()
        self._conns[n].execute(COPY, [str(new), self._first])
        self.open[n].append(new)

    def commit(self, n: int) -> None:
        self._conns[n].commit()
        self.committed += self.open[n]
        self.open[n] = []

    def close(self) -> None:
        for conn in self._conns:
            conn.close()


@pytest.mark.parametrize("seed", range(4))
def test_g01_no_launch_is_passed_over_in_whatever_order_transactions_commit(
    bed: PostgresBed, seed: int
) -> None:
    """The relay looks and marks between any two steps of four writers; and so does a naive one."""
    rng = random.Random(seed)
    bed.conn.execute("create sequence steps")
    bed.conn.execute("alter table launches add column step bigint default nextval('steps')")
    writers, relay = Writers(bed, 4), bed.owner()
    seen: list[UUID] = []
    naive: list[UUID] = []
    mark = 0

    def look() -> None:
        nonlocal mark
        due = relay.backlog(OWNED, 1000).due
        seen.extend(p.id for p in due)
        assert relay.mark_queued(OWNED, due).marked == len(due)
        rows = bed.conn.execute("select id, step from launches where step > %s", [mark]).fetchall()
        naive.extend(row[0] for row in rows)  # type: ignore[misc]
        mark = max([mark, *(row[1] for row in rows)])  # type: ignore[type-var, assignment]

    for _ in range(250):
        n = rng.randrange(4)
        rng.choice([lambda n=n: writers.insert(n), lambda n=n: writers.commit(n), look])()
    for n in range(4):
        writers.commit(n)
    look()
    writers.close()
    assert len(writers.committed) > 50
    assert sorted(seen) == sorted(writers.committed)
    assert set(naive) < set(writers.committed), "the naive one lost none: the test shows nothing"


def test_g03_first_attempts_of_a_job_go_in_the_order_of_their_slots(bed: PostgresBed) -> None:
    rng = random.Random(3)
    jobs = [make_job(bed) for _ in range(3)]
    ages = [(job, ago) for job in jobs for ago in range(2, 30)]
    rng.shuffle(ages)
    for job, ago in ages:
        make_launch(bed, job, ago=ago, due_in=-ago)
    due = bed.owner().backlog(OWNED, 1000).due
    for job in jobs:
        slots = [p.scheduled_at for p in due if p.job == job]
        assert len(slots) == 28
        assert slots == sorted(slots)


def test_g03_two_that_plan_one_job_cannot_commit_its_slots_in_another_order(
    bed: PostgresBed,
) -> None:
    """The job's row is locked from reading what is due to the commit."""
    job = make_job(bed, due_in=-30)
    reached, go = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go.wait(20)

    first, second = StubPlanner(wake_in=-20), StubPlanner(wake_in=60)
    first.inside = hold
    with ThreadPoolExecutor(1) as pool:
        ticking = pool.submit(bed.owner().tick, OWNED, 10, first)
        assert reached.wait(10)
        assert bed.owner().tick(OWNED, 10, second).jobs == 0
        go.set()
        assert ticking.result(10).jobs == 1
    assert bed.owner().tick(OWNED, 10, second).jobs == 1
    older, newer = bed.launches(job)
    assert older.scheduled_at < newer.scheduled_at


ROWS = 10_000
JOBS = 40
SECONDS = 5.0
FILL = """
insert into launches
select (jsonb_populate_record(l, jsonb_build_object('id',
  overlay(l.id::text placing lpad(to_hex(n), 6, '0') from 31)))).*
from launches l, generate_series(1, %s) n where l.id = any(%s)
"""
OPEN = """
select id, scheduled_at, attempt from launches
where state in ('due', 'queued') and get_byte(uuid_send(id), 15) %% 8 = %s limit 100
"""
REFILL = """
with l as (
  select scheduled_at, id from launches where phase = 3 or attempt > 1
  order by id for no key update skip locked limit 2000
)
update launches t
set state = 'due', phase = 1, attempt = 1, failures = 0, claim = null, due_at = now(),
    cancel_requested = false
from l where t.scheduled_at = l.scheduled_at and t.id = l.id
"""


class Crowd:
    """Pollers, sweepers, and an API that pauses in bulk, over ten thousand launches."""

    def __init__(self, bed: PostgresBed) -> None:
        self.bed = bed
        self.jobs = [make_job(bed) for _ in range(JOBS)]
        template = [make_launch(bed, job, ago=1 + n % 7) for n, job in enumerate(self.jobs)]
        bed.conn.execute(FILL.encode(), [ROWS // JOBS - 1, template])
        self.api = ApiDatabase(DatabaseSettings(bed.database.api_url), CLOCK)
        self.operations = Operations([JobWork(Pauses(JobRules(len(OWNED))))], CLOCK)
        self.runner = OperationRunner(PostgresOperationQueue(self.api), self.operations)
        self.conns: list[psycopg.Connection[Any]] = []

    def ids(self) -> list[LaunchId]:
        rows = self.bed.conn.execute("select id from launches order by id").fetchall()
        return [row[0] for row in rows]  # type: ignore[misc]

    def relay(self) -> Callable[[], None]:
        store = self.bed.owner()

        def turn() -> None:
            due = list(store.backlog(OWNED, 300).due)
            random.shuffle(due)
            store.mark_queued(OWNED, due)

        return turn

    def sweeper(self) -> Callable[[], None]:
        store = self.bed.owner()

        def turn() -> None:
            store.sweep(OWNED, timedelta(0), 300)
            store.reap(OWNED, 300, decide)

        return turn

    def worker(self) -> Callable[[], None]:
        store, rng, conn = self.bed.worker(), random.Random(), self._conn()

        def turn() -> None:
            rows = conn.execute(OPEN, [rng.randrange(8)]).fetchall()
            rng.shuffle(rows)
            granted = list(store.claim([ClaimRequest(*row) for row in rows], "w").granted)
            rng.shuffle(granted)
            ends = [
                end_of(c, verdict(c, rng.choice([State.SUCCEEDED, State.DUE]))) for c in granted
            ]
            if ends:
                store.extend([Extension(c.id, c.scheduled_at, c.claim, 0.5) for c in granted], TWO)
                store.finish(ends[::2])

        return turn

    def pauser(self) -> Callable[[], None]:
        def turn() -> None:
            for kind, more in ((Kind.PAUSE, {"in_flight": "cancel"}), (Kind.RESUME, {})):
                with self.api.tenant(TENANT, Caller("tests")) as tx:
                    self.operations.request(tx, kind, {"filter": {}, **more})
                self.runner.run_once()
                while self.runner.run_once() == 0.0:
                    pass

        return turn

    def refiller(self) -> Callable[[], None]:
        conn = self._conn()
        return lambda: conn.execute(REFILL) and None

    def _conn(self) -> psycopg.Connection[Any]:
        self.conns.append(self.bed.database.admin())
        return self.conns[-1]

    def close(self) -> None:
        self.api.close()
        for conn in self.conns:
            conn.close()


def test_g05_pollers_sweepers_and_a_bulk_pause_over_ten_thousand_launches(bed: PostgresBed) -> None:
    crowd = Crowd(bed)
    before = crowd.ids()
    assert len(before) == ROWS
    bodies = {
        "relay": crowd.relay(),
        "relay again": crowd.relay(),
        "sweeper": crowd.sweeper(),
        "sweeper again": crowd.sweeper(),
        **{f"worker {n}": crowd.worker() for n in range(4)},
        "pauser": crowd.pauser(),
        "refiller": crowd.refiller(),
    }
    at_once(bodies, SECONDS)
    crowd.close()
    assert crowd.ids() == before

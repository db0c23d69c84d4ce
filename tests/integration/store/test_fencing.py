"""Two owners of one partition on PostgreSQL: the fence decides where the write lands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.contract.test_ownership_port import FenceStoreContract
from tests.support.database import Database
from tests.support.store_bed import (
    EPOCH,
    OWNED,
    P0,
    P2,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    request_of,
    verdict,
)
from tests.support.stub_planner import StubPlanner
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Epoch
from tickrail.core.ports_ownership import FenceStore, RaiseOutcome
from tickrail.core.states import State
from tickrail.engine.reaper import decide
from tickrail.store.fence import PostgresFenceStore
from tickrail.store.session import DatabaseSettings
from tickrail.store.worker import PostgresWorkerStore

pytestmark = pytest.mark.integration

NEXT = Epoch(EPOCH + 1)
TAKEN = dict.fromkeys(OWNED, NEXT)


class TestPostgresFenceStore(FenceStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> Iterator[FenceStore]:
        store = PostgresFenceStore(DatabaseSettings(database.engine_url))
        yield store
        store.close()


class Held(StubPlanner):
    """A planner that stands still inside the tick's transaction until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(wake_in=60)
        self.reached, self.go = threading.Event(), threading.Event()
        self.inside = self._hold

    def _hold(self) -> None:
        self.reached.set()
        assert self.go.wait(30)


@contextmanager
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def take(fence: PostgresFenceStore) -> RaiseOutcome:
    """Raise the epoch of every partition, trying again as ownership does."""
    while True:
        try:
            outcomes = {fence.raise_epoch(p, NEXT, "b-1") for p in OWNED}
        except UnavailableError:
            continue
        assert outcomes <= {RaiseOutcome.RAISED, RaiseOutcome.ALREADY}
        return RaiseOutcome.RAISED


def test_c01_an_owner_that_was_away_for_longer_than_its_lease_writes_nothing(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    job, later = make_job(bed, due_in=-1), make_job(bed, due_in=-1)
    old, new = bed.owner(), bed.owner()
    old.tick({}, 10, StubPlanner())  # its connection is open, and it stops here
    take(fence)
    assert new.tick(TAKEN, 10, StubPlanner()).jobs == 2
    bed.conn.execute("update jobs set state = 'active', next_run_at = now() where id = %s", [later])
    launches = [bed.launches(x)[0] for x in (job, later)]
    ticked = old.tick(OWNED, 10, StubPlanner())
    assert (list(ticked.fence.higher), list(ticked.inserted)) == ([P0], [])
    assert [bed.launches(x) for x in (job, later)] == [[launches[0]], [launches[1]]]
    assert {x.epoch for x in launches} == {NEXT}


def test_c17_a_takeover_waits_for_the_old_owners_open_transaction(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    job = make_job(bed, due_in=-1)
    planner = Held()
    with thread() as pool:
        old = pool.submit(bed.owner().tick, OWNED, 10, planner)
        assert planner.reached.wait(10)
        taking = pool.submit(take, fence)
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        until(lambda: bed.value(waits) == 1)
        assert not taking.done()
        planner.go.set()
        assert old.result(10).jobs == 1
        assert taking.result(10) is RaiseOutcome.RAISED
    # The old owner's launch was committed before the takeover: the new one finds it and makes none.
    (launch,) = bed.launches(job)
    assert launch.epoch == EPOCH
    assert bed.owner().tick(TAKEN, 10, StubPlanner()).jobs == 0


def test_c17_a_paused_owner_is_ended_by_the_server_and_changes_nothing(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    job = make_job(bed, due_in=-1)
    planner = Held()
    with thread() as pool:
        old = pool.submit(bed.owner().tick, OWNED, 10, planner)
        assert planner.reached.wait(10)
        # It stands still, holding job and fence row; after 2 s the server ends its transaction.
        assert pool.submit(take, fence).result(20) is RaiseOutcome.RAISED
        ticked = bed.owner().tick(TAKEN, 10, StubPlanner())
        assert ticked.jobs == 1
        planner.go.set()
        with pytest.raises(UnavailableError):
            old.result(10)
    (launch,) = bed.launches(job)
    assert launch.epoch == NEXT


def test_c17_the_new_owner_first_then_the_old_ones_mark(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    launch = make_launch(bed)
    old = bed.owner()
    (publication,) = old.backlog(OWNED, 10).due
    conn = bed.database.admin()
    with conn, conn.transaction(), thread() as pool:
        conn.execute("update partitions set epoch = %s where partition = %s", [NEXT, P0])
        marking = pool.submit(old.mark_queued, OWNED, [publication])
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        until(lambda: bed.value(waits) == 1)
        conn.execute("commit")
        marked = marking.result(10)
    assert (marked.marked, list(marked.fence.higher)) == (0, [P0])
    assert bed.row(launch).state is State.DUE
    assert fence.highest_epoch() == NEXT


def test_a_raise_that_finds_the_row_locked_gives_up_after_two_seconds(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    conn = bed.database.admin()
    with conn, conn.transaction():
        conn.execute("select from partitions where partition = 0 for no key update")
        with pytest.raises(UnavailableError):
            fence.raise_epoch(P0, NEXT, "b-1")
    assert fence.raise_epoch(P0, NEXT, "b-1") is RaiseOutcome.RAISED


def test_owners_of_one_partition_that_tick_at_once_make_each_launch_once(bed: PostgresBed) -> None:
    jobs = [make_job(bed, due_in=-1) for _ in range(40)]
    start = threading.Barrier(4)

    def ticks(_: int) -> int:
        store = bed.owner()
        start.wait(10)
        total = 0
        for _ in range(20):
            total += store.tick(OWNED, 3, StubPlanner()).jobs
        return total

    with ThreadPoolExecutor(4) as pool:
        totals = list(pool.map(ticks, range(4)))
    assert sum(totals) == 40
    assert [len(bed.launches(j)) for j in jobs] == [1] * 40


def test_a_claim_is_granted_once_however_many_ask(bed: PostgresBed) -> None:
    launches = [make_launch(bed) for _ in range(30)]
    bed_rows = {x: request_of(bed, x) for x in launches}
    start = threading.Barrier(4)

    def claims(name: int) -> list[int]:
        store = bed.worker()
        start.wait(10)
        numbers = []
        for launch in launches if name % 2 else reversed(launches):
            row = bed_rows[launch]
            answer = store.claim([row], f"w-{name}")
            numbers += [c.claim for c in answer.granted]
        return numbers

    with ThreadPoolExecutor(4) as pool:
        found = [n for numbers in pool.map(claims, range(4)) for n in numbers]
    assert len(found) == len(set(found)) == 30


def test_claims_go_on_above_what_a_failover_may_have_lost(
    bed: PostgresBed, fence: PostgresFenceStore
) -> None:
    store = bed.worker()
    launch = make_launch(bed)
    first = claim_one(bed, store, launch)
    store.finish([end_of(first, verdict(first, State.DUE))])
    bed.conn.execute("select setval('claims', 1)")  # what was drawn since is lost
    fence.advance_claims()
    second = claim_one(bed, store, launch, 2)
    assert second.claim > first.claim
    store.finish([end_of(second, verdict(second, State.DUE))])
    ahead = second.claim + 10**12  # of the clock, which was set back
    bed.conn.execute("select setval('claims', %s)", [ahead])
    fence.advance_claims()
    assert claim_one(bed, store, launch, 3).claim > ahead + 1_000_000 - 1


def test_a_claim_on_a_new_connection_is_above_those_that_a_failover_may_have_lost(
    bed: PostgresBed, database: Database
) -> None:
    store = bed.worker()
    launch = make_launch(bed)
    before = bed.conn.execute("select last_value from claims").fetchone()
    lost = [claim_one(bed, store, launch)]
    assert before is not None
    # The database goes back to before the claim; the connections end.
    bed.conn.execute("update launches set state = 'due', phase = 1, claim = null")
    bed.conn.execute("select setval('claims', %s)", before)
    database.run(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and usename = 'tickrail_engine'"
    )
    with pytest.raises(UnavailableError):
        claim_one(bed, store, launch)
    assert claim_one(bed, store, launch).claim > lost[0].claim


def test_a_new_generation_is_above_every_claim_and_seen_without_a_restart(
    bed: PostgresBed,
) -> None:
    store = bed.worker()
    launch = make_launch(bed)
    first = claim_one(bed, store, launch)
    store.finish([end_of(first, verdict(first, State.DUE))])
    bed.conn.execute("update installation set generation = generation + 1")
    fresh = bed.worker()
    second = claim_one(bed, fresh, launch, 2)
    fresh.finish([end_of(second, verdict(second, State.DUE))])
    third = claim_one(bed, store, launch, 3)
    assert first.claim < second.claim < third.claim < 1 << 53


def test_the_reaper_does_not_wait_for_a_worker_that_stands_still_in_its_transaction(
    bed: PostgresBed,
) -> None:
    """Its claim has ended while its end is written and not committed: the others are reaped."""
    store, worker = bed.owner(), bed.worker()
    standing, lost = (claim_one(bed, worker, make_launch(bed)) for _ in range(2))
    bed.advance(31)
    reached, go = threading.Event(), threading.Event()

    def hold(_: str) -> None:
        reached.set()
        assert go.wait(20)

    frozen = PostgresWorkerStore(bed.settings, SystemClock(), written=hold)
    with thread() as pool:
        end = end_of(standing, verdict(standing, State.SUCCEEDED), outcome="ok")
        finishing = pool.submit(frozen.finish, [end])
        assert reached.wait(10)
        assert store.reap(OWNED, 10, decide).moved == {"due": 1}
        go.set()
        assert finishing.result(10).states == {standing.id: State.SUCCEEDED}
    frozen.close()
    assert bed.row(lost.id).state is State.DUE
    assert store.reap(OWNED, 10, decide).total == 0


def test_a_fence_row_that_is_gone_refuses_its_partition_alone(bed: PostgresBed) -> None:
    lost, mine = (make_job(bed, due_in=-1, partition=p) for p in (P0, P2))
    row = bed.conn.execute("delete from partitions where partition = 0 returning *").fetchone()
    assert row is not None
    try:
        ticked = bed.owner().tick(OWNED, 100, StubPlanner())
    finally:
        bed.conn.execute(
            f"insert into partitions values ({', '.join(['%s'] * len(row))})", list(row)
        )
    assert (list(ticked.fence.higher), list(ticked.fence.lower)) == ([], [P0])
    assert [len(bed.launches(j)) for j in (lost, mine)] == [0, 1]

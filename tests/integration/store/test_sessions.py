"""Sessions that change under the statements: poolers, schema changes, days. G-09, G-07."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.database import Database
from tests.support.pooler import Pooler
from tests.support.store_bed import (
    OWNED,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    verdict,
)
from tests.support.stub_planner import StubPlanner

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.states import State
from tickrail.store.engine import ApiDatabase
from tickrail.store.fence import PostgresFenceStore
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.queues import queue_page
from tickrail.store.session import DatabaseSettings, Session
from tickrail.store.worker import PostgresWorkerStore

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
STATEMENT = "select * from queues where name = %s"


@pytest.fixture
def pooler(database: Database) -> Iterator[Pooler]:
    with Pooler(database.engine_url) as made:
        yield made


def repeat(session: Session, times: int = 10) -> None:
    for _ in range(times):
        with session.transaction() as cursor:
            assert len(cursor.execute(STATEMENT, ["default"]).fetchall()) == 1


def test_g09_prepared_statements_and_a_transaction_pooler_do_not_go_together(
    pooler: Pooler,
) -> None:
    session = Session(DatabaseSettings(pooler.url))
    with pytest.raises(UnavailableError, match="see prepare_statements"):
        repeat(session)
    session.close()


def test_g09_without_them_every_loop_works_behind_a_pooler(
    bed: PostgresBed, pooler: Pooler, database: Database
) -> None:
    settings = DatabaseSettings(pooler.url, prepare=False)
    with closing(Session(settings)) as session:
        repeat(session)
    owner, worker, fence = (
        PostgresOwnerStore(settings, CLOCK), PostgresWorkerStore(settings, CLOCK),
        PostgresFenceStore(settings),
    )  # fmt: skip
    for _ in range(8):
        job = make_job(bed, due_in=-1)
        assert owner.tick(OWNED, 10, StubPlanner()).jobs == 1
        (launch,) = bed.launches(job)
        owner.mark_queued(OWNED, owner.backlog(OWNED, 10).due)
        claimed = claim_one(bed, worker, launch.id)
        ends = [end_of(claimed, verdict(claimed, State.SUCCEEDED))]
        assert worker.finish(ends).states == {launch.id: State.SUCCEEDED}
        assert fence.highest_epoch() == max(OWNED.values())
    assert pooler.swaps > 50
    for store in (owner, worker, fence):
        store.close()
    with Pooler(database.api_url) as other:
        api = ApiDatabase(DatabaseSettings(other.url, prepare=False), CLOCK)
        for _ in range(10):
            with api.installation() as tx:
                assert [q.name for q in queue_page(tx, "", 10)] == ["default"]
        api.close()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("alter table queues add column colour text", id="schema change"),
        pytest.param(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'swapped'",
            id="session ended",
        ),
    ],
)
def test_g09_a_statement_whose_plan_is_void_costs_one_call(database: Database, change: str) -> None:
    session = Session(DatabaseSettings(database.engine_url, name="swapped"))
    repeat(session)
    database.run(change)
    with pytest.raises(UnavailableError):
        repeat(session, 1)
    repeat(session)
    session.close()


def test_g09_statements_that_were_deallocated_cost_one_call(database: Database) -> None:
    session = Session(DatabaseSettings(database.engine_url))
    repeat(session)
    with session.transaction() as cursor:
        cursor.connection.pgconn.exec_(b"deallocate all")
    with pytest.raises(UnavailableError, match="A pooler changed the session"):
        repeat(session, 1)
    repeat(session)
    session.close()


def test_g07_two_days_ahead_are_there_from_the_migration_on_and_kept(bed: PostgresBed) -> None:
    ahead = (
        "select count(*) from generate_series(1, 3) n"
        " where to_regclass('launches_' || to_char((now() at time zone 'UTC')::date + n::int,"
        " 'YYYYMMDD')) is not null"
    )
    assert bed.value(ahead) >= 2
    bed.conn.execute(
        "select drop_day((now() at time zone 'UTC')::date + n) from generate_series(1, 3) n"
    )
    assert bed.value(ahead) == 0
    bed.owner().make_days(3)
    assert bed.value(ahead) == 3


@pytest.mark.parametrize(
    ("instant", "day"),
    [
        pytest.param("2026-10-01T00:00:00Z", "launches_20261001", id="midnight"),
        pytest.param("2026-09-30T23:59:59.999999Z", "launches_20260930", id="a microsecond before"),
        pytest.param("2026-09-30T20:00:00-04:00", "launches_20261001", id="midnight, said in York"),
    ],
)
def test_g07_days_begin_at_midnight_in_utc(bed: PostgresBed, instant: str, day: str) -> None:
    bed.conn.execute("set timezone to 'America/New_York'")
    bed.conn.execute("select make_day('2026-09-30'), make_day('2026-10-01')")
    launch = make_launch(bed)
    bed.conn.execute("update launches set scheduled_at = %s where id = %s", [instant, launch])
    assert bed.value("select tableoid::regclass::text from launches where id = %s", launch) == day

"""A PostgreSQL that keeps its connections and answers nothing, or only reads: G-15."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from psycopg import conninfo
from sqlalchemy import text
from tests.support.database import Database
from tests.support.proxy import TcpProxy
from tests.support.store_bed import EPOCH, OWNED, P0, PostgresBed, make_job
from tests.support.stub_planner import StubPlanner
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Epoch
from tickrail.core.ports_ownership import RaiseOutcome
from tickrail.runtime.look import Look
from tickrail.store.engine import ApiDatabase
from tickrail.store.fence import PostgresFenceStore
from tickrail.store.installation import read_installation
from tickrail.store.listen import WakeListener
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.session import DatabaseSettings, Session, SessionPool
from tickrail.store.worker import PostgresWorkerStore

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
WRITE = "update installation set tzdata = tzdata"


@pytest.fixture
def proxy(database: Database) -> Iterator[TcpProxy]:
    info = conninfo.conninfo_to_dict(database.engine_url)
    with TcpProxy(str(info["host"]), int(str(info["port"]))) as made:
        yield made


def through(proxy: TcpProxy, url: str) -> DatabaseSettings:
    made = conninfo.make_conninfo(url, host="127.0.0.1", port=proxy.port)
    return DatabaseSettings(made, statement_timeout=0.5, idle_timeout=2.0, connect_within=2)


def test_a_session_gives_up_on_a_server_that_does_not_answer(
    database: Database, proxy: TcpProxy
) -> None:
    settings = through(proxy, database.engine_url)
    session = Session(settings)
    with session.transaction() as cursor:
        cursor.execute("select 1")
    proxy.blackhole("to_client")
    began = CLOCK.monotonic()
    with pytest.raises(UnavailableError, match=r"no answer within 2\.5 s"), session.transaction():
        pass
    assert 2.4 < CLOCK.monotonic() - began < 4.5
    proxy.heal()
    with session.transaction() as cursor:
        assert cursor.execute("select 2").fetchone() == (2,)
    session.close()


def test_a_statement_that_takes_its_time_is_not_given_up(
    database: Database, proxy: TcpProxy
) -> None:
    settings = replace(through(proxy, database.engine_url), statement_timeout=5.0)
    session = Session(settings)
    proxy.delay(0.1)
    with session.transaction() as cursor:
        assert cursor.execute("select 1 from pg_sleep(0.5)").fetchone() == (1,)
    session.close()


def test_an_owner_that_is_cut_off_inside_a_tick_holds_no_taker_up(
    bed: PostgresBed, database: Database, proxy: TcpProxy
) -> None:
    """The server ends its transaction after 2 s, whatever the owner still believes."""
    job = make_job(bed, due_in=-1)
    old = PostgresOwnerStore(through(proxy, database.engine_url), CLOCK)
    fence = PostgresFenceStore(DatabaseSettings(database.engine_url))
    inside = threading.Event()
    planner = StubPlanner()

    def cut_off() -> None:
        proxy.blackhole()
        inside.set()

    planner.inside = cut_off
    with ThreadPoolExecutor(1) as pool:
        ticking = pool.submit(old.tick, OWNED, 10, planner)
        assert inside.wait(10)
        began = CLOCK.monotonic()
        until(lambda: raised(fence), 10)
        assert CLOCK.monotonic() - began < 5
        with pytest.raises(UnavailableError, match="no answer within 4 s"):
            ticking.result(20)
    assert bed.launches(job) == []
    old.close()
    fence.close()


def raised(fence: PostgresFenceStore) -> bool:
    try:
        return fence.raise_epoch(P0, Epoch(EPOCH + 1), "b-1") is RaiseOutcome.RAISED
    except UnavailableError:
        return False


def test_the_look_at_the_database_comes_back_and_so_the_member_key_can_go(
    database: Database, proxy: TcpProxy
) -> None:
    """As the API's connections do."""
    fence = PostgresFenceStore(replace(through(proxy, database.engine_url), statement_timeout=30.0))
    fence.database_now()
    api = ApiDatabase(through(proxy, database.api_url), CLOCK)
    assert api.trouble() == {}
    proxy.blackhole()
    began = CLOCK.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(api.trouble)
        with pytest.raises(UnavailableError):
            fence.database_now()
        assert "postgresql" in asked.result(20)
    assert CLOCK.monotonic() - began < 10
    proxy.heal()
    until(lambda: api.trouble() == {}, 20)
    api.close()
    fence.close()


def standby(database: Database, role: str, *, now: bool) -> None:
    """Every new session of this role takes reads alone, as on a standby."""
    change = "set default_transaction_read_only = on" if now else "reset all"
    database.run(f"alter role {role} in database {database.name} {change}")


def test_g15_on_a_read_only_error_the_whole_pool_is_thrown_away(database: Database) -> None:
    """The sessions were opened on a server that is a standby now."""
    pool = SessionPool(DatabaseSettings(database.engine_url, name="pooled"), 3)
    standby(database, "tickrail_engine", now=True)
    with pool.transaction() as a, pool.transaction() as b, pool.transaction() as c:
        opened = [cursor.connection.info.backend_pid for cursor in (a, b, c)]
    standby(database, "tickrail_engine", now=False)
    with pytest.raises(UnavailableError, match="is a standby"), pool.transaction() as cursor:
        cursor.execute(WRITE)
    with pool.transaction() as a, pool.transaction() as b, pool.transaction() as c:
        for cursor in (a, b, c):
            assert cursor.connection.info.backend_pid not in opened
            cursor.execute("select pg_notify('x', '')")
    pool.close()


def test_g15_the_api_throws_its_pool_away_too(database: Database) -> None:
    standby(database, "tickrail_api", now=True)
    api = ApiDatabase(DatabaseSettings(database.api_url), CLOCK)
    write = text("update idempotency_keys set key = key")
    with api.installation() as one, api.installation() as two:
        one.execute(text("select 1"))
        two.execute(text("select 1"))
    standby(database, "tickrail_api", now=False)
    with pytest.raises(UnavailableError, match="is a standby"), api.installation() as tx:
        tx.execute(write)
    for _ in range(3):
        with api.installation() as tx:
            tx.execute(write)
    api.close()


def test_the_start_says_whether_commits_wait_for_a_standby(database: Database) -> None:
    settings = DatabaseSettings(database.engine_url)
    assert not read_installation(settings).synchronous_standby
    fence = PostgresFenceStore(settings)
    fence.database_now()
    assert not fence.synchronous_standby
    fence.close()


def test_a_listener_notices_that_its_connection_was_cut(
    database: Database, proxy: TcpProxy
) -> None:
    woken: list[int] = []
    listener = WakeListener(through(proxy, database.engine_url), lambda: woken.append(1))
    listener.run_once(0.1)
    proxy.cut()
    with pytest.raises(UnavailableError):
        until(lambda: listener.run_once(0.1) > 0)
    proxy.heal()
    listener.run_once(0.1)
    database.run("select pg_notify('tickrail_wake', '')")
    before = len(woken)
    until(lambda: listener.run_once(0.1) or len(woken) > before)
    listener.close()


def test_a_worker_that_has_nothing_to_claim_can_tell_too(
    database: Database, proxy: TcpProxy
) -> None:
    store = PostgresWorkerStore(through(proxy, database.engine_url), CLOCK)
    look = Look("postgresql", store.trouble, CLOCK)
    assert look.read() == {}
    proxy.blackhole()
    began = CLOCK.monotonic()
    assert "no answer for" in look.read()["postgresql"]
    assert CLOCK.monotonic() - began < 5
    until(lambda: "no answer within" in look.read()["postgresql"], 20)
    proxy.heal()
    until(lambda: look.read() == {}, 20)
    store.close()

"""What is PostgreSQL's own: sessions that die, days, zones, spellings, rights, deadlocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg
from tests.support.store_bed import (
    OWNED,
    TENANT,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    request_of,
    verdict,
)
from tests.support.stub_planner import StubPlanner
from tests.support.until import pause

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import launch_id
from tickrail.core.plan import Decision, PlannedLaunch
from tickrail.core.ports import DueJob, NewLaunch, Planned
from tickrail.core.states import PHASE, State

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
LOST_AFTER = timedelta(minutes=5)


class SlotPlanner(StubPlanner):
    """Launches the given slots of each due job."""

    def __init__(self, *slots: datetime) -> None:
        super().__init__(wake_in=60)
        self.slots = slots

    def _planned(self, job: DueJob, now: datetime) -> Planned:
        new = [
            NewLaunch(
                launch_id(job.id, s, "schedule"), s, s, State.DUE, "default", 1, 5, True, 30.0, None
            )
            for s in self.slots
        ]
        decision = Decision(
            [PlannedLaunch(s, s) for s in self.slots], wake_at=now + timedelta(seconds=60)
        )
        return Planned(job, decision, new)


# --- sessions that die --------------------------------------------------------------------------


def kill(bed: PostgresBed) -> None:
    """End every session of the stores, as an administrator or a failover would."""
    bed.conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'tests'"
    )


def test_a_session_killed_in_the_middle_of_a_tick_leaves_nothing_half_done(
    bed: PostgresBed,
) -> None:
    job = make_job(bed, due_in=-1)
    before = bed.job_row(job)
    planner = StubPlanner(wake_in=60)
    planner.inside = lambda: kill(bed)
    store = bed.owner()
    with pytest.raises(UnavailableError):
        store.tick(OWNED, 10, planner)
    assert bed.job_row(job) == before
    assert bed.launches(job) == []
    assert store.tick(OWNED, 10, StubPlanner(wake_in=60)).jobs == 1


def test_a_session_killed_between_two_calls_costs_one_call(bed: PostgresBed) -> None:
    owner, worker = bed.owner(), bed.worker()
    launch = make_launch(bed)
    owner.backlog(OWNED, 10)
    c = claim_one(bed, worker, launch)
    ends = [end_of(c, verdict(c, State.SUCCEEDED))]
    worker.asked_to_stop([(launch, c.scheduled_at)])
    kill(bed)
    calls: list[Callable[[], object]] = [
        lambda: owner.backlog(OWNED, 10),
        lambda: worker.claim([request_of(bed, launch)], "w-1"),
        lambda: worker.asked_to_stop([(launch, c.scheduled_at)]),
    ]
    for call in calls:
        with pytest.raises(UnavailableError):
            call()
        call()
    assert worker.finish(ends).states == {launch: State.SUCCEEDED}


def test_g15_a_session_that_idled_for_too_long_is_replaced(bed: PostgresBed) -> None:
    job = make_job(bed, due_in=-1)
    planner = StubPlanner(wake_in=60)
    planner.inside = lambda: pause(2.3)  # the server ends idle transactions of owners after 2 s
    store = bed.owner()
    with pytest.raises(UnavailableError):
        store.tick(OWNED, 10, planner)
    assert bed.launches(job) == []
    assert store.tick(OWNED, 10, StubPlanner(wake_in=60)).jobs == 1


def test_a_statement_that_waits_for_a_lock_ends_after_two_seconds(bed: PostgresBed) -> None:
    job = make_job(bed, due_in=-1)
    with bed.database.admin() as conn, conn.transaction():
        conn.execute("select from partitions for update")
        began = CLOCK.monotonic()
        with pytest.raises(UnavailableError):
            bed.owner().tick(OWNED, 10, StubPlanner())
        assert 1.5 < CLOCK.monotonic() - began < 5
    assert bed.launches(job) == []


# --- days ---------------------------------------------------------------------------------------


def test_g07_a_missing_day_is_made_on_demand(bed: PostgresBed) -> None:
    job = make_job(bed, due_in=-1)
    far = bed.now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=540)
    slots = [far, far - timedelta(seconds=1), far - timedelta(days=545)]
    ticked = bed.owner().tick(OWNED, 10, SlotPlanner(*slots))
    assert len(ticked.inserted) == 3
    assert [x.scheduled_at for x in bed.launches(job)] == sorted(slots)
    days = bed.conn.execute(
        "select tableoid::regclass::text from launches order by scheduled_at"
    ).fetchall()
    assert [d[0] for d in days] == [f"launches_{s:%Y%m%d}" for s in sorted(slots)]


def test_g07_a_day_dropped_behind_the_owners_back_is_made_at_the_next_try(
    bed: PostgresBed,
) -> None:
    store = bed.owner()
    make_job(bed, due_in=-1)
    slot = bed.now().replace(microsecond=0) - timedelta(days=20)
    store.tick(OWNED, 10, SlotPlanner(slot))
    bed.conn.execute("delete from launches")
    bed.conn.execute("select drop_day(%s)", [slot.date()])
    job = make_job(bed, due_in=-1)
    with pytest.raises(UnavailableError, match="made at the next try"):
        store.tick(OWNED, 10, SlotPlanner(slot))
    assert len(store.tick(OWNED, 10, SlotPlanner(slot)).inserted) == 1
    assert len(bed.launches(job)) == 1


def test_a_launch_by_hand_is_seen_at_once_by_an_owner_that_has_just_looked(
    bed: PostgresBed,
) -> None:
    store = bed.owner()
    job = make_job(bed)
    assert list(store.backlog(OWNED, 10).due) == []  # nothing is open: it looks no further back
    launch = make_launch(bed, job, ago=1)  # its slot is the second that has begun already
    assert [p.id for p in store.backlog(OWNED, 10).due] == [launch]


# --- zones and spellings ------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_g11_instants_are_the_same_in_every_session_zone(bed: PostgresBed, zone: str) -> None:
    name = bed.database.name
    bed.conn.execute(f'alter database "{name}" set timezone to {zone!r}'.encode())
    job = make_job(bed, due_in=-1)
    slot = datetime(2026, 9, 14, 20, 10, 32, tzinfo=UTC)
    ticked = bed.owner().tick(OWNED, 10, SlotPlanner(slot))
    assert [p.scheduled_at for p in ticked.inserted] == [slot]
    assert bed.launches(job)[0].scheduled_at == slot
    assert abs(ticked.now - CLOCK.now()) < timedelta(minutes=1)
    with psycopg.connect(bed.database.engine_url) as conn:
        assert conn.execute("show timezone").fetchone() == (zone,)
        row = conn.execute("select scheduled_at, tableoid::regclass::text from launches").fetchone()
    assert row == (slot, "launches_20260914")


def test_g11_no_column_forgets_its_zone(bed: PostgresBed) -> None:
    naive = bed.conn.execute(
        "select table_name, column_name from information_schema.columns"
        " where table_schema = 'public' and data_type = 'timestamp without time zone'"
    ).fetchall()
    assert naive == []


def test_g13_one_slot_in_many_spellings_is_one_launch(bed: PostgresBed) -> None:
    job = make_job(bed, due_in=-1)
    spellings = [
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T05:30:00+05:30",
        "2025-12-31T19:00:00-05:00",
    ]
    existed = []
    for text in spellings:
        bed.conn.execute(
            "update jobs set state = 'active', next_run_at = now() where id = %s", [job]
        )
        ticked = bed.owner().tick(OWNED, 10, SlotPlanner(datetime.fromisoformat(text)))
        existed.append((len(ticked.inserted), ticked.existed))
    assert existed == [(1, 0), (0, 1), (0, 1)]
    assert len(bed.launches(job)) == 1


def test_g13_a_due_instant_with_a_fraction_names_the_slot_of_its_second(bed: PostgresBed) -> None:
    job = make_job(bed, due_in=-1)
    for micros in (0, 400, 600_000):
        due = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        bed.conn.execute(
            "update jobs set state = 'active', next_run_at = %s where id = %s", [due, job]
        )
        bed.owner().tick(OWNED, 10, StubPlanner())
    assert [x.scheduled_at for x in bed.launches(job)] == [datetime(2026, 1, 1, tzinfo=UTC)]


# --- rights -------------------------------------------------------------------------------------


def test_nobody_bypasses_row_security(bed: PostgresBed) -> None:
    rows = bed.conn.execute(
        "select rolname, rolbypassrls, rolsuper from pg_roles where rolname like 'tickrail%'"
        " order by 1"
    ).fetchall()
    assert rows == [
        ("tickrail_api", False, False),
        ("tickrail_engine", False, False),
        ("tickrail_owner", False, False),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "alter table launches disable row level security",
        "drop table launches",
        "create table mine (a int)",
        "set role tickrail_owner",
        "update queues set paused = true",
        "delete from installation",
        "select secret_hash from api_keys",
        "truncate launches",
    ],
)
def test_the_engine_may_not(bed: PostgresBed, statement: str) -> None:
    with psycopg.connect(bed.database.engine_url, autocommit=True) as conn:
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute(statement.encode())
        assert conn.execute("select 1").fetchone() == (1,)


def test_the_api_sees_its_tenant_alone_and_no_partition(bed: PostgresBed) -> None:
    launch = make_launch(bed)
    day = f"launches_{bed.row(launch).scheduled_at:%Y%m%d}"
    count = "select count(*) from launches"
    with psycopg.connect(bed.database.api_url, autocommit=True) as conn:
        assert conn.execute(count).fetchone() == (0,)
        conn.execute("select set_config('tickrail.tenant', %s, false)", [str(TENANT)])
        assert conn.execute(count).fetchone() == (1,)
        conn.execute("select set_config('tickrail.tenant', %s, false)", [str(uuid4())])
        assert conn.execute(count).fetchone() == (0,)
        conn.execute("set row_security to off")
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute(count)
        conn.execute("set row_security to on")
        with pytest.raises(pg.InsufficientPrivilege):
            conn.execute(f"select * from {day}".encode())
    with psycopg.connect(bed.database.engine_url) as conn:
        assert conn.execute(count).fetchone() == (1,)


def test_every_phase_is_that_of_its_state(bed: PostgresBed) -> None:
    for state in State:
        launch = make_launch(bed, state=state)
        assert bed.value("select phase from launches where id = %s", launch) == PHASE[state]
    with pytest.raises(pg.CheckViolation):
        bed.conn.execute("update launches set phase = 3 where state = 'due'")

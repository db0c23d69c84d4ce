"""Newer zone data on both stores: what moves, what stays, what is written down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, cast

import pytest
from tests.support.memory_zone_data import Change, MemoryZoneData
from tests.support.stepped import Counted
from tests.support.store_bed import EPOCH, OWNED, P0, P1, P2, Bed, MemoryBed, PostgresBed, make_job

from tickrail.core.ids import Epoch, JobId, Partition
from tickrail.core.ports_zone_data import ZoneDataStore
from tickrail.engine.zone_data import ZoneData

ZONE = "Etc/GMT-2"
OLD, NEW = "2026a", "2026b"
HOUR = timedelta(hours=1)


class Zones(Protocol):
    """The store, and what a test sees of it."""

    bed: Bed
    store: ZoneDataStore

    def changes(self) -> list[Change]: ...

    def versions(self) -> Mapping[Partition, str]: ...

    def set_version(self, partition: Partition, version: str) -> None: ...

    def lock(self, job: JobId) -> None: ...

    def unlock(self) -> None: ...


class MemoryZones:
    def __init__(self, bed: MemoryBed) -> None:
        self.bed = bed
        self.store = self._store = MemoryZoneData(bed.db)

    def changes(self) -> list[Change]:
        return self._store.changes

    def versions(self) -> Mapping[Partition, str]:
        return {p: self._store.stored.get(p, "") for p in OWNED}

    def set_version(self, partition: Partition, version: str) -> None:
        self._store.stored[partition] = version

    def lock(self, job: JobId) -> None:
        self.bed.db.locked_jobs.add(job)

    def unlock(self) -> None:
        self.bed.db.locked_jobs.clear()


class PostgresZones:
    def __init__(self, bed: PostgresBed) -> None:
        self.bed = bed
        self.store = bed.owner().zone_data
        self._other = bed.database.admin()

    def changes(self) -> list[Change]:
        rows = self.bed.conn.execute(
            "select job_id, from_version, to_version, before_at, after_at from tzdata_changes"
            " order by changed_at, job_id"
        ).fetchall()
        return [Change(*cast("Any", row)) for row in rows]

    def versions(self) -> Mapping[Partition, str]:
        rows = self.bed.conn.execute("select partition, tzdata from partitions").fetchall()
        return dict(cast("Any", rows))

    def set_version(self, partition: Partition, version: str) -> None:
        self.bed.conn.execute(
            "update partitions set tzdata = %s where partition = %s", [version, partition]
        )

    def lock(self, job: JobId) -> None:
        self._other.autocommit = False
        self._other.execute("select from jobs where id = %s for update", [job])

    def unlock(self) -> None:
        self._other.rollback()

    def close(self) -> None:
        self._other.close()


@pytest.fixture
def zones(bed: Bed) -> Any:
    found = MemoryZones(bed) if isinstance(bed, MemoryBed) else PostgresZones(cast("Any", bed))
    for partition in OWNED:
        found.set_version(partition, OLD)
    yield found
    if isinstance(found, PostgresZones):
        found.close()


def daily(zones: Zones, *, late: timedelta = HOUR, **more: Any) -> JobId:
    """A daily job six hours from now in ZONE, stored `late` as by an older offset."""
    slot = (zones.bed.now() + 6 * HOUR).replace(minute=0, second=0, microsecond=0)
    local = slot + 2 * HOUR
    schedule = {"cron": f"0 {local.hour} * * *", "time_zone": ZONE}
    job = make_job(zones.bed, due_in=0, schedule=schedule, **more)
    zones.bed.change_job(job, next_run_at=slot + late)
    return job


def apply(zones: Zones, owned: Mapping[Partition, Epoch] = OWNED, **settings: Any) -> ZoneData:
    data = ZoneData(zones.store, Counted(), version=NEW, **settings)
    data.run_once(owned)
    for _ in range(50):
        if not data.busy:
            return data
        data.run_once(owned)
    raise AssertionError("the walk does not end")


def next_run(zones: Zones, job: JobId) -> Any:
    return zones.bed.job_row(job).next_run_at


def test_next_runs_move_each_is_written_down_and_then_the_version(zones: Zones) -> None:
    jobs = [daily(zones, partition=Partition(n % 4)) for n in range(9)]
    right = daily(zones, late=timedelta(0))
    utc = make_job(zones.bed, due_in=100, schedule={"cron": "0 2 * * *"})
    every = make_job(zones.bed, due_in=100, schedule={"every": "15m"})
    hand = make_job(zones.bed)
    before = {job: next_run(zones, job) for job in (*jobs, right, utc, every)}
    data = apply(zones, batch=4)
    assert data.ready(OWNED) == OWNED
    for job in jobs:
        assert next_run(zones, job) == before[job] - HOUR
    assert all(next_run(zones, job) == before[job] for job in (right, utc, every))
    assert next_run(zones, hand) is None
    changes = zones.changes()
    assert sorted(c.job for c in changes) == sorted(jobs)
    for c in changes:
        assert (c.from_version, c.to_version) == (OLD, NEW)
        assert (c.before, c.after) == (before[c.job], next_run(zones, c.job))
    assert zones.versions() == dict.fromkeys(OWNED, NEW)


def test_a_second_walk_moves_nothing(zones: Zones) -> None:
    job = daily(zones)
    apply(zones)
    moved = next_run(zones, job)
    zones.set_version(P0, "")
    apply(zones)
    assert (next_run(zones, job), len(zones.changes())) == (moved, 1)
    assert zones.versions()[P0] == NEW


def test_a_paused_job_moves_and_stays_paused(zones: Zones) -> None:
    job, finished = daily(zones, state="paused"), daily(zones, state="deleted")
    apply(zones)
    assert [c.job for c in zones.changes()] == [job]
    assert zones.bed.job_row(job).state == "paused"
    assert zones.bed.job_row(finished).state == "deleted"


def test_a_job_that_has_no_slot_left_is_finished(zones: Zones) -> None:
    end = zones.bed.now() + 4.9 * HOUR
    job = daily(zones, late=-HOUR, ends_at=end.isoformat())
    zones.bed.change_job(job, next_run_at=end - HOUR)
    apply(zones)
    row = zones.bed.job_row(job)
    assert (row.state, row.next_run_at) == ("finished", None)
    assert zones.changes()[0].after is None


def test_a_partition_with_newer_data_is_left_alone_and_told_of_the_older(zones: Zones) -> None:
    job = daily(zones)
    before = next_run(zones, job)
    zones.set_version(P0, "2027a")
    zones.set_version(P1, NEW)
    data = ZoneData(zones.store, Counted(), version=NEW)
    data.run_once({P0: EPOCH, P1: EPOCH})
    assert not data.busy
    assert data.ready(OWNED) == {P0: EPOCH, P1: EPOCH}
    assert (next_run(zones, job), zones.changes()) == (before, [])
    assert zones.versions()[P0] == NEW, "from now on this is the data that next runs are by"


def test_a_fenced_partition_is_not_touched_and_the_rest_goes_on(zones: Zones) -> None:
    lost, kept = daily(zones, partition=P1), daily(zones, partition=P2)
    before = next_run(zones, lost)
    data = ZoneData(zones.store, Counted(), version=NEW)
    zones.bed.set_epoch(P1, EPOCH + 1)
    owned = {P1: EPOCH, P2: EPOCH}
    report = data.run_once(owned)
    assert (report.higher, report.lower) == ((P1,), ())
    del owned[P1]  # so says the ownership when it hears of it
    while data.busy:
        assert not data.run_once(owned)
    assert (next_run(zones, lost), zones.versions()[P1]) == (before, OLD)
    assert [c.job for c in zones.changes()] == [kept]
    assert data.ready(owned) == {P2: EPOCH}


def test_a_job_that_somebody_has_locked_is_looked_at_again(zones: Zones) -> None:
    job, free = daily(zones), daily(zones)
    data = ZoneData(zones.store, Counted(), version=NEW)
    zones.lock(job)
    for _ in range(3):
        data.run_once(OWNED)
    assert [c.job for c in zones.changes()] == [free]
    assert data.busy
    assert data.ready(OWNED) == {}
    zones.unlock()
    while data.busy:
        data.run_once(OWNED)
    assert sorted(c.job for c in zones.changes()) == sorted([job, free])


def test_a_partition_lost_on_the_way_is_given_up_and_a_new_one_is_looked_at(zones: Zones) -> None:
    first, second = daily(zones, partition=P0), daily(zones, partition=P1)
    data = ZoneData(zones.store, Counted(), version=NEW, batch=1)
    data.run_once({P0: EPOCH})
    data.run_once({P1: EPOCH})
    while data.busy:
        data.run_once({P1: EPOCH})
    assert second in [c.job for c in zones.changes()]
    assert data.ready(OWNED) == {P1: EPOCH}
    del first


def test_a_plan_that_cannot_be_read_holds_no_other_up(zones: Zones) -> None:
    bad, good = daily(zones), daily(zones)
    row = zones.bed.job_row(bad)
    broken = row.plan.replace(ZONE, "Nowhere/Land")
    if isinstance(zones, MemoryZones):
        zones.bed.db.jobs[bad].plan = broken
    else:
        cast("PostgresBed", zones.bed).conn.execute(
            "update jobs set plan = %s where id = %s", [broken, bad]
        )
    apply(zones)
    assert [c.job for c in zones.changes()] == [good]
    assert zones.versions()[P0] == NEW

"""What the port `CalendarRecords` promises, in memory and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.memory_api import Extra, MemoryApi
from tests.support.stepped import TENANT
from tests.support.store_bed import Bed, MemoryBed, PostgresBed, make_job

from tickrail.core.clock import SystemClock
from tickrail.core.ids import JobId
from tickrail.core.job_filter import JobState
from tickrail.core.ports_api import CalendarRecord, Transaction
from tickrail.store.engine import ApiDatabase
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOCUMENT = {"dates": ["2026-12-24"]}


@dataclass
class Records:
    """Transactions on a bed's tables."""

    bed: Bed
    open: Callable[[], AbstractContextManager[Transaction]]
    api: MemoryApi | None = None

    def job(self, **fields: str) -> JobId:
        made = make_job(self.bed, due_in=60, schedule={"every": "1h"}, **fields)
        if self.api is not None:
            self.api.extra[made] = Extra(AT, AT)
        return made


@pytest.fixture
def records(bed: Bed) -> Iterator[Records]:
    if isinstance(bed, MemoryBed):
        api = MemoryApi(bed.db)
        yield Records(bed, api.transaction, api)
        return
    assert isinstance(bed, PostgresBed)
    make_job(bed)  # its tenant with it
    database = ApiDatabase(DatabaseSettings(bed.database.api_url), SystemClock())
    yield Records(bed, lambda: database.tenant(TENANT, Caller("key:test")))
    database.close()


def record(name: str, version: int = 1) -> CalendarRecord:
    return CalendarRecord(name, version, DOCUMENT, AT, AT)


def test_what_is_inserted_is_found_once(records: Records) -> None:
    with records.open() as tx:
        assert tx.calendars.find("a") is None
        assert tx.calendars.insert(record("a"))
        assert not tx.calendars.insert(record("a", 9))
    with records.open() as tx:
        assert tx.calendars.find("a", lock=True) == record("a")
        changed = replace(record("a", 2), document={}, updated_at=AT + timedelta(hours=1))
        tx.calendars.replace(changed)
        assert tx.calendars.find("a") == changed
        tx.calendars.delete("a")
        assert tx.calendars.find("a") is None


def test_pages_are_by_name(records: Records) -> None:
    with records.open() as tx:
        for name in ("b", "a-1", "c", "a"):
            tx.calendars.insert(record(name))
        assert [r.name for r in tx.calendars.page("", 3)] == ["a", "a-1", "b"]
        assert [r.name for r in tx.calendars.page("b", 3)] == ["c"]


@pytest.mark.parametrize("lock", [False, True])
def test_load_answers_what_is_there_ready_to_be_asked(records: Records, *, lock: bool) -> None:
    with records.open() as tx:
        tx.calendars.insert(record("a", 4))
        tx.calendars.insert(record("b"))
        found = tx.calendars.load(["a", "nothing"], lock=lock)
        assert list(found) == ["a"]
        assert found["a"].version == 4
        assert found["a"].contains(int(datetime(2026, 12, 24, tzinfo=UTC).timestamp()))
        assert tx.calendars.load([], lock=lock) == {}
        tx.calendars.replace(replace(record("a", 5), document={}))
        assert tx.calendars.load(["a"])["a"].document["dates"] == []


def test_jobs_that_use_a_calendar_are_found_by_id(records: Records) -> None:
    jobs = sorted(records.job() for _ in range(4))
    gone = records.job(state="deleted")
    with records.open() as tx:
        for job in (*jobs, gone):
            tx.calendars.use(job, ["a", "b", "a"])
        tx.calendars.use(jobs[3], ["b"])
        tx.calendars.use(jobs[3], [])
    with records.open() as tx:
        first = tx.calendars.jobs_using("a", None, 2, lock=True)
        assert [j.id for j in first] == jobs[:2]
        assert [j.id for j in tx.calendars.jobs_using("a", jobs[1], 5)] == [jobs[2]]
        assert [j.id for j in tx.calendars.jobs_using("b", None, 5)] == jobs[:3]
        assert tx.calendars.jobs_using("c", None, 5) == []
        [one] = tx.calendars.jobs_using("a", jobs[1], 1)
        assert one.next_run_at == records.bed.job_row(one.id).next_run_at
        assert (one.state, one.paused, one.launched, one.awaits) == (
            JobState.ACTIVE,
            False,
            0,
            False,
        )
        assert one.plan["schedule"]["every"] == "1h"


def test_a_move_writes_state_next_run_and_last_slot(records: Records) -> None:
    job, other = records.job(), records.job()
    before = records.bed.job_row(other).next_run_at
    with records.open() as tx:
        tx.calendars.use(job, ["a"])
        [found] = tx.calendars.jobs_using("a", None, 1, lock=True)
        moved = replace(found, state=JobState.FINISHED, next_run_at=None, last_slot_at=AT)
        tx.calendars.move([moved])
        tx.calendars.move([])
    row = records.bed.job_row(job)
    assert (row.state, row.next_run_at, row.last_slot_at) == ("finished", None, AT)
    assert records.bed.job_row(other).next_run_at == before

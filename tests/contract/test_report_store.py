"""The contract of the report stores: what runs tell, and which workers are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pytest
from tests.support.memory_reports import MemoryReportStore
from tests.support.store_bed import OWNED, Bed, MemoryBed, PostgresBed, claim_one, make_launch

from tickrail.core.execution import LOG_BYTES
from tickrail.core.ids import Claim, LaunchId
from tickrail.core.ports_reports import ReportStore, RunReport, WorkerInfo
from tickrail.core.ports_worker import Claimed
from tickrail.core.states import State
from tickrail.engine.reaper import decide
from tickrail.store.reports import PostgresReportStore

MINUTE = timedelta(seconds=60)


class Kept(NamedTuple):
    """A log as it is kept."""

    body: str
    size: int
    ended: bool


class ReportBed(Protocol):
    """A report store, and what it keeps."""

    launches: Bed
    store: ReportStore

    def log(self, launch: LaunchId, attempt: int) -> Kept | None: ...

    def progress(self, launch: LaunchId) -> Any: ...

    def workers(self) -> dict[str, tuple[int, bool]]: ...

    def forget_day(self, launch: LaunchId) -> None: ...

    def pass_time(self, seconds: float) -> None: ...


class MemoryReports:
    def __init__(self) -> None:
        self.launches = MemoryBed()
        self.store = MemoryReportStore(self.launches.db)

    def log(self, launch: LaunchId, attempt: int) -> Kept | None:
        row = self.store.logs.get((launch, attempt))
        return None if row is None else Kept(row.body, row.size, row.ended)

    def progress(self, launch: LaunchId) -> Any:
        return self.store.progress(launch)

    def workers(self) -> dict[str, tuple[int, bool]]:
        return {k: (w.running, w.draining) for k, (w, _) in self.store.workers.items()}

    def forget_day(self, launch: LaunchId) -> None:
        del self.launches.db.launches[launch]

    def pass_time(self, seconds: float) -> None:
        self.launches.advance(seconds)


class PostgresReports:
    def __init__(self, bed: PostgresBed) -> None:
        self.launches = bed
        self.store = PostgresReportStore(bed.settings)

    def log(self, launch: LaunchId, attempt: int) -> Kept | None:
        row: Any = self.launches.conn.execute(
            "select body, size, ended from launch_logs where launch_id = %s and attempt = %s",
            [launch, attempt],
        ).fetchone()
        return None if row is None else Kept(*row)

    def progress(self, launch: LaunchId) -> Any:
        return self.launches.value("select progress from launches where id = %s", launch)

    def workers(self) -> dict[str, tuple[int, bool]]:
        rows: Any = self.launches.conn.execute("select id, running, draining from workers")
        return {row[0]: (row[1], row[2]) for row in rows}

    def forget_day(self, launch: LaunchId) -> None:
        day = self.launches.row(launch).scheduled_at.date()
        self.launches.change(launch, state=State.SUCCEEDED)
        assert self.launches.value("select drop_day(%s)", day)

    def pass_time(self, seconds: float) -> None:
        by = timedelta(seconds=seconds)
        self.launches.conn.execute("update workers set seen_at = seen_at - %s", [by])


@pytest.fixture
def reports(bed: Bed) -> Iterator[ReportBed]:
    if isinstance(bed, PostgresBed):
        postgres = PostgresReports(bed)
        yield postgres
        postgres.store.close()
        return
    yield MemoryReports()


def started(reports: ReportBed, launch: LaunchId | None = None, attempt: int = 1) -> Claimed:
    bed = reports.launches
    return claim_one(bed, bed.worker(), launch or make_launch(bed), attempt)


def told(c: Claimed, body: str | None = None, **changes: Any) -> RunReport:
    report = RunReport(
        c.id,
        c.scheduled_at,
        c.tenant,
        c.attempt,
        c.claim,
        body,
        len((body or "").encode()),
        ended=False,
        progress=None,
    )
    return report._replace(**changes)


def worker(name: str, **changes: Any) -> WorkerInfo:
    info = WorkerInfo(
        name, "w", ("default",), ("webhook",), (), "1.0", concurrency=8, running=0, draining=False
    )
    return info._replace(**changes)


def test_a_log_is_replaced_by_what_comes_later(reports: ReportBed) -> None:
    one, two = started(reports), started(reports)
    reports.store.write_runs([told(one, "a\n"), told(two, "x\n")])
    assert reports.log(one.id, 1) == Kept("a\n", 2, ended=False)
    reports.store.write_runs([told(one, "a\nb\n", ended=True)])
    assert reports.log(one.id, 1) == Kept("a\nb\n", 4, ended=True)
    assert reports.log(two.id, 1) == Kept("x\n", 2, ended=False)


def test_each_attempt_has_a_log_of_its_own(reports: ReportBed) -> None:
    one = started(reports)
    reports.store.write_runs([told(one, "first", ended=True)])
    reports.launches.change(one.id, state=State.DUE, attempt=2)
    two = started(reports, one.id, attempt=2)
    reports.store.write_runs([told(two, "second")])
    # The first worker's last words may come when another has it.
    reports.store.write_runs([told(one, "first, late", ended=True)])
    assert reports.log(one.id, 1) == Kept("first, late", 11, ended=True)
    assert reports.log(one.id, 2) == Kept("second", 6, ended=False)


def test_a_log_holds_any_text_and_the_longest_tail(reports: ReportBed) -> None:
    one = started(reports)
    text = "\ufffd\u00e9\U0001f600\x1b[0m\\u0000" + "x" * LOG_BYTES
    reports.store.write_runs([told(one, text)])
    kept = reports.log(one.id, 1)
    assert kept is not None
    assert kept.body == text


def test_progress_is_the_launch_s_while_it_has_the_run_s_claim(reports: ReportBed) -> None:
    one = started(reports)
    reports.store.write_runs([told(one, progress='{"done": 1, "of": 4}')])
    assert reports.progress(one.id) == {"done": 1, "of": 4}
    assert reports.log(one.id, 1) is None
    reports.launches.change(one.id, state=State.SUCCEEDED)
    reports.store.write_runs([told(one, progress=json.dumps(100))])
    assert reports.progress(one.id) == 100
    stale = told(one, progress='"stale"', claim=Claim(one.claim - 1))
    reports.store.write_runs([stale])
    assert reports.progress(one.id) == 100
    reports.launches.change(one.id, state=State.DUE, attempt=2)
    assert reports.progress(one.id) == 100
    started(reports, one.id, attempt=2)
    assert reports.progress(one.id) is None
    reports.store.write_runs([told(one, progress="101")])
    assert reports.progress(one.id) is None


def test_what_is_told_of_a_launch_that_is_gone_is_passed_over(reports: ReportBed) -> None:
    gone, there = started(reports), started(reports, make_launch(reports.launches, ago=86400 * 3))
    reports.forget_day(there.id)
    reports.store.write_runs(
        [
            told(there, "lost", progress="1"),
            told(gone, "kept"),
            told(gone._replace(id=LaunchId(uuid4())), "unknown"),
        ]
    )
    assert reports.log(gone.id, 1) == Kept("kept", 4, ended=False)
    assert reports.log(there.id, 1) is None


def test_workers_are_there_until_they_leave(reports: ReportBed) -> None:
    reports.store.present(worker("a"), MINUTE)
    reports.store.present(worker("b", running=3), MINUTE)
    reports.store.present(worker("a", running=2, draining=True), MINUTE)
    assert reports.workers() == {"a": (2, True), "b": (3, False)}
    reports.store.left("a")
    reports.store.left("never there")
    assert reports.workers() == {"b": (3, False)}


def test_a_worker_not_heard_of_is_forgotten_by_another(reports: ReportBed) -> None:
    reports.store.present(worker("silent"), MINUTE)
    reports.pass_time(59)
    reports.store.present(worker("a"), MINUTE)
    assert set(reports.workers()) == {"silent", "a"}
    reports.pass_time(2)
    reports.store.present(worker("a"), MINUTE)
    assert set(reports.workers()) == {"a"}
    reports.store.present(worker("silent"), MINUTE)
    assert set(reports.workers()) == {"silent", "a"}


@pytest.mark.parametrize("order", ["forgotten first", "reaped first", "between"])
def test_e03_the_runs_of_a_worker_that_is_forgotten_are_found_in_every_order(
    reports: ReportBed, order: str
) -> None:
    """The list of workers is for people: no claim hangs on it."""
    bed = reports.launches
    reports.store.present(worker("w-1"), MINUTE)
    runs = [started(reports) for _ in range(3)]
    bed.advance(61)
    reports.pass_time(0 if isinstance(bed, MemoryBed) else 61)
    owner, found = bed.owner(), 0
    if order != "forgotten first":
        found += owner.reap(OWNED, 1 if order == "between" else 10, decide).moved["due"]
    reports.store.present(worker("w-2"), MINUTE)
    assert set(reports.workers()) == {"w-2"}
    found += owner.reap(OWNED, 10, decide).moved.get("due", 0)
    assert found == 3
    assert {bed.row(c.id).state for c in runs} == {State.DUE}

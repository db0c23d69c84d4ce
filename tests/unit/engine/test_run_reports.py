"""What runs tell: bounded, written when it is new, and not lost while the database is away."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest
from tests.support.memory_reports import MemoryReportStore
from tests.support.runs import make_run
from tests.support.stepped import Stepped
from tests.support.store_bed import MemoryBed, claim_one, make_launch
from tests.unit.engine.test_runs import started

from tickrail.core.errors import UnavailableError
from tickrail.core.execution import LOG_BYTES, PROGRESS_BYTES, Run
from tickrail.core.ids import LaunchId
from tickrail.engine.run_reports import RunReports, tail_text


class World:
    """Runs of a memory worker and what they tell."""

    def __init__(self) -> None:
        self.bed = MemoryBed()
        self.store = MemoryReportStore(self.bed.db)
        self.reports = RunReports(self.store)

    def run(self) -> Run:
        c = claim_one(self.bed, self.bed.worker(), make_launch(self.bed))
        run = make_run(
            {"noop": {}},
            launch_id=c.id,
            scheduled_at=c.scheduled_at,
            tenant_id=c.tenant,
            attempt=c.attempt,
            claim=c.claim,
        )
        self.reports.begin(run)
        return run

    def body(self, run: Run) -> str | None:
        row = self.store.logs.get((LaunchId(run.launch_id), run.attempt))
        return None if row is None else row.body

    @property
    def writes(self) -> int:
        return self.bed.db.calls["write_runs"]


def tell(run: Run, data: bytes) -> None:
    assert run.tell is not None
    run.tell(data)


def progress(run: Run, value: object) -> None:
    assert run.progress is not None
    run.progress(value)


@pytest.fixture
def world() -> World:
    return World()


def test_output_is_written_while_the_run_goes_on_and_marked_at_its_end(world: World) -> None:
    run = world.run()
    tell(run, b"one\n")
    tell(run, b"")
    tell(run, b"two\n")
    assert world.reports.run_once() > 0
    row = world.store.logs[LaunchId(run.launch_id), 1]
    assert (row.body, row.size, row.ended) == ("one\ntwo\n", 8, False)
    world.reports.end(run)
    world.reports.run_once()
    row = world.store.logs[LaunchId(run.launch_id), 1]
    assert (row.body, row.size, row.ended) == ("one\ntwo\n", 8, True)


def test_nothing_new_is_not_written_again(world: World) -> None:
    quiet, loud = world.run(), world.run()
    tell(loud, b"x")
    world.reports.run_once()
    world.reports.run_once()
    world.reports.end(quiet)
    world.reports.run_once()
    assert world.writes == 1
    assert world.body(quiet) is None


def test_all_runs_of_a_moment_share_a_statement(world: World) -> None:
    runs = [world.run() for _ in range(50)]
    for run in runs:
        tell(run, b"y")
        progress(run, 1)
    world.reports.run_once()
    assert world.writes == 1
    assert {world.body(run) for run in runs} == {"y"}


def test_large_tails_are_written_in_statements_of_a_few_megabytes(world: World) -> None:
    runs = [world.run() for _ in range(100)]
    for run in runs:
        tell(run, b"z" * LOG_BYTES)
    world.reports.run_once()
    assert world.writes == 2
    assert {world.body(run) for run in runs} == {"z" * LOG_BYTES}


@pytest.mark.parametrize("chunk", [1000, LOG_BYTES - 1, LOG_BYTES, 3 * LOG_BYTES])
def test_the_end_of_a_long_output_is_kept(world: World, chunk: int) -> None:
    run = world.run()
    whole = b"".join(b"%07d\n" % i for i in range(50_000))
    for at in range(0, len(whole), chunk):
        tell(run, whole[at : at + chunk])
    world.reports.run_once()
    row = world.store.logs[LaunchId(run.launch_id), 1]
    assert row.body == whole[-LOG_BYTES:].decode()
    assert row.size == len(whole)


def test_what_cannot_be_written_is_written_later(world: World) -> None:
    run = world.run()
    tell(run, b"a")
    progress(run, {"at": 1})
    world.bed.db.down = True
    with pytest.raises(UnavailableError):
        world.reports.run_once()
    tell(run, b"b")
    world.reports.end(run)
    world.bed.db.down = False
    world.reports.run_once()
    row = world.store.logs[LaunchId(run.launch_id), 1]
    assert (row.body, row.ended) == ("ab", True)
    assert world.store.progress(LaunchId(run.launch_id)) == {"at": 1}


def test_what_cannot_be_written_is_written_later_though_nothing_more_is_told(world: World) -> None:
    run = world.run()
    tell(run, b"a")
    world.bed.db.down = True
    with pytest.raises(UnavailableError):
        world.reports.run_once()
    world.bed.db.down = False
    world.reports.run_once()
    assert world.body(run) == "a"
    progress(run, 1)
    world.bed.db.down = True
    with pytest.raises(UnavailableError):
        world.reports.run_once()
    world.bed.db.down = False
    world.reports.run_once()
    assert world.store.progress(LaunchId(run.launch_id)) == 1


def test_a_run_that_has_ended_tells_no_more(world: World) -> None:
    run = world.run()
    tell(run, b"in time")
    world.reports.end(run)
    tell(run, b"late")
    progress(run, "late")
    world.reports.run_once()
    assert world.body(run) == "in time"
    assert world.store.progress(LaunchId(run.launch_id)) is None


def test_the_last_progress_counts(world: World) -> None:
    run = world.run()
    for done in range(3):
        progress(run, {"done": done, "what": "caf\u00e9"})
    world.reports.run_once()
    assert world.store.progress(LaunchId(run.launch_id)) == {"done": 2, "what": "caf\u00e9"}


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), {1, 2}, "x" * PROGRESS_BYTES, "\ud800", {"a": UUID(int=1)}],
    ids=["object", "nan", "set", "too large", "surrogate", "uuid"],
)
def test_progress_that_cannot_be_kept_is_refused(world: World, value: object) -> None:
    run = world.run()
    with pytest.raises(ValueError, match="progress"):
        progress(run, value)
    world.reports.run_once()
    assert world.writes == 0


def test_progress_without_nul(world: World) -> None:
    run = world.run()
    progress(run, "a\x00b")
    world.reports.run_once()
    assert world.store.progress(LaunchId(run.launch_id)) == "a\ufffdb"


def test_output_of_many_threads_is_all_there(world: World) -> None:
    run = world.run()
    lines = [b"%d %d\n" % (n, i) for n in range(4) for i in range(200)]
    threads = [
        threading.Thread(target=lambda n=n: [tell(run, x) for x in lines[n * 200 : n * 200 + 200]])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        world.reports.run_once()
    for thread in threads:
        thread.join()
    world.reports.flush()
    body = world.body(run)
    assert body is not None
    assert sorted(body.encode().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize(
    ("output", "cut", "text"),
    [
        (b"abc", False, "abc"),
        (b"\xa9 cut", True, " cut"),
        ("\U0001f600!".encode()[1:], True, "!"),
        (b"\xa9 whole", False, "\ufffd whole"),
        (b"\x80\x80\x80\x80x", True, "\ufffdx"),
        (b"a\x00b\xff", False, "a\ufffdb\ufffd"),
    ],
)
def test_the_tail_as_text(output: bytes, cut: bool, text: str) -> None:
    assert tail_text(output, cut=cut) == text


def test_a_worker_s_runs_tell_from_their_start_to_their_end() -> None:
    stepped = Stepped()
    worker, launch = started(stepped)
    (run,) = worker.executor.started
    tell(run, b"at work\n")
    progress(run, {"done": 1})
    worker.reports.run_once()
    assert worker.told.progress(launch) == {"done": 1}
    assert not worker.told.logs[launch, 1].ended
    worker.executor.end()
    worker.work()
    tell(run, b"too late\n")
    worker.reports.run_once()
    row = worker.told.logs[launch, 1]
    assert (row.body, row.ended) == ("at work\n", True)

"""What bounds a run: its timeout whatever its executor does, and twelve hours."""

from __future__ import annotations

from tests.support.stepped import Stepped, failure
from tests.unit.engine.test_runs import RETRY, started

from tickrail.core.states import State


def test_the_timeout_holds_whatever_the_executor_does() -> None:
    world = Stepped()
    job = world.job(overlap="allow", timeout="7s")
    worker, launch = started(world, world.launch(job))
    world.advance(9.9)  # its own executor should have stopped it at 7 s
    worker.runs.watch_once()
    assert worker.executor.cancelled == []
    world.advance(0.1)
    worker.runs.watch_once()
    assert worker.executor.cancelled == [(launch, "timed_out")]
    worker.work()
    row = world.row(launch)
    assert (row.state, row.failures, row.attempt) == (State.DUE, 1, 2)
    assert row.result is not None
    assert row.result["outcome"] == "timed_out"


def test_e07_what_cannot_be_stopped_keeps_its_claim_until_it_ends_and_is_named() -> None:
    world = Stepped()
    job = world.job(overlap="allow", timeout="5s", retry=RETRY)
    worker, launch = started(world, world.launch(job))
    worker.executor.deaf = True
    for _ in range(60):
        world.advance(1)
        worker.runs.watch_once()
        worker.heartbeat()
        world.sweep()
        world.relay(2)
        worker.take()
    assert worker.executor.cancelled == [(launch, "timed_out")]
    # No retry beside it.
    assert (world.row(launch).state, len(worker.executor.started)) == (State.RUNNING, 1)
    assert worker.metrics.counts[("runs_not_stopped_total", "noop")] == 1
    worker.executor.end(outcome=failure("timed_out", certain=False))
    worker.work()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.DUE, 2)


def test_a_run_that_waits_in_its_executor_has_not_begun() -> None:
    world = Stepped()
    job = world.job(overlap="allow", timeout="5s")
    worker, launch = started(world, world.launch(job))
    (run,) = worker.executor.started
    run.began = None
    for _ in range(4):
        world.advance(5)
        worker.runs.watch_once()
        worker.heartbeat()
    assert worker.executor.cancelled == []
    run.began = world.clock.monotonic()
    world.advance(8)
    worker.runs.watch_once()
    assert worker.executor.cancelled == [(launch, "timed_out")]


def test_no_run_is_kept_for_more_than_twelve_hours() -> None:
    world = Stepped()
    job = world.job(overlap="allow", timeout="12h", visibility_timeout="1h", retry=RETRY)
    worker, launch = started(world, world.launch(job, visibility=3600.0))
    worker.executor.started[0].began = None  # its executor forgot to tell
    for _ in range(36):
        world.advance(1199)
        worker.heartbeat()
    assert worker.executor.cancelled == []
    for _ in range(3):
        world.advance(1200)
        worker.heartbeat()
    assert worker.executor.cancelled == [(launch, "timed_out")]
    worker.work()
    assert world.row(launch).failures == 1


def test_an_executor_that_raises_ends_its_run_alone() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()

    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    worker.executor.start = broken  # type: ignore[method-assign,assignment]
    launch = world.launch(rerun=True)
    world.relay(2)
    worker.work()
    row = world.row(launch)
    assert (row.state, row.failures) == (State.DUE, 1)
    assert row.result is not None
    assert row.result["outcome"] == "internal"

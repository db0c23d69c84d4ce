"""An end that the database does not take spoils no other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stepped import PREFIX, QUEUE, Stepped, Worker, failure

from tickrail.bus.topics import launch_topic
from tickrail.core.errors import TickrailError, UnavailableError
from tickrail.core.execution import SUCCESS, Outcome
from tickrail.core.ids import LaunchId
from tickrail.core.states import State

NORMAL = launch_topic(PREFIX, QUEUE, "normal")
NAN = float("nan")


def running(world: Stepped, count: int) -> tuple[Worker, list[LaunchId]]:
    """Launches that run at one worker."""
    worker = world.worker()
    worker.take()
    job = world.job(overlap="allow", retry={"jitter": 0})
    ids = [world.launch(job) for _ in range(count)]
    world.relay(2)
    worker.take()
    assert worker.runs.count == count
    return worker, ids


def end(worker: Worker, launch: LaunchId, outcome: Outcome) -> None:
    """End the run of a launch."""
    (run,) = (r for r in worker.executor.running if r.launch_id == launch)
    worker.executor.end(run, outcome)


@pytest.mark.parametrize(
    ("outcome", "state", "written"),
    [
        (Outcome(ok=True, outcome="ok", value=NAN), State.SUCCEEDED, "ok"),
        (failure("raised_\ud800"), State.DUE, "internal"),
        (failure(message="\ud800", retryable=False), State.DEAD, "internal"),
        (failure("snoozed", snooze=60.0, value=NAN), State.DUE, "internal"),
    ],
)
def test_an_end_that_cannot_be_written_is_written_bare_and_holds_up_nobody(
    outcome: Outcome, state: State, written: str
) -> None:
    world = Stepped()
    worker, ids = running(world, 7)
    odd = ids[4]
    for launch in ids:
        end(worker, launch, outcome if launch == odd else SUCCESS)
    assert worker.finish() == 7
    row = world.row(odd)
    assert row.state is state
    assert row.result is not None
    assert row.result["outcome"] == written
    assert row.result["message"].startswith("how it ended cannot be written: the database refuses")
    assert row.failures == (not outcome.ok and outcome.snooze is None)
    if outcome.snooze is not None:
        assert (row.due_at - world.clock.now()).total_seconds() == 60
    assert {world.row(x).state for x in ids if x != odd} == {State.SUCCEEDED}
    worker.take()
    assert (worker.runs.count, worker.done_offset(NORMAL)) == (0, 7)
    assert worker.finish() == 0


def test_an_end_that_cannot_be_written_at_all_is_left_to_the_reaper() -> None:
    world = Stepped()
    worker, (odd, other) = running(world, 2)
    write = worker.store.finish

    def refusing(ends: Any) -> Any:
        if any(e.id == odd for e in ends):
            raise TickrailError("the database refuses a statement")
        return write(ends)

    worker.store.finish = refusing  # type: ignore[method-assign]
    end(worker, odd, failure())
    end(worker, other, SUCCESS)
    worker.work()
    assert (worker.runs.count, worker.done_offset(NORMAL)) == (0, 2)
    assert (world.row(odd).state, world.row(other).state) == (State.RUNNING, State.SUCCEEDED)
    for _ in range(31):
        world.advance(1)
        worker.heartbeat()
    world.sweep()
    assert (world.row(odd).state, world.row(odd).failures) == (State.DUE, 1)


@pytest.mark.parametrize("call", [2, 3, 4])
def test_an_outage_amid_ends_one_by_one_keeps_what_is_not_written(call: int) -> None:
    world = Stepped()
    worker, ids = running(world, 4)
    write, calls = worker.store.finish, 0

    def failing(ends: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise UnavailableError("the database is away")
        return write(ends)

    worker.store.finish = failing  # type: ignore[method-assign]
    odd, *rest = ids
    end(worker, odd, failure(message="\ud800"))
    for launch in rest:
        end(worker, launch, SUCCESS)
    with pytest.raises(UnavailableError):
        worker.finish()
    assert worker.runs.count == 4
    worker.finish()
    worker.take()
    assert (worker.runs.count, worker.done_offset(NORMAL)) == (0, 4)
    assert world.row(odd).state is State.DUE
    assert {world.row(x).state for x in rest} == {State.SUCCEEDED}
    assert worker.metrics.counts[("stale_results_total",)] == 0

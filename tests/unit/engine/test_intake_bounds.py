"""What the intake holds at most, and how a worker that drains leaves its group."""

from __future__ import annotations

from tests.support.stepped import GROUP, Stepped
from tests.unit.engine.test_intake import NORMAL, crowd, send

from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.states import State


def test_what_waits_is_bounded_in_bytes_too() -> None:
    world = Stepped()
    worker = world.worker(concurrency=1, fetch=1, buffer_bytes=600)
    crowd(world, 30)
    for _ in range(30):
        worker.take()
    size = len(world.bus.messages(NORMAL)[0].value)
    assert worker.intake.waiting * size < 600 + 2 * size
    assert worker.consumer._paused
    worker.executor.answer = lambda _run: SUCCESS
    worker.executor.end()
    for _ in range(100):
        worker.work()
    assert world.states() == {"succeeded": 30}
    assert worker.intake._held_bytes == 0


def test_what_waits_for_its_dead_letter_is_bounded_in_bytes() -> None:
    world = Stepped()
    worker = world.worker(buffer_bytes=5000, fetch=1)
    worker.take()
    worker.bury_fails = UnavailableError("the DLQ topic is away")
    for _ in range(20):
        world.bus.append(NORMAL, 0, b"k", b"\x00" * 1000, None)
    for _ in range(30):
        worker.take()
    assert len(worker.intake._unburied) == 5
    worker.bury_fails = None
    for _ in range(30):
        worker.take()
    assert len(worker.buried) == 20
    assert worker.done_offset(NORMAL) == 20
    assert worker.intake._held_bytes == 0


def test_e09_a_worker_that_drains_leaves_the_group_and_its_runs_go_on() -> None:
    world = Stepped()
    first, second = world.worker("w-1", concurrency=5), world.worker("w-2")
    first.take()
    crowd(world, 8)
    first.take()
    assert len(first.executor.started) == 5
    first.runs.drain()
    first.intake.close_intake()
    first.take()
    assert not first.consumer.closed  # nothing guards its runs but their offsets
    first.heartbeat()
    first.take()
    assert first.consumer.closed
    assert world.bus.position(GROUP, NORMAL, 0) == 5  # committed, and the runs go on
    second.executor.answer = lambda _run: SUCCESS
    for _ in range(3):
        second.work()
    assert len(second.executor.started) == 3  # what waited did not wait for the drain
    for run in list(first.executor.running):
        first.executor.end(run)
    first.finish()
    first.take()
    first.intake.finish()
    assert world.states() == {"succeeded": 8}
    assert first.runs.interrupted == 0
    assert world.bus.position(GROUP, NORMAL, 0) == 8


def test_e09_what_the_grace_time_cut_short_is_counted_and_given_back() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    launch = world.launch()
    world.relay(2)
    worker.take()
    worker.intake.close_intake()
    worker.runs.close(0.0)
    worker.finish()
    assert worker.runs.interrupted == 1
    assert (world.row(launch).state, world.row(launch).failures) == (State.DUE, 0)
    send(world, launch)
    worker.intake.finish()
    assert len(worker.executor.started) == 1

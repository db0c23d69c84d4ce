"""Launches that need one of an executor's few places are claimed when there is one."""

from __future__ import annotations

import pytest
from tests.support.stepped import PREFIX, QUEUE, FewPlaces, Stepped, Worker

from tickrail.bus.topics import launch_topic
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import LaunchId
from tickrail.core.states import State

NORMAL = launch_topic(PREFIX, QUEUE, "normal")
COMMAND = {"command": {"argv": ["/bin/true"]}}


def launched(world: Stepped, count: int, target: dict[str, object]) -> list[LaunchId]:
    job = world.job(overlap="allow", target=target)
    return [world.launch(job) for _ in range(count)]


def states(world: Stepped, launches: list[LaunchId]) -> dict[State, int]:
    found = [world.row(x).state for x in launches]
    return {state: found.count(state) for state in set(found)}


@pytest.fixture
def world() -> Stepped:
    return Stepped()


@pytest.fixture
def worker(world: Stepped) -> Worker:
    made = world.worker(executor=FewPlaces())
    made.take()
    return made


def test_no_more_is_claimed_than_there_are_places(world: Stepped, worker: Worker) -> None:
    commands = launched(world, 7, COMMAND)
    world.relay(2)
    for _ in range(3):
        worker.take()
    assert states(world, commands) == {State.RUNNING: 2, State.QUEUED: 5}
    assert worker.intake.waiting == 5
    began = [r.launch_id for r in worker.executor.started]
    for _ in range(5):
        worker.executor.end(next(iter(worker.executor.running)))
        worker.work()
        assert len(worker.executor.running) <= 2
    assert len(worker.executor.started) == 7
    assert [r.launch_id for r in worker.executor.started][:2] == began


def test_others_go_past_what_waits_for_a_place(world: Stepped, worker: Worker) -> None:
    launched(world, 5, COMMAND)
    world.relay(2)
    worker.take()
    others = launched(world, 5, {"noop": {}})
    world.relay(2)
    worker.take()
    assert states(world, others) == {State.RUNNING: 5}


def test_what_waits_first_goes_first(world: Stepped, worker: Worker) -> None:
    first = launched(world, 3, COMMAND)
    world.relay(2)
    worker.take()
    later = launched(world, 2, COMMAND)
    world.relay(2)
    worker.take()
    worker.executor.end(next(iter(worker.executor.running)))
    worker.work()
    assert states(world, first) == {State.RUNNING: 2, State.SUCCEEDED: 1}
    assert states(world, later) == {State.QUEUED: 2}


def test_a_worker_that_dies_abandons_nothing_that_had_not_started(
    world: Stepped, worker: Worker
) -> None:
    job = world.job(overlap="allow", target=COMMAND, if_uncertain="skip")
    commands = [world.launch(job, rerun=False) for _ in range(6)]
    world.relay(2)
    worker.take()
    world.advance(40)
    world.sweep()
    assert states(world, commands) == {State.ABANDONED: 2, State.QUEUED: 4}


def test_a_job_whose_target_changes_is_known_anew(world: Stepped, worker: Worker) -> None:
    job = world.job(overlap="allow", target={"noop": {}})
    world.launch(job)
    world.relay(2)
    worker.take()
    row = world.db.jobs[job]
    row.version = 2
    row.definitions[2] = row.definitions[1].replace('{"noop": {}}', '{"command": {"argv": ["x"]}}')
    for _ in range(2):
        for _ in range(4):
            world.launch(job, job_version=2)
        world.relay(2)
        worker.take()
    assert len(worker.executor.running) == 4, "one crowd too many"
    assert worker.intake.waiting == 4


def test_what_waits_is_asked_about_again_after_an_outage(world: Stepped, worker: Worker) -> None:
    commands = launched(world, 3, COMMAND)
    world.relay(2)
    world.db.down = True
    with pytest.raises(UnavailableError):
        worker.take()
    world.db.down = False
    worker.take()
    assert states(world, commands) == {State.RUNNING: 2, State.QUEUED: 1}


def test_what_waits_is_dropped_with_its_partition(world: Stepped, worker: Worker) -> None:
    launched(world, 5, COMMAND)
    world.relay(2)
    worker.take()
    assert worker.intake.waiting == 3
    worker.intake.lost(worker.consumer.assignments)
    assert worker.intake.waiting == 0


def test_a_full_line_does_not_spin(world: Stepped, worker: Worker) -> None:
    """With nothing to claim the poll waits; it would take a whole core otherwise."""
    launched(world, 5, COMMAND)
    world.relay(2)
    worker.take()
    waits: list[float] = []
    poll = worker.consumer.poll

    def noted(count: int, timeout: float) -> object:
        waits.append(timeout)
        return poll(count, 0.0)

    worker.consumer.poll = noted  # type: ignore[method-assign,assignment]
    worker.intake.run_once(0.05)
    assert waits == [0.05]

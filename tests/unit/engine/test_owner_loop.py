"""The owner's loop on the memory store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.support.stepped import failure
from tests.support.stepped_owner import Process, settle

from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch, Partition
from tickrail.core.states import State
from tickrail.engine.owner import OwnerSettings


def test_a_due_job_is_a_message_within_a_turn_or_two(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"every": "10s"})
    settle(process)
    process.wait(10)
    settle(process)
    (launch,) = world.launches(job)
    assert world.messages() == [(launch.id, 1)]
    assert launch.state is State.QUEUED


def test_it_sleeps_until_the_next_due_instant_or_look_for_retries(process: Process) -> None:
    settle(process)
    process.world.advance(1)
    assert process.loop.run_once() == pytest.approx(0.5)
    job = process.world.job(schedule={"every": "10s"})
    settle(process)
    process.wait(9.6)
    due = process.world.db.jobs[job].next_run_at
    assert due is not None
    until = (due - process.world.clock.now()).total_seconds()
    assert 0 < until < 0.5
    assert process.loop.run_once() == pytest.approx(until, abs=0.001)


def test_a_wake_makes_it_look_at_once(process: Process) -> None:
    settle(process)
    launch = process.world.launch()
    process.loop.run_once()
    process.loop.run_once()
    assert process.world.messages() == []  # the next scan is half a second away
    process.loop.wake()
    settle(process)
    assert process.world.messages() == [(launch, 1)]


def test_without_partitions_it_does_nothing(process: Process) -> None:
    settle(process)
    process.world.advance(60)  # the lease has ended
    calls = sum(process.world.db.calls.values())
    assert process.loop.run_once() == 1.0
    assert sum(process.world.db.calls.values()) == calls
    assert process.metrics.gauges["partitions_owned"] == 0


STEPS = ["zones", "tick", "backfills", "relay"]


@pytest.mark.parametrize("slow", [*STEPS[:-1], None])
def test_the_trust_window_is_looked_at_before_each_step_of_a_turn(
    process: Process, monkeypatch: pytest.MonkeyPatch, slow: str | None
) -> None:
    settle(process)
    process.wait(5)
    owned = dict(process.ownership.owned())
    given: dict[str, dict[Partition, Epoch]] = {}

    def watch(name: str, run: Callable[..., object]) -> Callable[..., object]:
        def run_once(owned: dict[Partition, Epoch], *rest: object) -> object:
            given[name] = dict(owned)
            done = run(owned, *rest)
            if name == slow:
                process.world.advance(9)  # the lease lives for 10 s, and is trusted for 9
            return done

        return run_once

    for name in STEPS:
        part = getattr(process.loop, f"_{name}")
        monkeypatch.setattr(part, "run_once", watch(name, part.run_once))
    process.loop.wake()
    process.loop.run_once()
    late = len(STEPS) if slow is None else STEPS.index(slow) + 1
    assert given == dict.fromkeys(STEPS[:late], owned) | {n: {} for n in STEPS[late:]}


@pytest.mark.parametrize("higher", [True, False])
def test_what_the_fence_refuses_reaches_ownership(process: Process, higher: bool) -> None:
    world = process.world
    world.job(schedule={"every": "10s"})
    settle(process)
    process.wait(10)
    mine = process.ownership.owned()[Partition(0)]
    world.db.fence.epochs[Partition(0)] = Epoch(mine + 1 if higher else mine - 1)
    process.loop.run_once()
    assert Partition(0) not in process.ownership.owned()
    assert process.metrics.counts[("fenced_writes_total",)] >= 1
    assert world.states() == {}
    for _ in range(4):
        process.ownership.run_once()
        world.advance(0.1)
    if higher:
        assert Partition(0) not in process.ownership.owned()
    else:
        assert process.ownership.owned()[Partition(0)] == mine
        assert world.db.fence.claims_advanced == 1
        settle(process)
        assert world.states() == {"queued": 1}


def test_an_outage_of_the_database_loses_nothing(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    settle(process)
    world.db.down = True
    for _ in range(5):
        world.advance(2)
        process.ownership.renew_once()
        with pytest.raises(UnavailableError):
            process.loop.run_once()
    world.db.down = False
    settle(process)
    assert len(world.launches(job)) == 1
    assert len(world.messages()) == 1


def test_a_job_whose_pause_ends_goes_on(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    row = world.db.jobs[job]
    row.state, row.resume_at = "paused", world.clock.now() + timedelta(seconds=25)
    for _ in range(40):
        world.advance(1)
        process.ownership.renew_once()
        settle(process, 2)
    assert row.state == "active"
    assert [x.reason for x in world.db.skips.values()] == ["paused"]
    assert len(world.launches(job)) == 2  # of 10, 20 (paused), 30, 40 s


def test_a_held_launch_goes_out_once_the_open_one_has_ended(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"every": "10s"}, overlap="buffer_one")
    worker = world.worker()
    worker.take()
    settle(process)
    for _ in range(2):
        process.wait(10)
        settle(process)
        worker.take()
    assert [x.state for x in world.launches(job)] == [State.RUNNING, State.HELD]
    worker.executor.end(outcome=failure(retryable=False))
    worker.work()
    assert world.db.wakes == 1
    process.loop.wake()
    settle(process)
    worker.take()
    assert [x.state for x in world.launches(job)] == [State.DEAD, State.RUNNING]
    worker.executor.end(outcome=SUCCESS)
    worker.work()


def test_days_are_kept_by_the_owner_of_the_first_partition(process: Process) -> None:
    settle(process)
    assert len(process.world.db.days) == 5  # yesterday to three days ahead
    assert process.world.db.calls["drop_days"] == 1
    process.wait(590)
    settle(process)
    assert process.world.db.calls["drop_days"] == 1
    process.wait(10)
    settle(process)
    assert process.world.db.calls["drop_days"] == 2


def test_a_drain_marks_what_arrived_before_a_stop(process: Process) -> None:
    launch = process.world.launch()
    process.loop.wake()
    process.loop.run_once()
    process.loop.drain(1.0)
    assert process.world.row(launch).state is State.QUEUED


def test_turns_are_few_while_kafka_is_away(process: Process) -> None:
    """What is published waits for its report; a turn each few milliseconds would wait with it."""
    world = process.world
    settle(process)
    world.bus.down = True
    world.launch()
    process.loop.wake()
    process.loop.run_once()
    assert process.loop.run_once() > 20 * OwnerSettings().report_wait - 0.01
    world.bus.down = False
    process.loop.run_once()
    world.launch()
    process.loop.wake()
    assert process.loop.run_once() <= OwnerSettings().report_wait

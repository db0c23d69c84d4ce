"""The owner's loop carries on backfills."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from tests.support.memory_tables import BackfillRow
from tests.support.stepped_owner import Process, settle

from tickrail.core.backfill import Backfill, Existing
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch, Partition
from tickrail.core.policies import CatchUpOrder


def test_the_end_of_a_backfills_launch_wakes_the_owner_whatever_the_policy(
    process: Process,
) -> None:
    world = process.world
    job = world.job(overlap="allow")
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    for origin, wakes in (("schedule", 0), ("manual:x", 0), ("backfill:x", 1)):
        world.launch(job, origin=origin)
        process.loop.wake()
        settle(process)
        worker.work()
        assert world.db.wakes == wakes
    assert world.states() == {"succeeded": 3}


def test_a_backfill_goes_on_as_soon_as_its_launch_has_ended(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"cron": "0 * * * *"})
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    start = world.clock.now().replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
    b = Backfill(
        UUID(int=9), start, start + timedelta(hours=4), CatchUpOrder.OLDEST, Existing.LEAVE,
        None, 1, None, 4, world.clock.now(),
    )  # fmt: skip
    world.db.backfills[b.id] = BackfillRow(b, job)
    began = world.clock.monotonic()
    for n in range(1, 5):
        process.loop.wake()
        settle(process)
        worker.work()
        assert world.db.wakes == n
    process.loop.wake()
    settle(process)
    assert world.clock.monotonic() - began < 1.0
    assert world.states() == {"succeeded": 4}
    assert world.db.backfills[b.id].state == "finished"
    assert process.metrics.counts[("backfill_launches_total",)] == 4


def test_a_stranger_that_took_the_partition_ends_the_pass(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"cron": "0 * * * *"})
    start = world.clock.now() - timedelta(days=1)
    b = Backfill(
        UUID(int=9), start, start + timedelta(hours=4), CatchUpOrder.OLDEST, Existing.LEAVE,
        None, 1, None, 4, world.clock.now(),
    )  # fmt: skip
    settle(process)
    world.db.backfills[b.id] = BackfillRow(b, job)
    world.db.fence.epochs[Partition(0)] = Epoch(10**6)
    process.loop.wake()
    settle(process)
    assert world.states() == {}
    assert Partition(0) not in process.ownership.owned()

"""Tick, reaper, dead letters and the owner's loop on the memory store."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.memory_bus import MemoryPublisher
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd
from tests.support.memory_tables import BackfillRow
from tests.support.memory_zone_data import MemoryZoneData
from tests.support.stepped import PARTITIONS, PREFIX, QUEUE, Counted, Stepped, failure

from tickrail.bus.codec import decode_dead_letter, encode_dead_letter
from tickrail.bus.topics import dlq_topic, launch_topic
from tickrail.core.backfill import Backfill, BackfillOrder, Existing
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch, LaunchId, Partition
from tickrail.core.states import State
from tickrail.engine.backfills import Backfills
from tickrail.engine.deadletters import LetterBox, OwedLetters
from tickrail.engine.owner import OwnerLoop, OwnerParts
from tickrail.engine.ownership import Ownership, OwnershipSettings
from tickrail.engine.zone_data import ZoneData

DLQ = dlq_topic(PREFIX, QUEUE)
NORMAL = launch_topic(PREFIX, QUEUE, "normal")


def running(world: Stepped, **columns: Any) -> LaunchId:
    """A launch whose worker is gone."""
    launch = world.launch(**columns)
    row = world.db.launches[launch]
    row.state, row.claim, row.worker = State.RUNNING, 5, "w-9"
    row.started_at = world.clock.now()
    row.claim_expires_at = world.clock.now() + timedelta(seconds=30)
    return launch


# --- the tick -----------------------------------------------------------------------------------


def test_each_slot_has_one_launch_whoever_ticks() -> None:
    world = Stepped()
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    for n in range(6):
        world.advance(10)
        world.tick()
        world.take_over(Epoch(8 + n))
        world.tick()
    slots = [x.scheduled_at for x in world.launches(job)]
    assert len(slots) == len(set(slots)) == 6


def test_c15_a_plan_that_cannot_be_read_harms_no_other_and_is_tried_a_minute_later() -> None:
    world = Stepped()
    bad, good = world.job(schedule={"every": "10s"}), world.job(schedule={"every": "10s"})
    world.db.jobs[bad].plan = '{"schedule": {"nonsense": 1}}'
    world.advance(10)
    ticked = world.tick()
    assert (ticked.errors, len(world.launches(good))) == (1, 1)
    assert world.db.jobs[bad].error
    assert world.db.jobs[bad].next_run_at == world.clock.now() + timedelta(minutes=1)
    assert world.metrics.counts[("jobs_unplannable_total",)] == 1


def test_an_overlapping_slot_is_recorded_or_held_as_the_job_says() -> None:
    world = Stepped()
    skip = world.job(schedule={"every": "10s"}, overlap="skip")
    buffer = world.job(schedule={"every": "10s"}, overlap="buffer_one")
    for _ in range(3):
        world.advance(10)
        world.tick()
    assert [x.state for x in world.launches(skip)] == [State.DUE]
    assert [x.reason for x in world.db.skips.values() if x.job_id == skip] == ["overlap"] * 2
    assert [x.state for x in world.launches(buffer)] == [State.DUE, State.HELD]
    assert world.metrics.counts[("slots_skipped_total", "overlap")] == 3


def test_a_job_edited_between_two_ticks_is_planned_with_its_new_version() -> None:
    world = Stepped()
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    world.advance(10)
    world.tick()
    row = world.db.jobs[job]
    row.version, row.definitions[2] = 2, row.definitions[1]
    row.plan = row.plan.replace('"queue": "default"', '"queue": "other"')
    world.advance(10)
    world.tick()
    assert [(x.job_version, x.queue) for x in world.launches(job)] == [
        (1, "default"),
        (2, "other"),
    ]


# --- the reaper ---------------------------------------------------------------------------------


def test_an_expired_claim_becomes_due_again_and_wakes_the_relay() -> None:
    world = Stepped()
    launch = running(world)
    world.advance(31)
    reaped = world.sweep()
    assert (reaped.moved, reaped.woke) == (1, True)
    assert (world.row(launch).state, world.row(launch).attempt) == (State.DUE, 2)
    assert world.metrics.counts[("claims_expired_total",)] == 1


def test_the_jobs_own_retry_policy_says_when_a_lost_claim_is_tried_again() -> None:
    world = Stepped()
    retry = {"initial": "20s", "jitter": 0, "max_attempts": 2}
    launch = running(world, job=world.job(overlap="allow", retry=retry))
    world.advance(31)
    world.sweep()
    assert world.row(launch).due_at == world.clock.now() + timedelta(seconds=20)
    again = running(world, job=world.job(overlap="allow", retry=retry), failures=1)
    world.advance(31)
    world.sweep()
    assert world.row(again).state is State.DEAD
    assert world.metrics.counts[("dead_letters_total", "worker_lost")] == 1


@pytest.mark.parametrize(
    ("away", "passes", "database", "rests"),
    [
        pytest.param(False, 1.0, 1.0, False, id="all is well"),
        pytest.param(True, 5.0, 5.0, False, id="five seconds are no outage"),
        pytest.param(True, 5.5, 5.5, True, id="the database was away"),
        pytest.param(False, 20.0, 20.0, False, id="nothing was owned for a while"),
        pytest.param(False, 1.0, 3.0, True, id="its clock jumped ahead"),
        pytest.param(False, 1.0, -2.0, True, id="its clock went back"),
        pytest.param(False, 1.0, 1.9, False, id="a small step"),
    ],
)
def test_it_rests_after_an_outage_and_when_the_databases_clock_jumps(
    away: bool, passes: float, database: float, rests: bool
) -> None:
    world = Stepped()
    launch = running(world)
    world.tick()
    if away:
        world.reaper.database_failed()
    world.advance(passes)
    world.clock.jump(database - passes)
    world.tick()
    assert world.reaper.resting is rests
    world.db.launches[launch].claim_expires_at = world.clock.now() - timedelta(seconds=1)
    world.sweep()
    assert world.row(launch).state is (State.RUNNING if rests else State.DUE)
    world.advance(29)
    assert world.reaper.resting is rests
    world.advance(1.1)
    world.sweep()
    assert world.row(launch).state is State.DUE


def test_a_rest_leaves_workers_the_time_to_extend_first() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    launch = world.launch()
    world.tick()
    world.relay(2)
    worker.take()
    world.db.down = True
    for _ in range(28):
        world.advance(1)
        with pytest.raises(UnavailableError):
            world.tick()
    world.advance(2.5)
    world.db.down = False
    world.tick()
    world.sweep()
    assert world.row(launch).state is State.RUNNING
    worker.heartbeat()
    world.advance(29)
    world.sweep()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.RUNNING, 1)


def test_lost_messages_are_published_again_while_it_rests() -> None:
    world = Stepped()
    launch = world.launch()
    world.relay(2)
    world.tick()
    world.reaper.database_failed()
    world.advance(301)
    world.tick()
    assert world.reaper.resting
    world.sweep()
    assert world.row(launch).state is State.DUE
    assert world.metrics.counts[("messages_lost_total",)] == 1
    world.relay(2)
    assert world.messages() == [(launch, 1)] * 2


# --- dead letters -------------------------------------------------------------------------------


def test_the_owner_publishes_what_is_owed_for_too_long() -> None:
    world = Stepped()
    launch = running(world, failures=4)
    world.advance(31)
    world.sweep()
    assert world.letters.run_once(world.owned) == 0
    world.advance(31)
    assert world.letters.run_once(world.owned) == 1
    assert world.letters.run_once(world.owned) == 0
    (message,) = world.bus.messages(DLQ)
    letter = decode_dead_letter(message.value)
    assert (letter.launch, letter.attempt, letter.reason) == (launch, 1, "worker_lost")
    assert not world.row(launch).dlq_owed


def test_while_the_bus_is_away_letters_stay_owed_and_do_not_pile_up() -> None:
    world = Stepped()
    publisher = MemoryPublisher(world.bus)
    box = LetterBox(publisher, lambda _queue: DLQ, encode_dead_letter, Counted())
    letters = OwedLetters(world.store, box)
    launch = running(world, rerun=False)
    world.advance(31)
    world.sweep()
    world.advance(31)
    world.bus.down = True
    for _ in range(5):
        assert letters.run_once(world.owned) == 0
        assert publisher.outstanding == 1
    assert world.row(launch).dlq_owed
    publisher.give_up()
    assert letters.run_once(world.owned) == 0
    world.bus.down = False
    assert letters.run_once(world.owned) == 1
    assert len(world.bus.messages(DLQ)) == 1


def test_a_letter_published_and_not_settled_comes_twice_with_one_id() -> None:
    world = Stepped()
    running(world, rerun=False)
    world.advance(31)
    world.sweep()
    world.advance(31)
    settle = world.store.settle

    def fail(_letters: object) -> int:
        raise UnavailableError("away")

    world.store.settle = fail  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        world.letters.run_once(world.owned)
    world.store.settle = settle  # type: ignore[method-assign]
    assert world.letters.run_once(world.owned) == 1
    ids = [decode_dead_letter(m.value).id for m in world.bus.messages(DLQ)]
    assert len(ids) == 2
    assert len(set(ids)) == 1


# --- the loop -----------------------------------------------------------------------------------


@dataclass
class Process:
    """A scheduler process: ownership and the owner's loop, stepped by hand."""

    world: Stepped
    etcd: MemoryEtcd
    ownership: Ownership
    loop: OwnerLoop
    metrics: Counted

    def wait(self, seconds: float) -> None:
        """Let time pass; the lease is kept, the owner's loop stands still."""
        while seconds > 0:
            self.world.advance(min(1.0, seconds))
            seconds -= 1.0
            self.ownership.renew_once()


@pytest.fixture
def process() -> Process:
    world = Stepped()
    world.take_over(Epoch(0))  # nobody has ever owned anything
    etcd = MemoryEtcd(world.clock)
    wakes: list[Callable[[], None]] = []
    ownership = Ownership(
        OwnershipSettings(name="s-1", partitions=PARTITIONS),
        MemoryCoordinator(etcd),
        world.db.fence,
        world.clock,
        healthy=lambda: True,
        wake=lambda: None,
        changed=lambda: [wake() for wake in wakes],
        rng=random.Random(1),
    )
    metrics = Counted()
    zones = ZoneData(MemoryZoneData(world.db), metrics)
    fills = Backfills(world.store, metrics)
    parts = OwnerParts(world.ticker, world.relayer, world.reaper, world.letters, zones, fills)
    loop = OwnerLoop(ownership, world.store, parts, world.clock, metrics)
    wakes.append(loop.wake)
    made = Process(world, etcd, ownership, loop, metrics)
    for _ in range(20):
        made.ownership.run_once()
        if len(made.ownership.owned()) == PARTITIONS:
            break
        world.advance(0.5)
    assert len(made.ownership.owned()) == PARTITIONS
    return made


def settle(process: Process, turns: int = 5) -> None:
    for _ in range(turns):
        process.loop.run_once()
        process.world.advance(0.02)


def test_a_due_job_is_a_message_within_a_turn_or_two(process: Process) -> None:
    world = process.world
    job = world.job(schedule={"every": "10s"})
    settle(process)
    process.wait(10)
    settle(process)
    (launch,) = world.launches(job)
    assert world.messages() == [(launch.id, 1)]
    assert launch.state is State.QUEUED


def test_it_sleeps_until_the_next_due_instant_at_most_a_second(process: Process) -> None:
    settle(process)
    process.world.advance(1)
    assert process.loop.run_once() == pytest.approx(1.0)
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
        UUID(int=9), start, start + timedelta(hours=4), BackfillOrder.OLDEST, Existing.LEAVE,
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
        UUID(int=9), start, start + timedelta(hours=4), BackfillOrder.OLDEST, Existing.LEAVE,
        None, 1, None, 4, world.clock.now(),
    )  # fmt: skip
    settle(process)
    world.db.backfills[b.id] = BackfillRow(b, job)
    world.db.fence.epochs[Partition(0)] = Epoch(10**6)
    process.loop.wake()
    settle(process)
    assert world.states() == {}
    assert Partition(0) not in process.ownership.owned()

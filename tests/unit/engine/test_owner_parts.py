"""Tick, reaper, dead letters and the owner's loop on the memory store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.memory_bus import MemoryPublisher
from tests.support.stepped import PREFIX, QUEUE, Counted, Stepped

from tickrail.bus.codec import decode_dead_letter, encode_dead_letter
from tickrail.bus.topics import dlq_topic, launch_topic
from tickrail.core.errors import UnavailableError
from tickrail.core.ids import Epoch, LaunchId
from tickrail.core.states import State
from tickrail.engine.deadletters import LetterBox, OwedLetters

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


def test_an_outage_counts_from_the_last_answer() -> None:
    """A failure comes late where the look before it was long ago, or waited for its answer."""
    world = Stepped()
    world.tick()
    world.advance(4)
    world.reaper.database_failed()
    world.advance(2)
    world.tick()
    assert world.reaper.resting


def test_without_an_answer_before_it_an_outage_counts_from_the_failure() -> None:
    world = Stepped()
    world.advance(100)
    world.reaper.database_failed()
    world.advance(2)
    world.tick()
    assert not world.reaper.resting


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
    box = LetterBox(publisher, lambda _queue: DLQ, encode_dead_letter)
    letters = OwedLetters(world.store, box, Counted())
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

"""The relay on the memory store and the memory bus."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.support.memory_bus import MemoryPublisher
from tests.support.stepped import PREFIX, QUEUE, Stepped

from tickrail.bus.topics import launch_topic, retry_topic
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch, Partition, TenantId
from tickrail.core.states import State

NORMAL = launch_topic(PREFIX, QUEUE, "normal")
A, B, C = (TenantId(UUID(int=n)) for n in (1, 2, 3))


def test_a_due_launch_is_published_once_and_marked_after_the_report() -> None:
    world = Stepped()
    launch = world.launch()
    first = world.relay()
    assert (first.published, first.marked) == (1, 0)
    assert world.row(launch).state is State.DUE
    assert world.relay().marked == 1
    assert (world.row(launch).state, world.row(launch).publications) == (State.QUEUED, 1)
    world.relay(3)
    assert world.messages() == [(launch, 1)]


def test_a_later_attempt_goes_to_the_retry_topic_not_before_it_is_due() -> None:
    world = Stepped()
    launch = world.launch(attempt=3)
    world.db.launches[launch].due_at = world.clock.now().replace(second=30)
    world.relay(3)
    assert world.messages() == []
    world.advance(30)
    world.relay(2)
    assert world.messages(retry_topic(PREFIX, QUEUE)) == [(launch, 3)]


def test_classes_have_their_topics() -> None:
    world = Stepped()
    ids = [world.launch(priority=n) for n in range(3)]
    world.relay(2)
    for launch, name in zip(ids, ("high", "normal", "low"), strict=True):
        assert world.messages(launch_topic(PREFIX, QUEUE, name)) == [(launch, 1)]


def test_tenants_go_in_turns() -> None:
    world = Stepped(relay={"outstanding": 8})
    crowd = [world.job(tenant=A, overlap="allow"), world.job(tenant=B, overlap="allow")]
    for _ in range(40):
        for job in crowd:
            world.launch(job)
    alone = world.launch(world.job(tenant=C, overlap="allow"))
    world.relay(2)
    published = world.messages()
    assert len(published) == 8
    assert (alone, 1) in published[:3]
    tenants = [world.row(launch).tenant_id for launch, _ in published]
    assert sorted(map(tenants.count, (A, B))) == [3, 4]


def test_first_attempts_of_a_job_go_in_the_order_of_their_slots() -> None:
    world = Stepped()
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    for _ in range(5):
        world.advance(10)
        world.tick()
    world.relay(2)
    slots = [world.row(launch).scheduled_at for launch, _ in world.messages()]
    assert len(slots) == 5
    assert slots == sorted(slots) == [x.scheduled_at for x in world.launches(job)]


def test_no_more_than_its_share_is_queued_until_workers_take_it() -> None:
    world = Stepped(relay={"outstanding": 8})
    job = world.job(overlap="allow")
    for _ in range(30):
        world.launch(job)
    world.relay(6)
    assert world.states() == {"queued": 8, "due": 22}
    worker = world.worker(concurrency=5)
    worker.take()
    worker.take()
    assert world.states()["running"] == 5
    world.relay(4)
    assert world.states() == {"queued": 8, "running": 5, "due": 17}


def test_a_full_class_holds_up_no_other() -> None:
    world = Stepped(relay={"outstanding": 8})
    job = world.job(overlap="allow")
    low = [world.launch(job, priority=2) for _ in range(30)]
    world.relay(4)
    normal = world.launch(job)
    world.relay(2)
    assert world.messages(NORMAL) == [(normal, 1)]
    published = world.messages(launch_topic(PREFIX, QUEUE, "low"))
    assert len(published) == 8
    assert {launch for launch, _ in published} < set(low)


def test_what_is_on_time_passes_what_is_caught_up_with() -> None:
    """More is caught up with than a line holds; a slot on time is handed over all the same."""
    world = Stepped(relay={"outstanding": 8, "scan_every": 600.0})
    misfire = {"policy": "fire_all", "max_count": 100, "grace": "1s", "per_minute": 100_000}
    world.job(schedule={"every": "1s"}, overlap="allow", misfire=misfire)
    live = world.job(schedule={"every": "60s"}, overlap="allow")
    world.advance(59)
    assert len(world.tick().inserted) > 50
    world.relay(2)
    world.advance(1)
    world.tick()
    for _ in range(2):
        world.relayer.run_once(world.owned)
    (launch,) = world.launches(live)
    assert (launch.id, 1) in world.messages(NORMAL)
    assert world.states()["due"] > 40


def test_a_tenant_of_which_nothing_waits_has_room_in_a_full_line() -> None:
    world = Stepped(relay={"outstanding": 4, "scan_every": 600.0})
    world.relay()
    for _ in range(40):
        world.job(tenant=A, schedule={"every": "60s"}, overlap="allow")
    other = world.job(tenant=B, schedule={"every": "60s"}, overlap="allow", partition=3)
    world.advance(60)
    world.tick()
    for _ in range(2):
        world.relayer.run_once(world.owned)
    (launch,) = world.launches(other)
    assert len(world.messages(NORMAL)) == 4
    assert (launch.id, 1) in world.messages(NORMAL)


def test_a_tenant_of_which_nothing_waits_is_taken_from_a_later_tick_into_a_full_line() -> None:
    """What the crowd has more is found by a scan, behind what is older; the other need not wait."""
    world = Stepped(relay={"outstanding": 4, "scan_every": 600.0})
    world.relay()
    for _ in range(40):
        world.job(tenant=A, schedule={"every": "60s"}, overlap="allow")
    world.advance(60)
    world.tick()
    other = world.job(tenant=B, schedule={"every": "10s"}, overlap="allow", partition=3)
    world.advance(10)
    world.tick()
    for _ in range(2):
        world.relayer.run_once(world.owned)
    (launch,) = world.launches(other)
    assert len(world.messages(NORMAL)) == 4
    assert (launch.id, 1) in world.messages(NORMAL)


def test_an_owner_of_half_the_partitions_has_half_the_share() -> None:
    world = Stepped(relay={"outstanding": 8})
    world.owned = {p: world.owned[p] for p in (Partition(0), Partition(1))}
    job = world.job(overlap="allow")
    for _ in range(30):
        world.launch(job)
    world.relay(6)
    assert world.states()["queued"] == 4


def test_the_backlog_is_found_after_a_takeover() -> None:
    world = Stepped()
    job = world.job(schedule={"every": "10s"})
    world.advance(10)
    world.tick()  # and the owner dies before it published
    world.take_over(Epoch(8))
    world.relay(2)
    (launch,) = world.launches(job)
    assert world.messages() == [(launch.id, 1)]
    assert launch.epoch == 7
    assert world.row(launch.id).state is State.QUEUED


def test_a_crash_between_report_and_mark_publishes_twice_and_runs_once() -> None:
    world = Stepped()
    launch = world.launch()
    worker = world.worker()
    worker.take()
    world.relay()
    world.publisher.poll(0)  # in the topic, and the owner dies
    world.take_over(Epoch(8))
    world.relay(2)
    assert world.messages() == [(launch, 1)] * 2
    worker.take()
    worker.take()
    assert len(worker.executor.started) == 1
    assert worker.metrics.counts[("claims_total", "duplicate")] == 1


def test_an_old_owner_marks_nothing_and_reports_the_fence() -> None:
    world = Stepped()
    launch = world.launch()
    world.relay()
    world.db.fence.epochs[Partition(0)] = Epoch(8)
    world.relay()
    assert world.row(launch).state is State.DUE
    assert [list(f.higher) for f in world.fences] == [[0]]


def test_a_launch_that_moved_on_before_its_mark_stays_as_it_is() -> None:
    world = Stepped()
    launch = world.launch()
    worker = world.worker()
    worker.take()
    world.relay()
    world.publisher._reports.extend(world.publisher.poll(0))
    worker.take()
    assert world.row(launch).state is State.RUNNING
    relayed = world.relay()
    assert (relayed.marked, relayed.failed) == (0, 0)
    assert world.row(launch).state is State.RUNNING


def test_what_was_not_delivered_is_published_again() -> None:
    world = Stepped()
    launch = world.launch()
    world.bus.down = True
    world.relay()
    world.publisher.give_up()
    assert world.relay().failed == 1
    assert world.row(launch).state is State.DUE
    world.bus.down = False
    world.relay(2)
    assert world.messages() == [(launch, 1)]
    assert world.row(launch).state is State.QUEUED


def test_d11_what_is_too_large_is_dead_and_holds_nobody_up() -> None:
    world = Stepped()
    large = world.launch()
    world.bus.limit_bytes = 1
    world.relay(2)
    row = world.row(large)
    assert (row.state, row.dlq_owed) == (State.DEAD, True)
    assert world.metrics.counts[("dead_letters_total", "too_large")] == 1
    world.bus.limit_bytes = 4000
    small = [world.launch() for _ in range(10)]
    world.relay(4)
    assert sorted(world.messages()) == sorted((x, 1) for x in small)


def test_a_refused_mark_of_what_is_too_large_is_reported_too() -> None:
    world = Stepped()
    large = world.launch()
    world.bus.limit_bytes = 1
    world.relay()
    world.db.fence.epochs[Partition(0)] = Epoch(8)
    world.relay()
    assert world.row(large).state is State.DUE
    assert [list(f.higher) for f in world.fences] == [[0]]


def test_d21_a_queue_whose_topic_is_missing_rests_and_others_go_on() -> None:
    world = Stepped()
    world.bus.delete(NORMAL)
    lost, high = world.launch(), world.launch(priority=0, queue="other")
    for name in ("high", "normal", "low"):
        world.bus.create(launch_topic(PREFIX, "other", name), 4)
    world.relay(3)
    assert world.messages(launch_topic(PREFIX, "other", "high")) == [(high, 1)]
    tries = _tries(world)
    world.relay(5)
    assert _tries(world) == tries  # it rests
    assert world.row(lost).state is State.DUE
    (told,) = world.relayer.missing.items()
    assert (told[0], NORMAL in told[1]) == ("default", True)
    world.bus.create(NORMAL, 4)
    world.relay(2)
    assert world.messages(NORMAL) == []
    world.advance(6)
    assert world.relayer.missing
    world.relay(2)
    assert world.messages(NORMAL) == [(lost, 1)]
    assert not world.relayer.missing


def test_a_missing_topic_that_nothing_is_published_to_any_more_is_forgotten() -> None:
    world = Stepped()
    world.bus.delete(NORMAL)
    lost = world.launch()
    world.relay(3)
    assert world.relayer.missing
    world.cancel(lost)
    world.advance(11)
    world.relay(3)
    assert not world.relayer.missing


def _tries(world: Stepped) -> int:
    return world.metrics.counts[("relay_published_total",)]


def test_d19_a_full_local_queue_makes_the_relay_wait_and_loses_nothing() -> None:
    world = Stepped()
    publisher = MemoryPublisher(world.bus, queue_messages=2)
    world.relayer._publisher = publisher
    world.bus.down = True
    job = world.job(overlap="allow")
    ids = [world.launch(job) for _ in range(50)]
    for _ in range(10):
        world.relay()
        assert publisher.outstanding <= 2
    world.bus.down = False
    world.relay(60)
    assert sorted(world.messages()) == sorted((x, 1) for x in ids)
    assert world.states() == {"queued": 50}


def test_while_kafka_is_away_memory_is_bounded_and_nothing_is_lost() -> None:
    world = Stepped(relay={"outstanding": 20})
    world.bus.down = True
    job = world.job(schedule={"every": "1s"}, overlap="allow")
    for _ in range(300):
        world.advance(1)
        world.tick()
        world.relay()
    assert len(world.relayer._waiting) <= 40
    assert len(world.relayer._known) <= 60
    assert world.publisher.outstanding <= 20
    assert world.states() == {"due": 300}
    world.bus.down = False
    worker = world.worker(concurrency=500)
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    for _ in range(60):
        world.relay(2)
        worker.work()
        world.advance(0.5)
    assert world.states()["succeeded"] >= 300
    assert len({run.launch_id for run in worker.executor.started}) == len(worker.executor.started)
    assert {x.state for x in world.launches(job)} == {State.SUCCEEDED}


def test_reports_are_kept_while_the_database_is_away() -> None:
    world = Stepped()
    launch = world.launch()
    world.relay()
    world.db.down = True
    for _ in range(3):
        with pytest.raises(UnavailableError):
            world.relay()
    world.db.down = False
    assert world.relay().marked == 1
    assert world.row(launch).state is State.QUEUED
    assert world.messages() == [(launch, 1)]


def test_a_mark_whose_answer_was_lost_is_made_again_and_changes_nothing() -> None:
    world = Stepped()
    launch = world.launch()
    world.relay()
    world.db.lose_reply.add("mark_queued")
    with pytest.raises(UnavailableError):
        world.relay()
    assert world.relay().marked == 0
    assert (world.row(launch).state, world.row(launch).publications) == (State.QUEUED, 1)


def test_partitions_that_are_given_up_are_dropped() -> None:
    world = Stepped(relay={"outstanding": 4})
    mine, theirs = world.job(overlap="allow"), world.job(overlap="allow", partition=1)
    for _ in range(10):
        world.launch(mine)
        world.launch(theirs)
    world.relay()
    world.owned = {Partition(0): world.owned[Partition(0)]}
    world.relayer.forget(world.owned)
    assert {p.partition for p in world.relayer._waiting} <= {0}
    before = len(world.messages())
    world.relay(4)
    new = world.messages()[before:]
    assert all(world.row(launch).partition == 0 for launch, _ in new)


def test_a_drain_marks_what_has_arrived() -> None:
    world = Stepped()
    launch = world.launch()
    world.relay()
    world.relayer.drain(world.owned, 1.0)
    assert world.row(launch).state is State.QUEUED

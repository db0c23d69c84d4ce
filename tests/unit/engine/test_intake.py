"""The intake on the memory bus: weights, pauses, rebalances, what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stepped import GROUP, PREFIX, QUEUE, Stepped

from tickrail.bus.codec import encode_launch
from tickrail.bus.topics import launch_topic, retry_topic
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import LaunchId
from tickrail.core.messages import LaunchMessage
from tickrail.core.ports_bus import Assignment
from tickrail.core.states import State

HIGH, NORMAL, LOW = (launch_topic(PREFIX, QUEUE, p) for p in ("high", "normal", "low"))
RETRY = retry_topic(PREFIX, QUEUE)


def send(world: Stepped, launch: LaunchId, topic: str = NORMAL, attempt: int | None = None) -> None:
    """A message about a launch, as it stands or of another attempt."""
    row = world.row(launch)
    number = attempt or row.attempt
    message = LaunchMessage(
        launch, row.scheduled_at, row.job_id, row.tenant_id, number, 7, row.partition
    )
    world.bus.append(topic, row.partition, b"k", encode_launch(message), None)


def crowd(world: Stepped, count: int, topic: str = NORMAL, **columns: int) -> list[LaunchId]:
    job = world.job(overlap="allow")
    ids = [world.launch(job, **columns) for _ in range(count)]
    for launch in ids:
        send(world, launch, topic)
    return ids


def test_topics_share_the_places_by_their_weights() -> None:
    world = Stepped()
    worker = world.worker(concurrency=12)
    for topic in (HIGH, NORMAL, RETRY, LOW):
        crowd(world, 50, topic)
    worker.take()
    kinds = [world.row(LaunchId(r.launch_id)).job_id for r in worker.executor.started]
    assert sorted(map(kinds.count, set(kinds))) == [1, 2, 3, 6]


def test_shares_that_nobody_uses_go_to_the_others() -> None:
    world = Stepped()
    worker = world.worker(concurrency=12)
    crowd(world, 50, LOW)
    worker.take()
    assert len(worker.executor.started) == 12


def test_only_what_can_start_is_claimed() -> None:
    world = Stepped()
    worker = world.worker(concurrency=3)
    crowd(world, 10)
    worker.take()
    worker.take()
    assert world.states() == {"running": 3, "due": 7}
    assert worker.intake.waiting == 7
    worker.executor.end(worker.executor.started[0])
    worker.work()
    assert world.states() == {"running": 3, "due": 6, "succeeded": 1}


def test_everything_is_paused_when_too_much_waits_and_resumed_after() -> None:
    world = Stepped()
    worker = world.worker(concurrency=1, buffer=5, fetch=5)
    crowd(world, 30)
    for _ in range(5):
        worker.take()
        assert worker.intake.waiting <= 5
    assert worker.consumer._paused == set(worker.consumer._held)
    worker.executor.answer = lambda _run: SUCCESS
    worker.executor.end()
    for _ in range(100):
        worker.work()
    assert world.states() == {"succeeded": 30}
    assert worker.consumer._paused == set()
    assert worker.done_offset(NORMAL) == 30


def test_d05_a_full_window_pauses_its_partition_and_no_other() -> None:
    world = Stepped()
    worker = world.worker(window=10, concurrency=100)
    (stuck,) = crowd(world, 1)
    worker.take()
    worker.executor.answer = lambda _run: SUCCESS
    crowd(world, 30)
    high = crowd(world, 5, HIGH)
    for _ in range(10):
        worker.work()
    assert worker.consumer._paused == {(NORMAL, 0)}
    assert {world.row(x).state for x in high} == {State.SUCCEEDED}
    assert worker.done_offset(NORMAL) is None
    assert world.row(stuck).state is State.RUNNING
    worker.executor.end()
    for _ in range(10):
        worker.work()
    assert worker.done_offset(NORMAL) == 31
    assert world.states() == {"succeeded": 36}


def test_a_message_of_an_ended_launch_is_done_at_the_claim() -> None:
    world = Stepped()
    worker = world.worker()
    for state in (State.CANCELLED, State.EXPIRED, State.SUCCEEDED):
        send(world, world.launch(state=state))
    send(world, world.launch(attempt=3), attempt=2)
    worker.take()
    worker.take()
    assert worker.executor.started == []
    assert worker.done_offset(NORMAL) == 4
    outcomes = {k[1]: n for k, n in worker.metrics.counts.items() if k[0] == "claims_total"}
    assert outcomes == {"cancelled": 1, "expired": 1, "ended": 1, "stale": 1}


def test_the_same_launch_twice_in_a_batch_runs_once() -> None:
    world = Stepped()
    worker = world.worker()
    launch = world.launch()
    for _ in range(3):
        send(world, launch)
    worker.take()
    assert len(worker.executor.started) == 1
    worker.executor.end()
    worker.work()
    assert worker.done_offset(NORMAL) == 3


@pytest.mark.parametrize("first", [1, 2])
def test_an_old_message_in_a_batch_does_not_hide_the_one_of_the_present_attempt(first: int) -> None:
    world = Stepped()
    worker = world.worker()
    launch = world.launch(attempt=2)
    topics = {first: NORMAL, 3 - first: RETRY}  # the normal topic is read first
    for attempt, topic in topics.items():
        send(world, launch, topic, attempt)
    worker.take()
    assert [r.attempt for r in worker.executor.started] == [2]
    worker.executor.end()
    worker.work()
    assert (worker.done_offset(NORMAL), worker.done_offset(RETRY)) == (1, 1)


def test_two_workers_run_a_doubled_message_once() -> None:
    world = Stepped()
    one, two = world.worker("w-1"), world.worker("w-2")
    launch = world.launch()
    for _ in range(4):
        for worker in (one, two):
            worker.take()
    for partition in range(4):
        row = world.row(launch)
        message = LaunchMessage(
            launch, row.scheduled_at, row.job_id, row.tenant_id, 1, 7, row.partition
        )
        world.bus.append(NORMAL, partition, b"k", encode_launch(message), None)
    for _ in range(3):
        one.take()
        two.take()
    assert len(one.executor.started) + len(two.executor.started) == 1


def test_messages_wait_while_the_database_is_away() -> None:
    world = Stepped()
    worker = world.worker()
    ids = crowd(world, 5)
    world.db.down = True
    for _ in range(3):
        with pytest.raises(UnavailableError):
            worker.take()
    assert worker.intake.waiting == 5
    world.db.down = False
    worker.executor.answer = lambda _run: SUCCESS
    worker.work()
    assert [r.launch_id for r in worker.executor.started] == sorted(ids)
    assert worker.done_offset(NORMAL) == 5


def test_a_claim_whose_answer_was_lost_is_left_to_the_reaper() -> None:
    world = Stepped()
    worker = world.worker()
    (launch,) = crowd(world, 1)
    world.db.lose_reply.add("claim")
    with pytest.raises(UnavailableError):
        worker.take()
    worker.take()
    worker.take()
    assert worker.executor.started == []
    assert world.row(launch).state is State.RUNNING
    assert worker.done_offset(NORMAL) == 1
    world.advance(31)
    world.sweep()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.DUE, 2)


def test_d25_what_cannot_be_read_is_buried_before_its_offset() -> None:
    world = Stepped()
    worker = world.worker()
    world.bus.append(NORMAL, 0, b"k", b"\xff not json", None)
    (launch,) = crowd(world, 1)
    worker.executor.answer = lambda _run: SUCCESS
    worker.bury_fails = UnavailableError("Kafka is away")
    for _ in range(3):
        worker.work()
    assert world.row(launch).state is State.SUCCEEDED  # it holds nobody up
    assert worker.done_offset(NORMAL) is None
    worker.bury_fails = None
    worker.take()
    worker.take()
    (letter,) = worker.buried
    assert (letter.topic, letter.partition, letter.offset) == (NORMAL, 0, 0)
    assert letter.raw == b"\xff not json"
    assert worker.done_offset(NORMAL) == 2


def test_d03_nothing_is_committed_for_what_was_revoked() -> None:
    world = Stepped()
    one = world.worker("w-1")
    crowd(world, 3)
    one.take()
    moved = _moves_to_the_second(world)
    two = world.worker("w-2")
    two.take()
    one.take()  # hears that half its partitions go
    two.take()
    assert {(a.topic, a.partition) for a in two.consumer.assignments} == moved
    for run in list(one.executor.started):
        one.executor.end(run)
    one.work()
    held = [a for a in one.consumer.assignments if a.topic == NORMAL]
    for place, offset in world.bus.committed.items():
        assert place[2] in {a.partition for a in held}, (place, offset)


def test_messages_of_a_topic_that_was_made_anew_are_taken_though_their_offsets_begin_again() -> (
    None
):
    world = Stepped()
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    crowd(world, 3)
    worker.work()
    assert worker.done_offset(NORMAL) == 3
    partitions = len(world.bus.logs[NORMAL])
    world.bus.delete(NORMAL)  # and no rebalance tells of it
    world.bus.create(NORMAL, partitions)
    (launch,) = crowd(world, 1)
    worker.work()
    assert world.row(launch).state is State.SUCCEEDED
    assert worker.done_offset(NORMAL) == 1


def _moves_to_the_second(world: Stepped) -> set[tuple[str, int]]:
    topics = (HIGH, NORMAL, LOW, RETRY)
    assert world.bus.members[GROUP]
    return {(t, p) for t in topics for p in (1, 3)}


def test_a_revoke_commits_what_is_done_and_drops_what_waits() -> None:
    world = Stepped()
    worker = world.worker(concurrency=2)
    first = crowd(world, 5)[0]
    worker.take()
    worker.executor.end(next(r for r in worker.executor.started if r.launch_id == first))
    worker.finish()
    gone = [a for a in worker.consumer.assignments if (a.topic, a.partition) == (NORMAL, 0)]
    positions = list(worker.intake.revoked(gone))
    assert [(p.partition, p.offset) for p in positions] == [(0, 1)]
    assert worker.intake.waiting == 0
    # What runs goes on under its claim; its offset is nobody's any more.
    worker.executor.end()
    assert worker.finish() == 1
    assert world.states() == {"succeeded": 2, "due": 3}


def test_lost_partitions_commit_nothing() -> None:
    world = Stepped()
    worker = world.worker(concurrency=2, commit_every=1e9)
    crowd(world, 5)
    worker.take()
    worker.executor.end(worker.executor.started[0])
    worker.finish()
    worker.consumer.throw_out()
    worker.take()
    assert world.bus.committed == {}
    # It joins again and reads from the start; the claim refuses what is over.
    worker.executor.answer = lambda _run: SUCCESS
    for run in list(worker.executor.running):
        worker.executor.end(run)
    for _ in range(4):
        worker.work()
    assert world.states() == {"succeeded": 5}
    assert len(worker.executor.started) == 5


def test_d15_after_a_rebalance_only_what_is_full_now_is_paused() -> None:
    world = Stepped()
    worker = world.worker(concurrency=1, buffer=5, fetch=5)
    crowd(world, 30)
    for _ in range(4):
        worker.take()
    assert worker.consumer._paused
    worker.consumer.throw_out()
    worker.intake.run_once(0.0)
    held = set(worker.consumer._held)
    assert worker.consumer._paused <= held
    worker.executor.answer = lambda _run: SUCCESS
    worker.executor.end()
    for _ in range(100):
        worker.work()
    assert world.states() == {"succeeded": 30}


def test_a_closing_intake_polls_and_claims_nothing() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    worker.intake.close_intake()
    crowd(world, 3)
    worker.take()
    assert world.db.calls["claim"] == 0
    worker.intake.finish()
    assert worker.consumer.closed
    assert world.bus.committed == {}


def test_a_closing_intake_has_settled_when_no_claim_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a claim brought after the executors had closed was given back without a start."""
    world = Stepped()
    worker = world.worker()
    crowd(world, 3)
    seen: list[bool] = []

    def claimed(*args: Any) -> Any:
        worker.intake.close_intake()  # the signal comes while the database answers
        seen.append(worker.intake.settled(0.0))
        return claim(*args)

    claim = worker.intake._store.claim
    monkeypatch.setattr(worker.intake._store, "claim", claimed)
    worker.take()
    assert seen == [False]
    assert len(worker.executor.started) == 3
    assert not worker.intake.settled(0.0)
    worker.intake.run_once(0.0)
    assert worker.intake.settled(0.0)


def test_an_intake_that_has_ended_has_settled() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    worker.intake.close_intake()
    worker.intake.finish()
    assert worker.intake.settled(0.0)


def test_offsets_are_committed_a_few_times_a_second() -> None:
    world = Stepped()
    worker = world.worker(commit_every=0.25)
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    crowd(world, 3)
    worker.work()
    assert worker.done_offset(NORMAL) is None
    world.advance(0.25)
    worker.take()
    assert worker.done_offset(NORMAL) == 3


def test_results_of_a_revoked_assignment_are_dropped() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    worker.intake.offset_done(("nowhere", 0, 99), 5)
    worker.take()
    worker.intake.lost([Assignment("nowhere", 0, 99)])
    assert world.bus.committed == {}

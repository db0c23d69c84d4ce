"""What the intake holds at most, and how a worker that drains leaves its group."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.stepped import GROUP, Stepped
from tests.unit.engine.test_intake import NORMAL, crowd, send

from tickrail.core.errors import SetupError, TickrailError, UnavailableError
from tickrail.core.execution import SUCCESS
from tickrail.core.messages import LaunchMessage
from tickrail.core.ports_bus import Assignment
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


def test_what_waits_for_its_dead_letter_counts_after_a_revoke_too() -> None:
    world = Stepped()
    worker = world.worker(concurrency=1)
    worker.take()
    worker.bury_fails = UnavailableError("the DLQ topic is away")
    for _ in range(3):
        world.bus.append(NORMAL, 0, b"k", b"\x00" * 1000, None)
    crowd(world, 5)
    worker.take()
    assert worker.intake._held_bytes > 3000
    list(worker.intake.revoked(worker.consumer.assignments))
    assert worker.intake._held_bytes == 3000
    worker.bury_fails = None
    worker.take()
    assert len(worker.buried) >= 3
    assert worker.intake._held_bytes == sum(
        w.size for q in worker.intake._lanes.values() for w in q
    )


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


@pytest.mark.parametrize("place", [0, 6, 12])
def test_a_message_that_cannot_be_claimed_is_buried_and_holds_up_nobody(place: int) -> None:
    world = Stepped()
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    job = world.job(overlap="allow")
    ids = [world.launch(job) for _ in range(12)]
    odd = world.launch()
    ids.insert(place, odd)
    for launch in ids:
        send(world, launch)
    claim = worker.store.claim

    def refusing(requests: Any, name: str) -> Any:
        if any(r.id == odd for r in requests):
            raise TickrailError("the database refuses a statement:\ninteger out of range")
        return claim(requests, name)

    worker.store.claim = refusing  # type: ignore[method-assign]
    worker.work()
    assert world.states() == {"succeeded": 12, "due": 1}
    worker.work()
    (letter,) = worker.buried
    assert (letter.topic, letter.partition, letter.offset) == (NORMAL, 0, place)
    assert letter.raw == world.bus.messages(NORMAL)[place].value
    assert letter.error.endswith("the database refuses a statement: integer out of range")
    assert worker.metrics.counts[("messages_undecodable_total",)] == 1
    assert worker.done_offset(NORMAL) == 13
    assert worker.intake._held_bytes == 0


def test_an_outage_amid_claims_one_by_one_leaves_the_others_waiting() -> None:
    world = Stepped()
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    job = world.job(overlap="allow")
    ids = [world.launch(job) for _ in range(8)]
    for launch in ids:
        send(world, launch)
    claim, calls = worker.store.claim, 0

    def failing(requests: Any, name: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TickrailError("integer out of range")
        if calls == 3:
            raise UnavailableError("the database is away")
        return claim(requests, name)

    worker.store.claim = failing  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        worker.take()
    assert len(worker.executor.started) == 4
    assert worker.intake.waiting == 4
    worker.work()
    assert {r.launch_id for r in worker.executor.started} == set(ids)
    assert len(worker.executor.started) == 8
    assert (worker.buried, world.states()) == ([], {"succeeded": 8})
    assert worker.intake._held_bytes == 0


def test_a_set_up_that_is_wrong_buries_nothing() -> None:
    world = Stepped()
    worker = world.worker()
    worker.take()
    send(world, world.launch())

    def refusing(_requests: Any, _name: str) -> Any:
        raise SetupError("the role may not do this")

    worker.store.claim = refusing  # type: ignore[method-assign]
    with pytest.raises(SetupError):
        worker.take()
    assert (worker.intake.waiting, worker.buried) == (1, [])


def test_whatever_a_message_does_to_its_decoder_it_is_buried_and_the_others_go_on() -> None:
    world = Stepped()
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    decode = worker.intake._decode

    def failing(raw: bytes) -> LaunchMessage:
        if raw == b"?":
            raise RecursionError
        return decode(raw)

    worker.intake._decode = failing
    worker.take()
    world.bus.append(NORMAL, 0, b"k", b"?", None)
    send(world, world.launch())
    worker.work()
    worker.take()
    assert [x.error for x in worker.buried] == ["RecursionError"]
    assert world.states() == {"succeeded": 1}
    assert worker.done_offset(NORMAL) == 2


def test_a_burial_that_is_refused_is_tried_again_and_holds_up_nobody() -> None:
    world = Stepped()
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.bury_fails = TickrailError("the database refuses a statement")
    worker.take()
    world.bus.append(NORMAL, 0, b"k", b"?", None)
    send(world, world.launch())
    worker.work()
    assert (world.states(), worker.done_offset(NORMAL)) == ({"succeeded": 1}, None)
    worker.bury_fails = None
    worker.take()
    assert worker.done_offset(NORMAL) == 2


def test_what_waits_for_its_dead_letter_counts_over_a_revoke() -> None:
    world = Stepped()
    worker = world.worker(buffer_bytes=5000, fetch=1)
    worker.take()
    worker.bury_fails = UnavailableError("the DLQ topic is away")
    for _ in range(5):
        world.bus.append(NORMAL, 0, b"k", b"\x00" * 1000, None)
        worker.take()
    places = [Assignment(*place) for place in worker.intake._trackers]
    list(worker.intake.revoked(places))
    assert worker.intake._held_bytes == 5000
    worker.intake.assigned(places)
    worker.take()
    assert worker.consumer._paused
    worker.bury_fails = None
    worker.take()
    assert (len(worker.buried), worker.intake._held_bytes) == (5, 0)

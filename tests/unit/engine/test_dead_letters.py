"""Dead letters: reason classes, what is counted, messages that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory_bus import MemoryBus, MemoryPublisher
from tests.support.stepped import PREFIX, QUEUE, Stepped

from tickrail.bus.codec import decode_dead_letter, encode_undecodable
from tickrail.bus.topics import dlq_topic, launch_topic
from tickrail.core.dead_letters import Reason, error_text, reason_of
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import Outcome, Run
from tickrail.core.ids import Epoch, Partition
from tickrail.core.messages import UndecodableLetter
from tickrail.core.states import State
from tickrail.engine.deadletters import RawBox, show_reasons
from tickrail.runtime.metrics import PrometheusMetrics

DLQ = dlq_topic(PREFIX, QUEUE)
NORMAL = launch_topic(PREFIX, QUEUE, "normal")
DEAD, ABANDONED = State.DEAD, State.ABANDONED


@pytest.mark.parametrize(
    ("state", "result", "reason"),
    [
        (DEAD, {"outcome": "http_500", "retryable": True}, "attempts_exhausted"),
        (DEAD, {"outcome": "http_404", "retryable": False}, "not_retryable"),
        (DEAD, {"outcome": "worker_lost"}, "worker_lost"),
        (DEAD, {"outcome": "too_large"}, "too_large"),
        (DEAD, {"outcome": "refused_egress", "retryable": False}, "rejected"),
        (DEAD, {"outcome": "unreadable", "retryable": False}, "rejected"),
        (DEAD, {}, "attempts_exhausted"),
        (DEAD, None, "attempts_exhausted"),
        (ABANDONED, {"outcome": "timed_out", "retryable": True}, "uncertain"),
        (ABANDONED, {"outcome": "worker_lost"}, "uncertain"),
        (ABANDONED, None, "uncertain"),
    ],
)
def test_the_reason_class(state: State, result: Any, reason: str) -> None:
    assert reason_of(state, result) == reason


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"outcome": "http_500", "message": "it said 500"}, "http_500: it said 500"),
        ({"outcome": "timed_out"}, "timed_out"),
        ({}, "unknown"),
        (None, "unknown"),
    ],
)
def test_the_error_in_a_line(result: Any, text: str) -> None:
    assert error_text(result) == text


def test_every_reason_is_shown_from_the_start() -> None:
    metrics = PrometheusMetrics()
    show_reasons(metrics)
    text = metrics.render()[0].decode()
    for reason in Reason:
        assert f'tickrail_dead_letters_total{{reason="{reason}"}} 0.0' in text


def test_d09_each_of_two_failing_launches_has_its_attempts_and_one_letter() -> None:
    """Ten launches of one partition fail always, one does not: thirty calls and ten letters."""
    world = Stepped()
    worker = world.worker()
    bad, good = world.job(overlap="allow", retry={"max_attempts": 3}), world.job()
    failing = {world.launch(bad, max_attempts=3) for _ in range(10)}
    fine = world.launch(good)
    calls: list[tuple[object, int]] = []

    def answer(run: Run) -> Outcome:
        if run.launch_id not in failing:
            return Outcome(ok=True, outcome="ok")
        calls.append((run.launch_id, run.attempt))
        return Outcome(ok=False, outcome="http_500")

    worker.executor.answer = answer
    for _ in range(12):
        world.relay()
        worker.work()
        world.advance(2)
    assert world.row(fine).state is State.SUCCEEDED
    assert sorted(calls) == sorted((x, n) for x in failing for n in (1, 2, 3))
    letters = [decode_dead_letter(m.value) for m in world.bus.messages(DLQ)]
    assert {x.id for x in letters} == {(x, 3) for x in failing}
    assert len(letters) == 10
    assert {x.reason for x in letters} == {"attempts_exhausted"}
    assert worker.metrics.counts[("dead_letters_total", "attempts_exhausted")] == 10


def test_the_owner_of_partition_0_tells_how_many_wait() -> None:
    world = Stepped()
    for n in range(3):
        world.launch(state=DEAD, finished_at=world.clock.now(), dead_at=world.clock.now())
        world.letters.run_once(world.owned)
        assert world.metrics.gauges["dead_letters_waiting"] == n + 1
    world.letters.moved({Partition(1): Epoch(1)})
    assert world.metrics.gauges["dead_letters_waiting"] == 0
    world.letters.run_once({Partition(1): Epoch(1)})
    assert world.metrics.gauges["dead_letters_waiting"] == 0


class Raw:
    """A box, and what it keeps."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.bus.create(DLQ, 1)
        self.publisher = MemoryPublisher(self.bus)
        self.kept: list[tuple[str, str]] = []
        self.away = False
        self.box = RawBox(
            self.publisher, lambda _topic: QUEUE, lambda _queue: DLQ, encode_undecodable, self.keep
        )

    def keep(self, letter: UndecodableLetter, queue: str) -> None:
        if self.away:
            raise UnavailableError("the database does not answer")
        self.kept.append((letter.id, queue))


def letter(offset: int) -> UndecodableLetter:
    return UndecodableLetter(NORMAL, 2, offset, b"\xff", "not JSON")


def test_a_message_is_kept_and_published_as_it_came() -> None:
    raw = Raw()
    raw.box.bury(letter(7))
    (message,) = raw.bus.messages(DLQ)
    assert message.value == b"\xff"
    assert dict(message.headers)["tickrail-id"] == f"{NORMAL}/2/7".encode()
    assert raw.kept == [(f"{NORMAL}/2/7", QUEUE)]


def test_d25_while_the_topic_is_away_a_message_is_handed_over_once() -> None:
    raw = Raw()
    raw.bus.down = True
    for _ in range(5):
        with pytest.raises(UnavailableError, match="not acknowledged"):
            raw.box.bury(letter(1))
    assert raw.publisher.outstanding == 1
    assert len(raw.kept) == 1, "it is seen although the topic is away"
    raw.bus.down = False
    raw.box.bury(letter(1))
    raw.box.bury(letter(2))
    assert len(raw.bus.messages(DLQ)) == 2


def test_a_message_that_did_not_arrive_is_handed_over_again() -> None:
    raw = Raw()
    raw.bus.delete(DLQ)
    with pytest.raises(UnavailableError, match="did not arrive"):
        raw.box.bury(letter(1))
    raw.bus.create(DLQ, 1)
    raw.box.bury(letter(1))
    assert len(raw.bus.messages(DLQ)) == 1


def test_without_the_database_nothing_is_published() -> None:
    raw = Raw()
    raw.away = True
    with pytest.raises(UnavailableError, match="database"):
        raw.box.bury(letter(1))
    assert raw.publisher.outstanding == 0
    raw.away = False
    raw.box.bury(letter(1))
    assert len(raw.bus.messages(DLQ)) == 1


def large(offset: int, size: int) -> UndecodableLetter:
    return UndecodableLetter(NORMAL, 2, offset, b"\xff" * size, "not JSON")


def test_of_a_message_that_is_too_large_for_the_topic_the_start_is_published() -> None:
    raw = Raw()
    raw.bus.limit_bytes = 100_000
    with pytest.raises(UnavailableError, match="did not arrive"):
        raw.box.bury(large(1, 100_001))
    raw.box.bury(large(1, 100_001))
    raw.box.bury(large(2, 100_000))
    first, second = raw.bus.messages(DLQ)
    assert first.value == b"\xff" * 65536
    assert dict(first.headers)["tickrail-id"] == f"{NORMAL}/2/1".encode()
    reason = dict(first.headers)["tickrail-reason"]
    assert reason == b"the first 65536 of 100001 bytes; not JSON"
    assert len(second.value) == 100_000
    assert {x for x, _ in raw.kept} == {f"{NORMAL}/2/{n}" for n in (1, 2)}


def test_what_the_topic_never_takes_holds_up_no_other() -> None:
    raw = Raw()
    raw.bus.limit_bytes = 10
    with pytest.raises(UnavailableError):
        raw.box.bury(large(1, 50))
    raw.box.bury(large(1, 50))
    raw.box.bury(letter(2))
    (message,) = raw.bus.messages(DLQ)
    assert message.value == b"\xff"
    assert raw.kept[0] == (f"{NORMAL}/2/1", QUEUE)


def test_a_report_of_another_message_is_not_taken_for_this_ones() -> None:
    raw = Raw()
    raw.bus.limit_bytes, raw.bus.down = 10, True
    for one in (large(1, 50), letter(2)):
        with pytest.raises(UnavailableError, match="not acknowledged"):
            raw.box.bury(one)
    raw.bus.down = False
    raw.box.bury(letter(2))
    assert [m.value for m in raw.bus.messages(DLQ)] == [b"\xff"]

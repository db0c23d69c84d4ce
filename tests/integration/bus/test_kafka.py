"""Kafka behind the bus ports when things go wrong: broker gone or frozen, members thrown out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.servers import Servers
from tests.support.until import pause, until

from tickrail.bus.config import KafkaSettings
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.stuck import ANSWERED_FOR, STUCK_AFTER
from tickrail.bus.topics import Topics
from tickrail.core.clock import SystemClock
from tickrail.core.errors import SetupError
from tickrail.core.ports_bus import Assignment, BusError, Delivery, Position, Record

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
PARTITIONS = 4


class Listener:
    def __init__(self) -> None:
        self.lost_count = 0
        self.done: list[Position] = []

    def assigned(self, partitions: Any) -> None:
        pass

    def revoked(self, _partitions: Any) -> list[Position]:
        return self.done

    def lost(self, partitions: list[Assignment]) -> None:
        self.lost_count += len(partitions)


@pytest.fixture
def settings(stack: Servers, topic_prefix: str) -> Callable[..., KafkaSettings]:
    def make(**changes: Any) -> KafkaSettings:
        values = {
            "bootstrap": stack.kafka_bootstrap,
            "group": topic_prefix,
            "topic_prefix": topic_prefix,
            "session_timeout": 6.0,
        }
        return KafkaSettings(**{**values, **changes})

    return make


@pytest.fixture
def topic(settings: Callable[..., KafkaSettings], topic_prefix: str) -> str:
    name = f"{topic_prefix}work"
    Topics(settings()).ensure([name], PARTITIONS)
    return name


@pytest.fixture
def kafka(stack: Servers) -> Iterator[Any]:
    """The broker's process, for tests that kill or freeze it; runs again afterwards."""
    assert stack.kafka is not None, "this test needs servers that this run started"
    server = stack.kafka
    yield server
    server.thaw()
    if not server.alive:
        server.restart()


def send(publisher: KafkaPublisher, topic: str, count: int) -> None:
    for i in range(count):
        assert publisher.publish(topic, i % PARTITIONS, b"k", b"%d" % i, None, i)


def read(consumer: LaunchConsumer, count: int, seconds: float = 40) -> list[Record]:
    records: list[Record] = []
    until(lambda: records.extend(consumer.poll(500, 0.1)) or len(records) >= count, seconds)
    return records


# --- topics --------------------------------------------------------------------------------------


def test_topics_are_made_once_also_by_two_at_once(
    settings: Callable[..., KafkaSettings], topic_prefix: str
) -> None:
    names = [f"{topic_prefix}{i}" for i in range(5)]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: Topics(settings()).ensure(names, PARTITIONS), range(2)))
    assert sorted(made[0] + made[1]) == sorted(names)
    topics = Topics(settings())
    assert topics.ensure(names, PARTITIONS) == []
    # What was made just now may be unknown to the broker for a moment.
    wanted = {**dict.fromkeys(names, PARTITIONS), "none": 0}
    until(lambda: topics.partitions([*names, "none"]) == wanted, 30)
    assert topics.named(topic_prefix) == names


def test_another_partition_count_is_refused(
    settings: Callable[..., KafkaSettings], topic: str
) -> None:
    topics = Topics(settings())
    until(lambda: topics.partitions([topic]) == {topic: PARTITIONS}, 30)
    with pytest.raises(SetupError) as refused:
        topics.ensure([topic], PARTITIONS * 2)
    (problem,) = refused.value.problems
    assert topic in problem.message
    assert problem.expected == "8 partitions"


def test_an_illegal_name_is_refused(settings: Callable[..., KafkaSettings]) -> None:
    with pytest.raises(SetupError, match="not legal"):
        Topics(settings()).ensure(["a b", "x" * 300], 1)


def test_an_unreachable_broker_is_named() -> None:
    topics = Topics(KafkaSettings(bootstrap="127.0.0.1:1"), timeout=1)
    with pytest.raises(BusError, match=r"127\.0\.0\.1:1"):
        topics.ping()


def test_publishing_makes_no_topic(
    settings: Callable[..., KafkaSettings], topic_prefix: str
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    publisher.publish(f"{topic_prefix}none", 0, b"k", b"v", None, 1)
    (report,) = publisher.flush(30)
    assert report.error is not None
    assert Topics(settings()).named(topic_prefix) == []
    publisher.close(1)


# --- a client that does not read any more --------------------------------------------------------


class Later(SystemClock):
    """A clock that the test puts forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_client_that_is_stuck_is_replaced_and_reads_what_was_not_committed(
    settings: Callable[..., KafkaSettings],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a broker's restart that librdkafka does not get over, by what statistics tell."""
    clock = Later()
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer = LaunchConsumer(settings(), clock, "stuck one")
    listener = Listener()
    try:
        send(publisher, topic, 8)
        consumer.subscribe([topic], listener)
        first = read(consumer, 8)
        old = consumer._consumer
        monkeypatch.setattr("tickrail.bus.consumer.reads", lambda *_: False)
        until(lambda: consumer.poll(10, 0.1) or consumer._stuck._look_at is not None, 20)
        clock.ahead += STUCK_AFTER
        consumer.poll(10, 0.1)
        assert consumer._consumer is old  # it has some time to get over it by itself
        clock.ahead += ANSWERED_FOR
        until(lambda: consumer.poll(10, 0.1) or consumer._consumer is not old, 20)
        assert listener.lost_count == PARTITIONS
        assert list(consumer.assignments) == []
        monkeypatch.undo()
        again = read(consumer, 8)
        assert sorted(r.value for r in again) == sorted(r.value for r in first)
        assert not {r.generation for r in again} & {r.generation for r in first}
        consumer.commit([Position(r.topic, r.partition, r.generation, r.offset + 1) for r in again])
        send(publisher, topic, 4)
        assert len(read(consumer, 4)) == 4
        assert consumer.trouble is None
    finally:
        consumer.close()
        publisher.close(1)


def test_a_client_is_kept_while_nobody_else_is_answered(
    settings: Callable[..., KafkaSettings], topic: str, kafka: Any
) -> None:
    clock = Later()
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer = LaunchConsumer(settings(), clock, "patient one")
    listener = Listener()
    try:
        send(publisher, topic, 4)
        consumer.subscribe([topic], listener)
        read(consumer, 4)
        kept = consumer._consumer
        kafka.freeze()
        until(lambda: consumer.poll(10, 0.1) or consumer.trouble is not None, 60)
        for _ in range(3):
            clock.ahead += STUCK_AFTER
            assert consumer.poll(10, 0.1) == []
        assert consumer._consumer is kept
        kafka.thaw()
        until(lambda: consumer.poll(10, 0.1) or consumer.trouble is None, 60)
    finally:
        kafka.thaw()
        consumer.close()
        publisher.close(1)


# --- the broker goes and comes -------------------------------------------------------------------


def test_an_outage_is_back_pressure_and_everything_goes_out_once_afterwards(
    settings: Callable[..., KafkaSettings], topic: str, kafka: Any
) -> None:
    publisher = KafkaPublisher(settings(queue_messages=50, delivery_timeout=120), CLOCK)
    consumer = LaunchConsumer(settings(), CLOCK)
    consumer.subscribe([topic], Listener())
    until(lambda: consumer.poll(1, 0.1) or len(consumer.assignments) == PARTITIONS, 30)
    kafka.kill()
    accepted = 0
    while publisher.publish(topic, accepted % PARTITIONS, b"k", b"%d" % accepted, None, accepted):
        accepted += 1
        assert accepted <= 50, "the local queue has no bound"
    assert accepted == publisher.outstanding == 50
    until(lambda: publisher.poll(0.1) or publisher.trouble, 30)
    until(lambda: consumer.poll(1, 0.1) or consumer.trouble, 30)
    spent = time.process_time()
    for _ in range(20):
        assert publisher.poll(0.1) == []
        assert consumer.poll(10, 0.1) == []
    assert time.process_time() - spent < 0.4, "an outage costs too much CPU"
    kafka.restart()
    reports: list[Delivery] = []
    until(lambda: reports.extend(publisher.poll(0.1)) or len(reports) == 50, 60)
    assert [r.error for r in reports] == [None] * 50
    assert sorted(int(r.value) for r in read(consumer, 50)) == list(range(50))
    until(lambda: consumer.poll(1, 0.1) or consumer.trouble is None, 30)
    until(lambda: publisher.poll(0.1) or publisher.trouble is None, 30)
    consumer.close()
    publisher.close(1)


def test_close_does_not_wait_for_a_dead_broker(
    settings: Callable[..., KafkaSettings], topic: str, kafka: Any
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer, listener = LaunchConsumer(settings(), CLOCK), Listener()
    consumer.subscribe([topic], listener)
    send(publisher, topic, 8)
    publisher.flush(30)
    last = read(consumer, 8)[-1]
    listener.done = [Position(last.topic, last.partition, last.generation, last.offset + 1)]
    kafka.kill()
    send(publisher, topic, 3)
    before = CLOCK.monotonic()
    consumer.close()
    reports = publisher.close(0.2)
    assert CLOCK.monotonic() - before < 15
    assert len(reports) == 3
    assert all(r.error is not None and not r.error.permanent for r in reports)
    assert publisher.outstanding == 0


def test_a_freeze_beyond_the_delivery_timeout_fails_and_passes(
    settings: Callable[..., KafkaSettings], topic: str, kafka: Any
) -> None:
    publisher = KafkaPublisher(settings(delivery_timeout=2), CLOCK)
    send(publisher, topic, 4)
    assert all(r.error is None for r in publisher.flush(30))
    kafka.freeze()
    send(publisher, topic, 4)
    failed: list[Delivery] = []
    until(lambda: failed.extend(publisher.poll(0.1)) or len(failed) == 4, 30)
    assert all(r.error is not None and not r.error.permanent for r in failed)
    kafka.thaw()
    good: list[Delivery] = []

    def again() -> bool:
        publisher.publish(topic, 0, b"k", b"v", None, "again")
        good.extend(r for r in publisher.poll(0.2) if r.error is None)
        return bool(good)

    until(again, 40)
    publisher.close(10)


def test_a_fatal_error_makes_a_new_producer_and_reports_what_was_outstanding(
    settings: Callable[..., KafkaSettings], topic: str, kafka: Any
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    kafka.freeze()
    send(publisher, topic, 6)
    first = publisher._producer
    publisher._watch.fatal = BusError("planted", fatal=True)
    reports = publisher.poll(0.1)
    assert sorted(r.token for r in reports) == list(range(6))  # type: ignore[type-var]
    assert all(r.error is not None for r in reports)
    assert publisher._producer is not first
    assert publisher.trouble is None
    kafka.thaw()
    send(publisher, topic, 4)
    assert [r.error for r in publisher.flush(30)] == [None] * 4
    publisher.close(1)


# --- membership ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_d01_who_does_not_poll_is_thrown_out_and_reads_again(
    settings: Callable[..., KafkaSettings], topic: str, protocol: str
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    member = settings(max_poll_interval=6, group_protocol=protocol)
    consumer, listener = LaunchConsumer(member, CLOCK), Listener()
    consumer.subscribe([topic], listener)
    send(publisher, topic, 4)
    publisher.flush(30)
    first = read(consumer, 4)
    pause(8)
    again = read(consumer, 4)
    assert listener.lost_count == PARTITIONS
    assert sorted(r.value for r in again) == sorted(r.value for r in first)
    assert {r.generation for r in again}.isdisjoint({r.generation for r in first})
    # What was done under the old assignment cannot be committed any more, and does no harm.
    consumer.commit([Position(r.topic, r.partition, r.generation, r.offset + 1) for r in first])
    consumer.commit([Position(r.topic, r.partition, r.generation, r.offset + 1) for r in again])
    until(lambda: consumer.poll(1, 0.1) or not consumer._uncommitted, 10)
    consumer.close()
    publisher.close(1)


def test_d01_paused_partitions_keep_the_membership(
    settings: Callable[..., KafkaSettings], topic: str
) -> None:
    consumer, listener = LaunchConsumer(settings(max_poll_interval=6), CLOCK), Listener()
    consumer.subscribe([topic], listener)
    until(lambda: consumer.poll(1, 0.1) or len(consumer.assignments) == PARTITIONS, 30)
    held = list(consumer.assignments)
    consumer.pause(held)
    end = CLOCK.monotonic() + 8
    while CLOCK.monotonic() < end:
        assert consumer.poll(10, 0.5) == []
    assert consumer.assignments == held
    assert listener.lost_count == 0
    consumer.close()


def test_d07_committed_is_processed_plus_one_and_lag_is_told(
    settings: Callable[..., KafkaSettings], topic: str
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer = LaunchConsumer(settings(), CLOCK)
    consumer.subscribe([topic], Listener())
    send(publisher, topic, 40)
    publisher.flush(30)
    records = read(consumer, 40)
    consumer.commit(
        [Position(r.topic, r.partition, r.generation, r.offset + 1) for r in records[:-1]]
    )
    until(lambda: consumer.poll(1, 0.1) or consumer.lag.get(topic) == 1, 20)
    consumer.close()
    publisher.close(1)


def test_a_topic_made_anew_with_fewer_partitions_is_read_on(
    settings: Callable[..., KafkaSettings], topic: str
) -> None:
    topics = Topics(settings())
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer = LaunchConsumer(settings(), CLOCK)
    consumer.subscribe([topic], Listener())
    send(publisher, topic, 8)
    publisher.flush(30)
    records = read(consumer, 8)
    consumer.commit([Position(r.topic, r.partition, r.generation, r.offset + 1) for r in records])
    topics.delete([topic])
    until(lambda: consumer.poll(1, 0.1) or topics.partitions([topic])[topic] == 0, 20)
    until(lambda: consumer.poll(1, 0.1) or consumer.trouble is not None, 40)
    assert consumer.trouble is not None
    assert consumer.trouble.topic == topic
    topics.ensure([topic], 1)
    fresh = KafkaPublisher(settings(), CLOCK)
    fresh.publish(topic, 0, b"k", b"new", None, 1)
    assert [r.error for r in fresh.flush(30)] == [None]
    assert b"new" in {r.value for r in read(consumer, 1, 60)}
    assert consumer.trouble is None
    for client in (publisher, fresh):
        client.close(1)
    consumer.close()


def test_a_poll_comes_back_with_the_first_message(
    settings: Callable[..., KafkaSettings], topic: str
) -> None:
    publisher = KafkaPublisher(settings(), CLOCK)
    consumer = LaunchConsumer(settings(), CLOCK)
    consumer.subscribe([topic], Listener())
    until(lambda: consumer.poll(1, 0.1) or len(consumer.assignments) == PARTITIONS, 30)
    publisher.publish(topic, 0, b"k", b"warm", None, 0)
    publisher.flush(30)
    read(consumer, 1)
    timer = threading.Timer(0.2, lambda: publisher.publish(topic, 0, b"k", b"v", None, 0))
    timer.start()
    before = CLOCK.monotonic()
    assert len(consumer.poll(500, 5.0)) == 1
    assert CLOCK.monotonic() - before < 2
    timer.join()
    consumer.close()
    publisher.close(5)


# --- who reads what ------------------------------------------


def test_a_worker_that_joins_later_gets_its_share_of_every_topic(
    settings: Callable[..., KafkaSettings], topic_prefix: str
) -> None:
    names = [f"{topic_prefix}{kind}" for kind in ("high", "normal", "low", "retry")]
    Topics(settings()).ensure(names, PARTITIONS)
    first, second = (LaunchConsumer(settings(), CLOCK, name) for name in ("first", "second"))

    def shares(consumer: LaunchConsumer) -> list[int]:
        held = [a.topic for a in consumer.assignments]
        return [held.count(name) for name in names]

    first.subscribe(names, Listener())
    until(lambda: first.poll(1, 0.1) or shares(first) == [4, 4, 4, 4], 40)
    second.subscribe(names, Listener())
    until(lambda: first.poll(1, 0.05) or second.poll(1, 0.05) or shares(second) != [0, 0, 0, 0], 40)
    assert (shares(first), shares(second)) == ([2, 2, 2, 2], [2, 2, 2, 2])
    first.close()
    second.close()

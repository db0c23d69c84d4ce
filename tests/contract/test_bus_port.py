"""The contract of the bus ports, held to by Kafka and by the memory bus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.memory_bus import MemoryBus, MemoryConsumer, MemoryPublisher

from tickrail.bus.config import KafkaSettings
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import Topics
from tickrail.core.clock import SystemClock
from tickrail.core.ports_bus import (
    Assignment,
    Consumer,
    Delivery,
    MessageTooLargeError,
    Position,
    Publisher,
    Record,
    UnknownTopicError,
)

PARTITIONS = 4
DEADLINE = 30.0
CLOCK = SystemClock()


@dataclass
class Bus:
    """One adapter, ready for use."""

    create: Callable[[str], None]
    delete: Callable[[str], None]
    publisher: Callable[[], Publisher]
    consumer: Callable[[str], Consumer]
    prefix: str
    moved: int = 2
    """Of four partitions, how many a member gives up (for a moment) for a second one."""


@pytest.fixture(
    params=[
        "memory",
        pytest.param("roundrobin", marks=pytest.mark.integration),
        pytest.param("cooperative-sticky", marks=pytest.mark.integration),
        pytest.param("consumer", marks=pytest.mark.integration),
    ]
)
def bus(request: pytest.FixtureRequest) -> Iterator[Bus]:
    if request.param == "memory":
        memory = MemoryBus()
        yield Bus(
            create=lambda topic: memory.create(topic, PARTITIONS),
            delete=memory.delete,
            publisher=lambda: MemoryPublisher(memory),
            consumer=lambda group: MemoryConsumer(memory, group),
            prefix="m",
        )
        return
    bootstrap = request.getfixturevalue("stack").kafka_bootstrap
    prefix = request.getfixturevalue("topic_prefix").rstrip(".")
    settings = KafkaSettings(bootstrap=bootstrap, group=prefix, topic_prefix=prefix)
    topics = Topics(settings)
    protocol = "consumer" if request.param == "consumer" else "classic"
    how = {"group_protocol": protocol}
    if protocol == "classic":
        how["group_assignor"] = request.param

    def create(topic: str) -> None:
        assert topics.ensure([topic], PARTITIONS) == [topic]

    def delete(topic: str) -> None:
        topics.delete([topic])
        until(lambda: topics.partitions([topic])[topic] == 0)

    yield Bus(
        create=create,
        delete=delete,
        publisher=lambda: KafkaPublisher(settings, CLOCK),
        consumer=lambda group: LaunchConsumer(
            KafkaSettings(
                bootstrap=bootstrap,
                group=f"{prefix}.{group}",
                topic_prefix=prefix,
                session_timeout=6,
                **how,
            ),
            CLOCK,
        ),
        prefix=prefix,
        moved=PARTITIONS if request.param == "roundrobin" else 2,
    )


@dataclass
class Listener:
    """Remembers what it heard; answers `revoked` with `done`."""

    done: list[Position] = field(default_factory=list)
    heard: list[tuple[str, tuple[Assignment, ...]]] = field(default_factory=list)

    def assigned(self, partitions: Sequence[Assignment]) -> None:
        self.heard.append(("assigned", tuple(partitions)))

    def revoked(self, partitions: Sequence[Assignment]) -> Iterable[Position]:
        self.heard.append(("revoked", tuple(partitions)))
        return self.done

    def lost(self, partitions: Sequence[Assignment]) -> None:
        self.heard.append(("lost", tuple(partitions)))


def until(condition: Callable[[], Any], *members: Consumer) -> list[Record]:
    """Poll the members until the condition holds."""
    end = CLOCK.monotonic() + DEADLINE
    records: list[Record] = []
    while not condition():
        assert CLOCK.monotonic() < end, "the condition did not come true in time"
        for member in members:
            records += member.poll(100, 0.05)
    return records


def gather(member: Consumer, count: int) -> list[Record]:
    """Poll until so many records have come."""
    records: list[Record] = []
    until(lambda: records.extend(member.poll(100, 0.1)) or len(records) >= count)
    return records


def silent(member: Consumer) -> list[Record]:
    """What comes when nothing should; a few polls keep the membership going."""
    return [record for _ in range(5) for record in member.poll(100, 0.1)]


def send(bus: Bus, topic: str, values: Sequence[bytes], partition: int = 0) -> list[Delivery]:
    publisher = bus.publisher()
    for i, value in enumerate(values):
        assert publisher.publish(topic, partition, b"key", value, [("name", b"x")], i)
    reports = publisher.flush(DEADLINE)
    publisher.close(1)
    return reports


def member(bus: Bus, topic: str, group: str = "g") -> tuple[Consumer, Listener]:
    consumer, listener = bus.consumer(group), Listener()
    consumer.subscribe([topic], listener)
    return consumer, listener


@pytest.fixture
def topic(bus: Bus) -> str:
    name = f"{bus.prefix}.launch.default.normal"
    bus.create(name)
    return name


def after(record: Record) -> Position:
    return Position(record.topic, record.partition, record.generation, record.offset + 1)


def test_every_message_taken_is_reported_once_with_its_offset(bus: Bus, topic: str) -> None:
    reports = send(bus, topic, [b"a", b"b", b"c"])
    assert sorted((r.token, r.error, r.offset) for r in reports) == [
        (0, None, 0),
        (1, None, 1),
        (2, None, 2),
    ]


def test_a_report_says_where_the_message_landed_also_where_the_key_chose(
    bus: Bus, topic: str
) -> None:
    publisher = bus.publisher()
    for token, (partition, key) in enumerate([(2, b"a"), (-1, b"a"), (-1, b"a"), (-1, None)]):
        assert publisher.publish(topic, partition, key, b"v", None, token)
    reports = {r.token: r for r in publisher.flush(DEADLINE)}
    publisher.close(1)
    assert [reports[n].error for n in range(4)] == [None] * 4
    assert reports[0].partition == 2
    assert reports[1].partition == reports[2].partition
    landed = sorted((r.partition, r.offset) for r in reports.values())
    assert len(set(landed)) == 4
    assert all(0 <= partition < PARTITIONS and offset >= 0 for partition, offset in landed)


def test_outstanding_counts_what_was_not_handed_out(bus: Bus, topic: str) -> None:
    publisher = bus.publisher()
    for i in range(5):
        publisher.publish(topic, i % PARTITIONS, b"k", b"v", None, i)
    assert publisher.outstanding == 5
    got: list[Delivery] = []
    until(lambda: got.extend(publisher.poll(0.1)) or len(got) == 5)
    assert publisher.outstanding == 0
    assert publisher.close(1) == []


def test_a_too_large_message_is_reported_and_stops_no_other(bus: Bus, topic: str) -> None:
    reports = send(bus, topic, [b"x" * 2_000_000, *[b"small"] * 10])
    assert len(reports) == 11
    (bad,) = [r for r in reports if r.error]
    assert bad.token == 0
    assert isinstance(bad.error, MessageTooLargeError)
    assert bad.error.permanent


def test_a_missing_topic_is_reported_and_stops_no_other(bus: Bus, topic: str) -> None:
    publisher = bus.publisher()
    publisher.publish(f"{bus.prefix}.none", 0, b"k", b"v", None, "bad")
    publisher.publish(topic, 0, b"k", b"v", None, "good")
    reports = {r.token: r.error for r in publisher.flush(DEADLINE)}
    assert reports["good"] is None
    assert isinstance(reports["bad"], UnknownTopicError)
    assert not reports["bad"].permanent
    publisher.close(1)


def test_a_missing_partition_is_reported(bus: Bus, topic: str) -> None:
    (report,) = send(bus, topic, [b"v"], partition=PARTITIONS + 7)
    assert isinstance(report.error, UnknownTopicError)


def test_a_new_group_starts_at_the_earliest_message_in_order(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1", b"2", b"3"])
    consumer, listener = member(bus, topic)
    records = gather(consumer, 3)
    assert [(r.partition, r.offset, r.value) for r in records] == [
        (0, 0, b"1"),
        (0, 1, b"2"),
        (0, 2, b"3"),
    ]
    assigned = {(a.partition, a.generation) for _, found in listener.heard for a in found}
    assert (0, records[0].generation) in assigned
    assert set(consumer.assignments) == {a for _, found in listener.heard for a in found}
    consumer.close()


def test_a_record_has_the_context_of_its_publication(bus: Bus, topic: str) -> None:
    publisher = bus.publisher()
    for headers in ([("a", b"b"), ("traceparent", b"00-ab-cd-01")], None, [("other", b"x")]):
        assert publisher.publish(topic, 0, b"k", b"v", headers, None)
    assert len(publisher.flush(DEADLINE)) == 3
    consumer, _ = member(bus, topic)
    assert [r.traceparent for r in gather(consumer, 3)] == ["00-ab-cd-01", None, None]
    consumer.close()
    publisher.close(DEADLINE)


def test_a_poll_returns_at_most_what_was_asked_for(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"%d" % i for i in range(10)])
    consumer, _ = member(bus, topic)
    sizes: list[int] = []
    until(lambda: sizes.append(len(consumer.poll(3, 0.1))) or sum(sizes) == 10)
    assert max(sizes) <= 3
    consumer.close()


def test_the_next_member_goes_on_after_what_was_committed(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1", b"2", b"3"])
    consumer, _ = member(bus, topic)
    consumer.commit([after(gather(consumer, 3)[1])])
    consumer.close()
    second, _ = member(bus, topic)
    assert [r.value for r in gather(second, 1)] == [b"3"]
    second.close()


def test_close_commits_what_the_listener_says_is_done(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1", b"2"])
    consumer, listener = member(bus, topic)
    listener.done = [after(gather(consumer, 2)[0])]
    consumer.close()
    assert listener.heard[-1][0] == "revoked"
    second, _ = member(bus, topic)
    assert [r.value for r in gather(second, 1)] == [b"2"]
    second.close()


def test_a_position_of_another_generation_is_dropped(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1", b"2"])
    consumer, _ = member(bus, topic)
    last = gather(consumer, 2)[-1]
    consumer.commit([Position(last.topic, last.partition, last.generation + 1000, 2)])
    consumer.close()
    second, _ = member(bus, topic)
    assert [r.value for r in gather(second, 2)] == [b"1", b"2"]
    second.close()


def test_a_paused_partition_is_silent_and_resumes_where_it_stopped(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1"])
    consumer, _ = member(bus, topic)
    gather(consumer, 1)
    held = [a for a in consumer.assignments if a.partition == 0]
    consumer.pause(held)
    send(bus, topic, [b"2"])
    send(bus, topic, [b"other"], partition=1)
    assert [r.value for r in gather(consumer, 1)] == [b"other"]
    assert silent(consumer) == []
    consumer.resume(held)
    assert [r.value for r in gather(consumer, 1)] == [b"2"]
    consumer.close()


def test_a_second_member_takes_its_share_and_no_message_is_lost(bus: Bus, topic: str) -> None:
    first, heard = member(bus, topic)
    until(lambda: len(first.assignments) == PARTITIONS, first)
    for p in range(PARTITIONS):
        send(bus, topic, [b"old-%d" % p], partition=p)
    old = gather(first, PARTITIONS)
    heard.done = [after(r) for r in old]
    second, _ = member(bus, topic)
    late = until(lambda: len(second.assignments) == len(first.assignments) == 2, first, second)
    assert late == []
    revoked = [a for what, found in heard.heard if what == "revoked" for a in found]
    assert len(revoked) == bus.moved
    for p in range(PARTITIONS):
        send(bus, topic, [b"new-%d" % p], partition=p)
    records: list[Record] = []
    until(lambda: records.extend(first.poll(10, 0.1) + second.poll(10, 0.1)) or len(records) >= 4)
    assert sorted(r.value for r in records) == [b"new-%d" % p for p in range(PARTITIONS)]
    # What belongs to a partition that went is dropped without an error.
    first.commit([Position(a.topic, a.partition, a.generation, 0) for a in revoked])
    first.close()
    until(lambda: len(second.assignments) == PARTITIONS, second)
    second.close()


def test_a_pause_does_not_outlive_the_assignment(bus: Bus, topic: str) -> None:
    first, heard = member(bus, topic)
    until(lambda: len(first.assignments) == PARTITIONS, first)
    paused = list(first.assignments)
    first.pause(paused)
    second, _ = member(bus, topic)
    until(lambda: len(second.assignments) == len(first.assignments) == 2, first, second)
    second.close()
    until(lambda: len(first.assignments) == PARTITIONS, first)
    again = [a for a in first.assignments if a not in paused]
    assert len(again) == bus.moved, heard.heard
    first.resume([a for a in paused if a not in first.assignments])  # over: ignored
    for a in again:
        send(bus, topic, [b"x"], partition=a.partition)
    assert {r.partition for r in gather(first, bus.moved)} == {a.partition for a in again}
    first.close()


def test_a_topic_made_anew_unnoticed_is_read_under_a_new_assignment(bus: Bus, topic: str) -> None:
    send(bus, topic, [b"1", b"2", b"3"])
    consumer, listener = member(bus, topic)
    records = gather(consumer, 3)
    old = records[-1].generation
    bus.delete(topic)
    bus.create(topic)
    listener.heard.clear()
    send(bus, topic, [b"new"])
    (new,) = gather(consumer, 1)
    assert (new.value, new.offset) == (b"new", 0)
    assert new.generation != old
    assert Assignment(topic, 0, old) not in consumer.assignments
    assert Assignment(topic, 0, new.generation) in consumer.assignments
    told = [
        kind for kind, partitions in listener.heard if (topic, 0) in {p[:2] for p in partitions}
    ]
    assert told in (["lost", "assigned"], ["revoked", "assigned"])
    consumer.commit([after(records[-1])])  # of the old topic: it must not hide what comes
    consumer.commit([after(new)])
    consumer.close()
    send(bus, topic, [b"2"])
    other, _ = member(bus, topic)
    assert [r.value for r in gather(other, 1)] == [b"2"]
    other.close()


def test_a_consumer_belongs_to_one_thread(bus: Bus, topic: str) -> None:
    consumer, _ = member(bus, topic)
    refused: list[str] = []

    def meddle() -> None:
        for call in (
            lambda: consumer.poll(1, 0),
            lambda: consumer.commit([]),
            lambda: consumer.pause([]),
            lambda: consumer.resume([]),
            consumer.close,
        ):
            with pytest.raises(RuntimeError, match="belongs to the thread"):
                call()
            refused.append("refused")

    thread = threading.Thread(target=meddle)
    thread.start()
    thread.join()
    assert len(refused) == 5
    consumer.close()


def test_a_missing_topic_is_told_and_read_once_it_is_there(bus: Bus) -> None:
    name = f"{bus.prefix}.later"
    consumer, _ = member(bus, name)
    until(lambda: consumer.trouble is not None, consumer)
    assert isinstance(consumer.trouble, UnknownTopicError)
    assert consumer.trouble.topic == name
    bus.create(name)
    send(bus, name, [b"1"])
    assert [r.value for r in gather(consumer, 1)] == [b"1"]
    assert consumer.trouble is None
    consumer.close()

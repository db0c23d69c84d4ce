"""The kafka target's executor on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from tests.support.runs import Outcomes, make_run
from tests.support.servers import Servers
from tests.support.until import until

from tickrail.bus.config import KafkaSettings
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.targets import target_settings
from tickrail.bus.topics import Topics
from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome, Run
from tickrail.core.sharding import murmur2
from tickrail.executors.kafka import KafkaExecutor
from tickrail.executors.kafka_message import KafkaTargetSettings

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
PARTITIONS = 4


@dataclass
class Bed:
    settings: KafkaSettings
    topic: str
    outcomes: Outcomes = field(default_factory=Outcomes)

    def __post_init__(self) -> None:
        publisher = KafkaPublisher(target_settings(self.settings), CLOCK, "targets")
        own = KafkaTargetSettings(prefix="tickrail-own")
        self.executor = KafkaExecutor(lambda: publisher, lambda _: ["*"], CLOCK, own)

    def start(self, **target: Any) -> Run:
        run = make_run({"kafka": {"topic": self.topic, **target}})
        self.executor.start(run, self.outcomes.done)
        return run

    def of(self, **target: Any) -> Outcome:
        return self.outcomes.of(self.start(**target))

    def read(self, count: int) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "group.id": self.topic,
                "auto.offset.reset": "earliest",
            }
        )
        found: list[Message] = []
        try:
            consumer.subscribe([self.topic])
            until(lambda: found.extend(consumer.consume(100, 0.2)) or len(found) >= count, 60)
        finally:
            consumer.close()
        return found


@pytest.fixture
def bed(stack: Servers, topic_prefix: str) -> Iterator[Bed]:
    settings = KafkaSettings(bootstrap=stack.kafka_bootstrap)
    topic = f"{topic_prefix}target"
    Topics(settings).ensure([topic], PARTITIONS)
    made = Bed(settings, topic)
    yield made
    made.executor.close(0.0)


def test_messages_arrive_whole_and_the_place_is_where_they_are(bed: Bed) -> None:
    keys = [f"order-{n}" for n in range(8)]
    runs = [bed.start(key=key, headers={"of": key}, value={"key": key}) for key in keys]
    runs.append(bed.start(partition=3))
    outcomes = [bed.outcomes.of(run) for run in runs]
    assert [o.outcome for o in outcomes] == ["ok"] * 9
    landed = {(m.partition(), m.offset()): m for m in bed.read(9)}
    assert len(landed) == 9
    for run, outcome in zip(runs, outcomes, strict=True):
        assert outcome.place is not None
        assert outcome.place["topic"] == bed.topic
        message = landed[(outcome.place["partition"], outcome.place["offset"])]  # type: ignore[index]
        headers = dict(message.headers() or [])
        assert headers["Idempotency-Key"] == str(run.launch_id).encode()
        assert headers["Fencing-Token"] == str(run.claim).encode()
        if key := message.key():
            assert headers["of"] == key
            # The partition that Kafka's own clients would choose.
            assert message.partition() == (murmur2(key) & 0x7FFFFFFF) % PARTITIONS
        else:
            assert message.partition() == 3
            assert message.value() == b'{"dry":false}'


def test_what_cannot_arrive_is_certain_and_makes_no_topic(bed: Bed) -> None:
    missing = bed.of(topic=f"{bed.topic}-none")
    assert (missing.outcome, missing.certain, missing.retryable) == ("topic_missing", True, True)
    beyond = bed.of(partition=PARTITIONS)
    assert (beyond.outcome, beyond.certain, beyond.retryable) == ("topic_missing", True, True)
    large = bed.of(value="x" * 1_100_000)
    assert (large.outcome, large.certain, large.retryable) == ("too_large", True, False)
    assert bed.of(value="small").ok
    assert Topics(bed.settings).partitions([f"{bed.topic}-none"]) == {f"{bed.topic}-none": 0}
    # What was missing is used as soon as somebody has made it.
    Topics(bed.settings).ensure([f"{bed.topic}-none"], 1)
    until(lambda: bed.of(topic=f"{bed.topic}-none").ok, 60)


def test_brokers_that_do_not_answer_are_uncertain_in_time(bed: Bed) -> None:
    nobody = KafkaSettings(bootstrap="127.0.0.1:1")
    publisher = KafkaPublisher(target_settings(bed.settings, nobody.bootstrap), CLOCK, "nobody")
    own = KafkaTargetSettings(prefix="tickrail-own")
    executor = KafkaExecutor(lambda: publisher, lambda _: ["*"], CLOCK, own)
    run = make_run({"kafka": {"topic": bed.topic}}, timeout=0.5)
    executor.start(run, bed.outcomes.done)
    outcome = bed.outcomes.of(run)
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("timed_out", False, True)
    executor.close(0.0)

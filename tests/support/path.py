"""The whole path on the real PostgreSQL and Kafka, its loops turned by the test."""

from __future__ import annotations

from datetime import datetime

from confluent_kafka import Consumer, Message, TopicPartition
from tests.support.stepped import Counted, HandExecutor
from tests.support.store_bed import EPOCH, OWNED, PostgresBed, make_job
from tests.support.until import until

from tickrail.bus.codec import (
    decode_launch,
    encode_dead_letter,
    encode_launch,
    encode_undecodable,
)
from tickrail.bus.config import KafkaSettings
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import (
    PRIORITIES,
    Topics,
    dlq_topic,
    launch_topic,
    queue_topics,
    retry_topic,
    work_topics,
)
from tickrail.core.clock import SystemClock
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch, JobId, LaunchId
from tickrail.core.ports import OwedLetter, Publication
from tickrail.engine.deadletters import LetterBox, RawBox
from tickrail.engine.intake import Intake, IntakeSettings
from tickrail.engine.reaper import Reaper
from tickrail.engine.relay import Relay, RelaySettings, Route
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.engine.tick import Tick

CLOCK = SystemClock()
PARTITIONS = 4
QUEUE = "default"


class Path:
    """One owner and one worker, no threads of their own."""

    def __init__(self, bed: PostgresBed, bootstrap: str, prefix: str) -> None:
        self.bed, self.prefix = bed, prefix
        self.kafka = KafkaSettings(
            bootstrap=bootstrap, group=prefix, topic_prefix=prefix, session_timeout=6
        )
        self.topics = Topics(self.kafka)
        self.topics.ensure(queue_topics(prefix, QUEUE), PARTITIONS)
        self.metrics = Counted()
        self.owned = dict(OWNED)
        self.executor = HandExecutor(answer=lambda _run: SUCCESS)
        self.worker = bed.worker()
        self.dead = KafkaPublisher(self.kafka, CLOCK, "dead")
        self.raw = KafkaPublisher(self.kafka, CLOCK, "undecodable")
        self._closers = [self.dead, self.raw]
        self.new_owner()
        self.new_worker()

    def new_owner(self, epoch: Epoch = EPOCH) -> None:
        """Another owner process; the old one's memory is gone."""
        self.owned = dict.fromkeys(OWNED, epoch)
        for partition in self.owned:
            self.bed.set_epoch(partition, epoch)
        self.store = self.bed.owner()
        self.publisher = KafkaPublisher(self.kafka, CLOCK, "relay")
        self._closers.append(self.publisher)
        self.tick = Tick(self.store, self.metrics)
        self.relay = Relay(
            self.store, self.publisher, self._route, encode_launch, CLOCK, self.metrics,
            RelaySettings(PARTITIONS),
        )  # fmt: skip
        self.reaper = Reaper(self.store, CLOCK, self.metrics)

    def new_worker(self) -> None:
        self.consumer = LaunchConsumer(self.kafka, CLOCK)
        box = LetterBox(self.dead, lambda q: dlq_topic(self.prefix, q), encode_dead_letter)

        raw = RawBox(
            self.raw, lambda _topic: QUEUE, lambda q: dlq_topic(self.prefix, q),
            encode_undecodable, self.worker.keep_undecodable,
        )  # fmt: skip

        def post(owed: list[OwedLetter]) -> list[tuple[LaunchId, datetime, int]]:
            return box.post(owed, 10.0)

        self.runs = Runs(
            self.worker, [self.executor], CLOCK, self.metrics, RunsSettings(),
            offset_done=lambda place, offset: self.intake.offset_done(place, offset),  # noqa: PLW0108 - made below
            letters=post,
        )  # fmt: skip
        self.intake = Intake(
            self.consumer, self.worker, self.runs, CLOCK, self.metrics,
            IntakeSettings("w-1", work_topics(self.prefix, QUEUE), concurrency=50),
            decode=decode_launch, bury=raw.bury,
        )  # fmt: skip

    def _route(self, p: Publication) -> Route:
        if p.attempt > 1:
            return Route(retry_topic(self.prefix, p.queue), p.partition)
        topic = launch_topic(self.prefix, p.queue, PRIORITIES[p.priority])
        return Route(topic, p.partition)

    def owner_turn(self) -> None:
        ticked = self.tick.run_once(self.owned)
        self.relay.accept(ticked.inserted, ticked.now)
        self.relay.wake()
        self.relay.run_once(self.owned, 0.005)

    def worker_turn(self) -> None:
        self.intake.run_once(0.01)
        self.runs.finish_once(0.0)

    def until_states(self, wanted: dict[str, int], seconds: float = 60) -> None:
        """Turn everything until the launches are in these states."""

        def there() -> bool:
            self.owner_turn()
            self.worker_turn()
            return self.states() == wanted

        until(there, seconds)

    def states(self) -> dict[str, int]:
        rows = self.bed.conn.execute("select state, count(*) from launches group by 1").fetchall()
        return dict(rows)  # type: ignore[arg-type]

    def jobs(self, count: int, **definition: object) -> list[JobId]:
        """One-off jobs that are due now, over all partitions."""
        now = self.bed.now()
        slot = {"at": now.replace(microsecond=0).isoformat()}
        return [
            make_job(
                self.bed, due_in=-60, partition=list(OWNED)[n % 4], schedule=slot,
                overlap="allow", **definition,
            )
            for n in range(count)
        ]  # fmt: skip

    def letters(self) -> list[Message]:
        """Everything in the dead letter topic."""
        topic = dlq_topic(self.prefix, QUEUE)
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "reader"})
        try:
            places = [TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
            wanted = sum(consumer.get_watermark_offsets(p, timeout=20)[1] for p in places)
            consumer.assign(places)
            found: list[Message] = []
            while len(found) < wanted:
                message = consumer.poll(20)
                assert message is not None
                assert message.error() is None
                found.append(message)
            return found
        finally:
            consumer.close()

    def stop(self) -> None:
        self.intake.close_intake()
        self.intake.finish()
        for one in self._closers:
            one.close(1.0)

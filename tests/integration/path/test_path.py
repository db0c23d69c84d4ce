"""The whole path on the real PostgreSQL and Kafka, its loops turned by the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from tests.support.servers import Servers, delete_topics
from tests.support.stepped import Counted, HandExecutor, failure
from tests.support.store_bed import EPOCH, OWNED, PostgresBed, make_job
from tests.support.until import until

from tickrail.bus.codec import decode_launch, encode_dead_letter, encode_launch
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
from tickrail.core.messages import UndecodableLetter
from tickrail.core.ports import OwedLetter, Publication
from tickrail.core.states import State
from tickrail.engine.deadletters import LetterBox
from tickrail.engine.intake import Intake, IntakeSettings
from tickrail.engine.reaper import Reaper
from tickrail.engine.relay import Relay, RelaySettings, Route
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.engine.tick import Tick

pytestmark = pytest.mark.integration

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
        self._closers = [self.dead]
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
            decode=decode_launch, bury=self._bury,
        )  # fmt: skip

    def _route(self, p: Publication) -> Route:
        if p.attempt > 1:
            return Route(retry_topic(self.prefix, p.queue), p.partition)
        topic = launch_topic(self.prefix, p.queue, PRIORITIES[p.priority])
        return Route(topic, p.partition)

    def _bury(self, letter: UndecodableLetter) -> None:
        raise AssertionError(letter)

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

    def stop(self) -> None:
        self.intake.close_intake()
        self.intake.finish()
        for one in self._closers:
            one.close(1.0)


@pytest.fixture
def path(bed: PostgresBed, stack: Servers, topic_prefix: str) -> Iterator[Path]:
    made = Path(bed, stack.kafka_bootstrap, topic_prefix.rstrip("."))
    yield made
    made.stop()


def runs_of(path: Path) -> Counter[tuple[object, int]]:
    return Counter((r.launch_id, r.attempt) for r in path.executor.started)


def test_each_due_job_runs_once_and_every_offset_is_committed(path: Path) -> None:
    path.jobs(200)
    path.until_states({"succeeded": 200})
    assert len(path.executor.started) == 200
    assert set(runs_of(path).values()) == {1}
    path.stop()
    # A worker that comes after finds nothing to read again.
    path.new_worker()
    for _ in range(100):
        path.worker_turn()
    assert path.metrics.counts[("claims_total", "ended")] == 0
    assert len(path.executor.started) == 200


def test_a_failing_launch_is_tried_again_when_it_is_due_and_dies_after_its_attempts(
    path: Path,
) -> None:
    path.executor.answer = lambda _run: failure()
    retry = {"max_attempts": 3, "initial": "300ms", "multiplier": 2, "jitter": 0}
    (job,) = path.jobs(1, retry=retry)
    path.until_states({"dead": 1})
    assert sorted(n for _, n in runs_of(path)) == [1, 2, 3]
    rows = path.bed.conn.execute(
        "select started_at, finished_at from attempts order by attempt"
    ).fetchall()
    waits = [(b[0] - a[1]).total_seconds() for a, b in pairwise(rows)]  # type: ignore[operator]
    for wait, least in zip(waits, (0.3, 0.6), strict=True):
        assert least <= wait < least + 1
    (launch,) = path.bed.launches(job)
    assert (launch.state, launch.attempt, launch.dlq_owed) == (State.DEAD, 3, False)


def test_owners_that_die_before_their_mark_publish_twice_and_nothing_runs_twice(
    path: Path,
) -> None:
    path.jobs(50)
    path.tick.run_once(path.owned)
    for n in range(3):
        path.relay.wake()
        path.relay.run_once(path.owned)
        until(lambda: not path.publisher.outstanding or path.publisher.poll(0.05) is None, 10)
        path.new_owner(Epoch(EPOCH + 1 + n))
    path.until_states({"succeeded": 50})
    assert len(path.executor.started) == 50
    assert set(runs_of(path).values()) == {1}
    assert path.metrics.counts[("relay_published_total",)] >= 100


def test_a_worker_that_dies_leaves_its_runs_to_the_reaper(path: Path) -> None:
    path.executor.answer = None
    path.jobs(10, retry={"initial": "10ms", "jitter": 0})
    path.until_states({"running": 10})
    path.consumer.close()  # and nothing of it is heard again
    path.bed.advance(31)
    assert path.reaper.run_once(path.owned).moved == 10
    path.executor = HandExecutor(answer=lambda _run: SUCCESS)
    path.new_worker()
    path.until_states({"succeeded": 10})
    assert {n for _, n in runs_of(path)} == {2}


def test_messages_that_kafka_lost_are_published_again(path: Path, stack: Servers) -> None:
    path.jobs(20)
    path.tick.run_once(path.owned)
    until(lambda: path.owner_turn() or path.states() == {"queued": 20}, 30)
    path.intake.close_intake()
    path.intake.finish()
    delete_topics(stack.kafka_bootstrap, f"{path.prefix}.launch")
    until(lambda: not path.topics.named(f"{path.prefix}.launch"), 30)
    until(lambda: _made_again(path), 30, every=0.2)
    path.new_worker()
    path.bed.advance(301)
    swept = path.store.sweep(path.owned, timedelta(minutes=5), 100)
    assert swept.moved == {"lost_message": 20}
    path.until_states({"succeeded": 20}, 90)
    assert set(runs_of(path).values()) == {1}
    assert {n for _, n in runs_of(path)} == {1}


def _made_again(path: Path) -> bool:
    path.topics.ensure(queue_topics(path.prefix, QUEUE), PARTITIONS)
    return len(path.topics.named(f"{path.prefix}.launch")) == len(PRIORITIES)

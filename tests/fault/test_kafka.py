"""Kafka deleted, truncated, frozen, killed and cut off under traffic, judged by the checker.

Postgres is the truth and a message only a nudge: whatever becomes of messages, each slot is
launched once, and what was published in vain is published again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.fault.history import Effects, install
from tests.fault.traffic import Traffic
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.until import pause, until

from tickrail.bus.config import KafkaSettings
from tickrail.bus.topics import Topics, launch_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = launch_topic("tickrail", "default", "normal")
LOST_AFTER = 3.0
SESSION_TIMEOUT = 10.0
"""After so long without a sign of life the group drops a worker (the default)."""
RESUMES_WITHIN = 10.0
"""After a broker is back."""


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Installation, Effects]]:
    environment = {
        "TICKRAIL_WORKER_TARGETS": "noop,webhook,kafka",
        "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
        "TICKRAIL_LOST_AFTER": str(LOST_AFTER),
    }
    with (
        Effects() as effects,
        installation(
            environment=environment, prepare=install, proxied={"worker-2": ["kafka"]}
        ) as found,
    ):
        until(lambda: found.query("select 1 from partitions where epoch = 0") == [], 60, 0.1)
        until(lambda: all(s.ready() for s in found.services.values()), 60, 0.1)
        yield found, effects


@pytest.fixture
def traffic(
    running: tuple[Installation, Effects], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Traffic]:
    found, effects = running
    yield Traffic(found, effects, tmp_path, request.node.name)
    found.pause_jobs()


def goes_on(found: Installation, what: str, seconds: float) -> float:
    """Wait until launches of slots from now on are published, or started; how long that took.

    `what`: `queued_at` or `started_at`.
    """
    now = CLOCK.now()
    seen = f"select 1 from launches where scheduled_at >= %s and {what} is not null limit 1"
    return until(lambda: found.query(seen, now), seconds, 0.05)


def runs_there(found: Installation) -> None:
    """Wait until worker-2 starts what is due from now on: it has partitions."""
    now = CLOCK.now()
    seen = "select 1 from launches where worker = 'worker-2' and started_at > %s limit 1"
    until(lambda: found.query(seen, now), 60, 0.1)


def ready(service: Service, seconds: float) -> None:
    """Wait until a service says that nothing is missing; at the deadline, say what is."""
    try:
        until(service.ready, seconds, 0.1)
    except AssertionError:
        said = [line for line in service.lines() if line["level"] != "debug"][-30:]
        raise AssertionError(f"{service.name} lacks {service.problems()}; it said {said}") from None


def test_a_deleted_topic_is_named_and_read_on_when_it_is_there_again(traffic: Traffic) -> None:
    """What was in it is published again under the same attempt (D-21)."""
    found = traffic.found
    topics = Topics(KafkaSettings(bootstrap=found.stack.addresses.kafka_bootstrap))
    count = topics.partitions([TOPIC])[TOPIC]
    topics.delete([TOPIC])
    traffic.history.fault("topic_deleted", "kafka")
    until(lambda: topics.partitions([TOPIC]) == {TOPIC: 0}, 30, 0.1)
    workers = [s for s in found.services.values() if s.kind == "worker"]
    until(lambda: any(TOPIC in s.problems().get("kafka", "") for s in workers), 30, 0.1)
    schedulers = [s for s in found.services.values() if s.kind == "scheduler"]
    until(lambda: any(TOPIC in s.problems().get("queue default", "") for s in schedulers), 30, 0.1)
    until(lambda: topics.ensure([TOPIC], count) == [TOPIC], 30, 0.1)
    traffic.history.fault("topic_made", "kafka")
    goes_on(found, "started_at", 60)
    until(lambda: all(s.ready() for s in (*workers, *schedulers)), 60, 0.1)
    assert traffic.judge().doubled == []


def test_truncated_records_are_published_again(traffic: Traffic) -> None:
    found = traffic.found
    bootstrap = found.stack.addresses.kafka_bootstrap
    before = found.metric("scheduler", "messages_lost_total")
    for name in ("worker-1", "worker-2"):
        assert found.services[name].end() == 0
    waiting = "select count(*) from launches where state = 'queued'"
    until(lambda: found.query(waiting)[0][0] >= len(traffic.jobs), 30, 0.05)
    assert truncate(bootstrap, TOPIC) > 0
    traffic.history.fault("truncated", "kafka")
    until(lambda: found.metric("scheduler", "messages_lost_total") > before, 30, 0.1)
    for name in ("worker-1", "worker-2"):
        found.services[name].start()
    judgement = traffic.judge()
    assert judgement.doubled == []


def truncate(bootstrap: str, topic: str) -> int:
    """Delete all records of a topic; how many there were."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "truncates"})
    try:
        ends = []
        count = 0
        for partition in admin.list_topics(topic, timeout=30).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            ends.append(TopicPartition(topic, partition, high))
            count += high - low
    finally:
        consumer.close()
    for future in admin.delete_records(ends, operation_timeout=30).values():
        future.result(timeout=30)
    return count


def test_a_broker_that_freezes_and_dies_under_load_costs_time_alone(traffic: Traffic) -> None:
    """Launch records go on, no ownership moves; the relay goes on within 10 s (D-17, D-27)."""
    found = traffic.found
    kafka = found.stack.kafka
    before = found.query("select partition, epoch, owner from partitions order by 1")
    kafka.freeze()
    traffic.history.fault("freeze", "kafka")
    pause(SESSION_TIMEOUT)
    traffic.goes_on(10)
    kafka.thaw()
    assert goes_on(found, "queued_at", 60) <= RESUMES_WITHIN
    goes_on(found, "started_at", 60)
    kafka.kill()
    traffic.history.fault("kill", "kafka")
    assert not kafka.alive
    traffic.goes_on(10)
    kafka.restart()
    assert goes_on(found, "queued_at", 60) <= RESUMES_WITHIN
    # The broker remembers the members that the workers were, and waits for them first.
    goes_on(found, "started_at", 60)
    assert found.query("select partition, epoch, owner from partitions order by 1") == before
    judgement = traffic.judge()
    assert judgement.doubled == []


def test_a_worker_cut_off_from_kafka_is_replaced_and_comes_back(traffic: Traffic) -> None:
    """It is thrown out of the group; the other one reads everything until it may join again."""
    found = traffic.found
    worker, proxy = found.services["worker-2"], found.proxy("worker-2", "kafka")
    runs_there(found)  # in the group: after a broker's restart the other one may be alone in it
    proxy.blackhole()
    traffic.history.fault("blackhole", "kafka")
    until(lambda: not worker.ready(), 6 * SESSION_TIMEOUT, 0.1)
    until(lambda: traffic.said("worker-1", "partitions_assigned"), 6 * SESSION_TIMEOUT, 0.1)
    goes_on(found, "started_at", 30)
    proxy.heal()
    ready(worker, 60)
    runs_there(found)
    judgement = traffic.judge()
    assert judgement.doubled == []

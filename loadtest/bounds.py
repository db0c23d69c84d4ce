"""What PostgreSQL and Kafka do alone, on the same machine and servers, with nothing else running.

PostgreSQL: launch records inserted a thousand by a transaction into a table with the columns and
indexes of `launches`, and then moved to `queued`, `running` and `succeeded`: the writes that every
launch costs, without a network, a lock, a job or a line of Python. Kafka: messages of the size of a
launch's, acknowledged by all replicas, to a topic of 16 partitions, and read again. No path through
both can be faster than they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from uuid import uuid4

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from loadtest.bed import CLOCK, percentiles

BATCH = 1000
PARTITIONS = 16
SIZE = 300
"""Bytes of a message; a launch's has about as many."""
SINGLES = 300
"""Commits and messages that are waited for one by one."""
WITHIN = 60.0

TABLE = "create table bare (like launches including defaults including indexes)"
INSERT = """
insert into bare (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, epoch)
select gen_random_uuid(), now(), %(tenant)s, gen_random_uuid(), 1, n %% 64, 'default', 1,
  'schedule', 'due', 1, 5, true, 30, now(), 1
from generate_series(1, %(count)s) n
returning id
"""
MOVES = (
    (
        "update bare set state = 'queued', phase = 2, queued_at = now(), publications = 1"
        " where id = any(%s)"
    ),
    (
        "update bare set state = 'running', claim = 1, started_at = now(), worker = 'bare',"
        " claim_expires_at = now() where id = any(%s)"
    ),
    (
        "update bare set state = 'succeeded', phase = 3, finished_at = now(),"
        " claim_expires_at = null where id = any(%s)"
    ),
)
SINGLE = "update bare set publications = publications + 1 where id = %s"


@dataclass(frozen=True)
class Bounds:
    """What was measured.

    Attributes:
        launches: launch records a second through all their writes.
        commit_p50: milliseconds of a transaction of one row, from its begin to its commit.
        commit_p99: the same.
        produced: messages a second that were acknowledged.
        consumed: messages a second that were read again.
        message_p50: milliseconds from one message to its acknowledgement, each waited for.
        message_p99: the same.
    """

    launches: float
    commit_p50: float
    commit_p99: float
    produced: float
    consumed: float
    message_p50: float
    message_p99: float

    def document(self) -> dict[str, float]:
        """As JSON."""
        return asdict(self)


def measure(admin: str, kafka: str, count: int) -> Bounds:
    """Measure both with so many launches and messages."""
    launches, commits = postgres(admin, count)
    produced, consumed, messages = through_kafka(kafka, count)
    return Bounds(launches, *_cuts(commits), produced, consumed, *_cuts(messages))


def _cuts(seconds: list[float]) -> tuple[float, float]:
    p50, _, p99, _ = percentiles(sorted(seconds))
    return p50 * 1000, p99 * 1000


def _timed(call: Callable[[], object]) -> float:
    began = CLOCK.monotonic()
    call()
    return CLOCK.monotonic() - began


def postgres(admin: str, count: int) -> tuple[float, list[float]]:
    """Launch records a second, and the seconds of each of some transactions of one row."""
    tenant, last = uuid4(), []
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(TABLE)
        # By id alone, as the batches below find their rows: the key begins with scheduled_at.
        conn.execute("create index on bare (id)")
        conn.execute("checkpoint")
        began = CLOCK.monotonic()
        for _ in range(max(1, count // BATCH)):
            found = conn.execute(INSERT, {"tenant": tenant, "count": BATCH}).fetchall()
            last = [row[0] for row in found]
            for move in MOVES:
                conn.execute(move.encode(), [last])
        seconds = CLOCK.monotonic() - began
        one = last[0]
        commits = [_timed(lambda: conn.execute(SINGLE, [one])) for _ in range(SINGLES)]
        conn.execute("drop table bare")
    return max(1, count // BATCH) * BATCH / seconds, commits


def through_kafka(servers: str, count: int) -> tuple[float, float, list[float]]:
    """Messages a second produced and consumed, and the seconds of each of some single ones."""
    topic = f"bare-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": servers})  # by name: it must outlive its answer
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(WITHIN)
    refused: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    )
    body = b"x" * SIZE
    for partition in range(PARTITIONS):  # connects, and learns who leads
        producer.produce(topic, body, partition=partition)
    producer.flush(WITHIN)
    began = CLOCK.monotonic()
    for n in range(count):
        while True:
            try:
                producer.produce(topic, body, partition=n % PARTITIONS, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.05)
        if not n % BATCH:
            producer.poll(0)
    left = producer.flush(WITHIN)
    produced = count / (CLOCK.monotonic() - began)
    if left or refused:
        raise SystemExit(f"Kafka did not take {left + len(refused)} messages: {refused[:1]}")
    consumed = _consume(servers, topic, count)
    quick = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})

    def one() -> None:
        quick.produce(topic, body, partition=0)
        quick.flush(WITHIN)

    one()  # connects
    return produced, consumed, [_timed(one) for _ in range(SINGLES)]


def _consume(servers: str, topic: str, count: int) -> float:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    began, read = CLOCK.monotonic(), 0
    try:
        while read < count:
            read += sum(m.error() is None for m in consumer.consume(BATCH, 1.0))
            if CLOCK.monotonic() - began > WITHIN:
                raise SystemExit(f"of {count} messages only {read} were read within {WITHIN:g} s")
        return count / (CLOCK.monotonic() - began)
    finally:
        consumer.close()

"""Dead letters on the real PostgreSQL and Kafka: redrives through a worker, messages unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from tests.support.path import CLOCK, PARTITIONS, QUEUE, Path
from tests.support.stepped import failure
from tests.support.store_bed import TENANT
from tests.support.until import pause, until

from tickrail.bus.codec import decode_dead_letter
from tickrail.bus.topics import DLQ_CONFIG, dlq_topic, launch_topic
from tickrail.core.errors import ConflictError
from tickrail.core.ids import LaunchId
from tickrail.engine.redrive import Redrives
from tickrail.store.engine import ApiDatabase
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller

pytestmark = pytest.mark.integration
RETRY = {"max_attempts": 3, "initial": "200ms", "multiplier": 1, "jitter": 0}


@pytest.fixture
def api(path: Path) -> Iterator[ApiDatabase]:
    made = ApiDatabase(DatabaseSettings(path.bed.database.api_url), CLOCK)
    yield made
    made.close()


def redrive(api: ApiDatabase, launch: LaunchId) -> int | None:
    """The redrive count after it; None: refused."""
    try:
        with api.tenant(TENANT, Caller("tests")) as tx:
            return Redrives().redrive(tx, launch, None).redrive_count
    except ConflictError:
        return None


def test_d23_each_life_has_its_attempts_and_of_two_users_one_redrives(
    path: Path, api: ApiDatabase
) -> None:
    path.executor.answer = lambda _run: failure()
    (job,) = path.jobs(1, retry=RETRY)
    path.until_states({"dead": 1})
    (launch,) = path.bed.launches(job)
    assert redrive(api, launch.id) == 1
    path.until_states({"dead": 1})
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda _: redrive(api, launch.id), range(2)))
    assert sorted(answers, key=str) == [2, None]
    path.until_states({"dead": 1})
    calls = [(r.launch_id, r.attempt) for r in path.executor.started]
    assert sorted(calls) == [(launch.id, n) for n in range(1, 10)]
    row = path.bed.row(launch.id)
    assert (row.attempt, row.failures, row.redrive_count) == (9, 3, 2)
    letters = [decode_dead_letter(m.value()) for m in path.letters()]
    assert Counter((x.id.attempt, x.redrive_count) for x in letters) == {
        (3, 0): 1, (6, 1): 1, (9, 2): 1,
    }  # fmt: skip
    assert len(letters[-1].history) in {3, 6, 9}
    path.bed.change_job(job, state="deleted")
    assert redrive(api, launch.id) is None
    assert path.bed.row(launch.id).dead_at is not None


def poison(path: Path, count: int) -> set[str]:
    """So many messages that nobody can read; their ids."""
    topic, made = launch_topic(path.prefix, QUEUE, "normal"), set[str]()
    producer = Producer({"bootstrap.servers": path.kafka.bootstrap})

    def arrived(error: object, message: object) -> None:
        assert error is None
        made.add(f"{topic}/{message.partition()}/{message.offset()}")  # type: ignore[attr-defined]

    for n in range(count):
        producer.produce(topic, b"\xff poison", partition=n % PARTITIONS, on_delivery=arrived)
    producer.flush(20)
    assert len(made) == count
    return made


def test_d25_messages_unread_wait_for_their_dead_letters_and_hold_nobody_up(
    path: Path,
) -> None:
    dlq = dlq_topic(path.prefix, QUEUE)
    path.topics.delete([dlq])
    until(lambda: path.topics.partitions([dlq])[dlq] == 0, 30)
    ids = poison(path, 5)
    path.jobs(20)
    # The others run while the topic is away, and no turn waits for it.
    path.until_states({"succeeded": 20})
    kept = path.bed.conn.execute("select id from undecodable").fetchall()
    assert {row[0] for row in kept} <= ids
    for _ in range(20):
        path.worker_turn()
        pause(0.05)
    assert path.intake._unburied, "their offsets wait"
    # The worker dies before it commits; the next one meets the same messages.
    path.consumer.commit = lambda _positions: None  # type: ignore[method-assign]
    path.intake.revoked = lambda _partitions: []  # type: ignore[method-assign]
    path.topics.ensure([dlq], PARTITIONS, config=DLQ_CONFIG)

    def buried() -> bool:
        path.worker_turn()
        return not path.intake._unburied

    until(buried, 60)
    path.intake.close_intake()
    path.intake.finish()
    path.new_worker()
    unread = path.metrics.counts[("messages_undecodable_total",)]

    def met() -> bool:
        path.worker_turn()
        return path.metrics.counts[("messages_undecodable_total",)] >= unread + 5

    until(met, 60)
    until(buried, 60)
    found = Counter(dict(m.headers() or [])["tickrail-id"].decode() for m in path.letters())
    assert set(found) == ids
    assert max(found.values()) <= 3
    rows = path.bed.conn.execute("select id, value, size, queue from undecodable").fetchall()
    assert {row[0] for row in rows} == ids
    assert {row[1:] for row in rows} == {(b"\xff poison", 8, QUEUE)}

"""The whole path on the real PostgreSQL and Kafka, its loops turned by the test."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest
from tests.support.path import PARTITIONS, QUEUE, Path
from tests.support.servers import Servers, delete_topics
from tests.support.stepped import HandExecutor, failure
from tests.support.store_bed import EPOCH
from tests.support.until import until

from tickrail.bus.topics import PRIORITIES, queue_topics
from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch
from tickrail.core.states import State

pytestmark = pytest.mark.integration


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

"""Backfills on the real PostgreSQL and Kafka: owners that die meanwhile, live slots beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.path.test_path import Path
from tests.support.backfill_bed import backfill_row, make_backfill
from tests.support.servers import Servers
from tests.support.store_bed import EPOCH, OWNED, PostgresBed, make_job
from tests.support.until import until

from tickrail.core.execution import SUCCESS
from tickrail.core.ids import Epoch
from tickrail.core.states import State
from tickrail.engine.backfills import Backfills

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)


class Filled(Path):
    """A path whose owner carries on backfills."""

    def new_owner(self, epoch: Epoch = EPOCH) -> None:
        super().new_owner(epoch)
        self.backfills = Backfills(self.store, self.metrics)

    def owner_turn(self) -> None:
        filled = self.backfills.run_once(self.owned)
        self.relay.accept(filled.inserted, filled.now)
        self.reaper.run_once(self.owned)
        super().owner_turn()

    def turn(self) -> bool:
        self.owner_turn()
        self.worker_turn()
        return True


@pytest.fixture
def path(bed: PostgresBed, stack: Servers, topic_prefix: str) -> Iterator[Filled]:
    made = Filled(bed, stack.kafka_bootstrap, topic_prefix.rstrip("."))
    yield made
    made.stop()


def yesterday(bed: PostgresBed) -> datetime:
    midnight = bed.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=1)


def test_each_slot_runs_once_although_the_owner_changes(path: Filled) -> None:
    start = yesterday(path.bed)
    jobs = [
        make_job(path.bed, partition=p, schedule={"cron": "* * * * *"}, overlap="allow")
        for p in OWNED
    ]
    found = [make_backfill(path.bed, j, start, start + 60 * MINUTE, total=60) for j in jobs]
    for n in range(3):
        until(lambda n=n: path.turn() and len(path.executor.started) >= 30 * (n + 1), 60)
        path.new_owner(Epoch(EPOCH + 1 + n))

    def over() -> bool:
        path.turn()
        return all(backfill_row(path.bed, b).state == "finished" for b in found)

    until(over, 90)
    assert path.states() == {"succeeded": 240}
    slots = Counter((r.job_id, r.scheduled_at) for r in path.executor.started)
    assert set(slots.values()) == {1}
    assert set(slots) == {(j, start + n * MINUTE) for j in jobs for n in range(60)}


def test_live_slots_go_first_and_never_two_at_once(path: Filled) -> None:
    """Overlap skip: a live slot that meets a launch of the backfill waits, and is not lost."""
    start, now = yesterday(path.bed), path.bed.now()
    path.executor.answer = None
    job = make_job(path.bed, schedule={"cron": "0 0 * * *"})
    backfill = make_backfill(
        path.bed, job, start - 5 * 24 * 60 * MINUTE, start, max_open=1, total=5
    )
    until(lambda: path.turn() and path.executor.running, 60)
    slot = now.replace(microsecond=0).isoformat()
    schedule = {"any_of": [{"cron": "0 0 * * *"}, {"at": slot}]}
    after = path.bed.job_row(make_job(path.bed, schedule=schedule)).plan
    path.bed.change_job(job, plan=after, version=1, next_run_at=now.replace(microsecond=0))
    until(lambda: path.turn() and _states_of(path, "schedule") == [State.HELD], 30)
    order = []
    for _ in range(3):
        (run,) = path.executor.running
        order.append(run.scheduled_at)
        path.executor.end(run, SUCCESS)
        until(lambda: path.turn() and path.executor.running, 60)
    # The live slot came as soon as the launch that it met had ended.
    assert order[1] == now.replace(microsecond=0)
    path.executor.answer = lambda _run: SUCCESS
    path.executor.end(None, SUCCESS)
    until(lambda: path.turn() and backfill_row(path.bed, backfill).state == "finished", 60)
    assert path.states() == {"succeeded": 6}
    assert path.bed.skips(job) == []


def _states_of(path: Filled, origin: str) -> list[State]:
    rows = path.bed.conn.execute("select state from launches where origin = %s", [origin])
    return [State(row[0]) for row in rows.fetchall()]  # type: ignore[arg-type]

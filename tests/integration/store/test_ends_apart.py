"""Ends of runs and claims that are kept have connections of their own (E-11)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.database import Database
from tests.support.stepped import Counted, HandExecutor
from tests.support.store_bed import PostgresBed, make_launch, request_of
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.states import State
from tickrail.engine.active import Active
from tickrail.engine.runs import Runs, RunsSettings
from tickrail.store.worker import PostgresWorkerStore

pytestmark = pytest.mark.integration

WITHIN = 5.0
"""Seconds in which all ends are recorded: the bound of E-11."""
CLOCK = SystemClock()


class Busy:
    """Holds the connection of claims, inside of a claim's transaction, until it is let go."""

    def __init__(self) -> None:
        self.armed, self.reached, self.go = (threading.Event() for _ in range(3))

    def written(self, name: str) -> None:
        if name == "claim" and self.armed.is_set():
            self.reached.set()
            self.go.wait(4 * WITHIN)


@pytest.fixture
def bed(database: Database) -> Iterator[PostgresBed]:
    bed = PostgresBed(database)
    yield bed
    bed.close()


def test_e11_twenty_runs_end_together_while_every_claim_connection_is_busy(
    bed: PostgresBed,
) -> None:
    busy, executor, done = Busy(), HandExecutor(), []
    store = PostgresWorkerStore(bed.settings, CLOCK, written=busy.written)
    runs = Runs(
        store, [executor], CLOCK, Counted(), RunsSettings(),
        offset_done=lambda _place, offset: done.append(offset), letters=lambda _owed: [],
    )  # fmt: skip
    ids, one_more = [make_launch(bed) for _ in range(20)], make_launch(bed)
    sent = CLOCK.monotonic()
    answer = store.claim([request_of(bed, x) for x in ids], "w-1")
    for offset, claimed in enumerate(answer.granted):
        runs.start(Active(claimed, sent, ("t", 0, 0), offset))
    assert len(executor.running) == 20
    busy.armed.set()
    claim = threading.Thread(target=store.claim, args=([request_of(bed, one_more)], "w-1"))
    claim.start()
    try:
        until(busy.reached.is_set)
        runs.drain()
        began = CLOCK.monotonic()
        runs.heartbeat_once()  # extensions have their own connection, too
        assert runs.guarded
        for run in list(executor.running):
            executor.end(run)
        while runs.count:
            runs.finish_once()
        took = CLOCK.monotonic() - began
        assert not busy.go.is_set()
        assert claim.is_alive()
        assert took < WITHIN
        assert {bed.row(x).state for x in ids} == {State.SUCCEEDED}
        assert set(done) == set(range(20))
        assert bed.row(one_more).state is State.DUE
    finally:
        busy.go.set()
        claim.join()
        store.close()
    assert bed.row(one_more).state is State.RUNNING

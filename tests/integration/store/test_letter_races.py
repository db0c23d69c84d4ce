"""Redrives and purges of many against everybody else who changes launches: no deadlock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.integration.store.test_races import OPEN, Crowd
from tests.support.at_once import at_once
from tests.support.store_bed import TENANT, PostgresBed, end_of, verdict

from tickrail.core.clock import SystemClock
from tickrail.core.ports_worker import ClaimRequest
from tickrail.core.states import State
from tickrail.engine.letter_operations import LetterWork
from tickrail.engine.operations import Kind, OperationRunner, Operations
from tickrail.store.operations import PostgresOperationQueue
from tickrail.store.tenancy import Caller

pytestmark = pytest.mark.integration
SECONDS = 4.0


def mortal(crowd: Crowd) -> Callable[[], None]:
    """A worker whose runs die, and which publishes what they owe."""
    store, rng, conn = crowd.bed.worker(), random.Random(), crowd._conn()

    def turn() -> None:
        rows = conn.execute(OPEN, [rng.randrange(8)]).fetchall()
        rng.shuffle(rows)
        granted = list(store.claim([ClaimRequest(*row) for row in rows], "w").granted)
        rng.shuffle(granted)
        if granted:
            store.finish([end_of(c, verdict(c, State.DEAD)) for c in granted])
            owed = store.owed([(c.id, c.scheduled_at) for c in granted])
            store.settle([(x.id, x.scheduled_at, x.attempt) for x in owed])

    return turn


def redriver(crowd: Crowd, kind: Kind) -> Callable[[], None]:
    """An API process that redrives or purges."""
    operations = Operations([LetterWork()], SystemClock())
    runner = OperationRunner(PostgresOperationQueue(crowd.api), operations)

    def turn() -> None:
        with crowd.api.tenant(TENANT, Caller("tests")) as tx:
            operations.request(tx, kind, {"filter": {}, "max_count": 200})
        while runner.run_once() == 0.0:
            pass

    return turn


def test_g05_redrives_and_purges_of_many_meet_workers_and_sweepers(bed: PostgresBed) -> None:
    crowd = Crowd(bed)
    bodies = {
        "relay": crowd.relay(),
        "sweeper": crowd.sweeper(),
        **{f"worker {n}": mortal(crowd) for n in range(3)},
        "redriver": redriver(crowd, Kind.REDRIVE),
        "redriver again": redriver(crowd, Kind.REDRIVE),
        "purger": redriver(crowd, Kind.PURGE),
    }
    at_once(bodies, SECONDS)
    crowd.close()
    redriven = bed.value("select count(*) from launches where redrive_count > 0")
    assert redriven > 0
    assert bed.value("select count(*) from launches where redrive_count > attempt - 1") == 0

"""A worker's sign of life."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock
from tests.support.memory_reports import MemoryReportStore
from tests.support.memory_tables import MemoryDatabase

from tickrail.core.errors import UnavailableError
from tickrail.core.ports_reports import WorkerInfo
from tickrail.engine.presence import ABSENT_AFTER, EVERY, FORGET_AFTER, Presence


class World:
    """A worker whose numbers a test sets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.db = MemoryDatabase(self.clock)
        self.store = MemoryReportStore(self.db)
        self.running = 0

    def presence(self, name: str) -> Presence:
        return Presence(
            self.store,
            lambda: WorkerInfo(
                f"{name}-1", name, ("q",), ("noop",), (), "1", 4, self.running, draining=False
            ),
        )


def test_it_tells_what_the_worker_is_now() -> None:
    world = World()
    presence = world.presence("a")
    assert presence.run_once() == EVERY
    world.running = 3
    world.clock.advance(EVERY)
    presence.run_once()
    info, seen = world.store.workers["a-1"]
    assert (info.running, seen) == (3, world.clock.now())


def test_it_leaves_and_the_silent_are_forgotten() -> None:
    world = World()
    silent, there = world.presence("silent"), world.presence("there")
    silent.run_once()
    there.run_once()
    world.clock.advance(FORGET_AFTER.total_seconds() + 1)
    there.run_once()
    assert list(world.store.workers) == ["there-1"]
    there.leave()
    assert world.store.workers == {}


def test_without_a_database_it_says_so_and_leaves_all_the_same() -> None:
    world = World()
    presence = world.presence("a")
    presence.run_once()
    world.db.down = True
    with pytest.raises(UnavailableError):
        presence.run_once()
    presence.leave()
    assert list(world.store.workers) == ["a-1"]


def test_one_missed_sign_of_life_makes_nobody_absent() -> None:
    assert FORGET_AFTER > ABSENT_AFTER
    assert ABSENT_AFTER.total_seconds() >= 3 * EVERY

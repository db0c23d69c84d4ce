"""An alarm goes out until it has arrived, or a newer one says how things stand."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.clock import FakeClock
from tests.support.stepped import Counted, HandExecutor

from tickrail.core.execution import SUCCESS, Outcome, Run
from tickrail.core.notices import SIGNING, Hook
from tickrail.core.watch_alarm import Alarm, Said
from tickrail.engine.alarm_sender import GIVE_UP_AFTER, AlarmSender

RAISED = Alarm(Said.RAISED, "3 slots", {"slots_missing": 3, "jobs": []})
CLEARED = Alarm(Said.CLEARED, "well again", {"slots_missing": 0, "jobs": []})
REFUSED = Outcome(ok=False, outcome="http_500", message="HTTP 500")


class World:
    def __init__(self, hook: Hook | None) -> None:
        self.clock, self.metrics = FakeClock(), Counted()
        self.executor = HandExecutor(frozenset({"webhook"}))
        self.sender = AlarmSender(self.executor, hook, self.clock, self.metrics)

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.sender.run_once()

    def last(self) -> Run:
        return self.executor.started[-1]

    def ends(self, outcome: Outcome) -> None:
        run = self.last()
        self.executor.running.pop(run)(run, outcome)
        self.turn()

    def counted(self, outcome: str) -> int:
        return self.metrics.counts["watchdog_alarms_total", outcome]


@pytest.fixture
def world() -> World:
    return World(Hook("https://ops.example.org/hook", "whsec_aa"))


def test_it_is_tried_again_under_its_id_until_it_arrives(world: World) -> None:
    world.sender.take(RAISED)
    world.turn()
    first = world.last()
    assert first.target["webhook"]["signature"] == {"secrets": [{"secret": SIGNING}]}  # type: ignore[index]
    event = first.payload
    assert isinstance(event, dict)
    assert (event["type"], event["text"]) == ("tickrail.watchdog.raised", "3 slots")
    assert (event["id"], event["data"]["slots_missing"]) == (str(first.launch_id), 3)
    world.turn(60)
    assert len(world.executor.started) == 1  # it is on its way
    world.ends(REFUSED)
    world.turn(3)
    assert len(world.executor.started) == 1
    world.turn(4)
    second = world.last()
    assert (second.launch_id, second.attempt, second.payload) == (first.launch_id, 2, event)
    world.ends(REFUSED)
    world.turn(7)
    assert len(world.executor.started) == 2
    world.turn(6)
    world.ends(SUCCESS)
    world.turn(3600)
    assert len(world.executor.started) == 3
    assert [world.counted(x) for x in ("failed", "delivered", "given_up")] == [2, 1, 0]


def test_a_newer_one_takes_the_place_of_one_that_has_not_arrived(world: World) -> None:
    world.sender.take(RAISED)
    world.turn()
    old = world.last()
    world.sender.take(CLEARED)
    world.turn()
    new = world.last()
    assert new.launch_id != old.launch_id
    assert isinstance(new.payload, dict)
    assert new.payload["type"] == "tickrail.watchdog.cleared"
    world.executor.running.pop(old)(old, REFUSED)
    world.turn(600)
    assert world.last() is new
    world.ends(SUCCESS)
    assert [world.counted(x) for x in ("failed", "delivered", "given_up")] == [0, 1, 1]


def test_a_day_later_it_is_given_up(world: World) -> None:
    world.sender.take(RAISED)
    world.turn()
    world.clock.advance(GIVE_UP_AFTER.total_seconds())
    world.ends(REFUSED)
    world.turn(timedelta(days=1).total_seconds())
    assert len(world.executor.started) == 1
    assert world.counted("given_up") == 1


def test_without_a_hook_nothing_is_sent() -> None:
    world = World(None)
    world.sender.take(RAISED)
    world.turn()
    assert world.executor.started == []

"""When a consumer counts as one that will not read again by itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import FakeClock

from tickrail.bus.stuck import ANSWERED_FOR, STUCK_AFTER, StuckWatch, reads

HELD = {("work", 0), ("work", 1)}


def statistics(group: str = "up", **states: str) -> dict[str, Any]:
    """As librdkafka writes them, of a topic with three partitions and one handle for none."""
    wanted = {"-1": "none", "0": "active", "1": "active", "2": "none"}
    wanted.update({name.removeprefix("p"): state for name, state in states.items()})
    partitions = {number: {"fetch_state": state} for number, state in wanted.items()}
    return {"cgrp": {"state": group}, "topics": {"work": {"partitions": partitions}}}


def test_who_is_in_the_group_and_fetches_from_all_it_holds_reads() -> None:
    assert reads(statistics(), HELD)
    assert reads(statistics(p0="none"), set())


@pytest.mark.parametrize("state", ["none", "stopped", "offset-query", "offset-wait"])
def test_who_does_not_fetch_from_one_partition_does_not_read(state: str) -> None:
    assert not reads(statistics(p1=state), HELD)


@pytest.mark.parametrize("state", ["init", "query-coord", "wait-coord", "wait-broker"])
def test_who_has_lost_its_coordinator_does_not_read(state: str) -> None:
    assert not reads(statistics(state), HELD)
    assert not reads({"topics": {}}, set())


def test_it_is_over_when_it_has_not_read_for_some_time_without_a_break() -> None:
    clock = FakeClock()
    watch = StuckWatch(clock)
    assert not watch.over
    for _ in range(3):
        watch.note(fine=False)
        clock.advance(STUCK_AFTER - 1)
        assert not watch.over
        watch.note(fine=True)
    watch.note(fine=False)
    clock.advance(STUCK_AFTER / 2)
    watch.note(fine=False)
    clock.advance(STUCK_AFTER / 2)
    assert watch.over


def gap(watch: StuckWatch, clock: FakeClock, *, answered: bool = True) -> float:
    """Seconds until it is to be replaced."""
    began = clock.monotonic()
    while not (watch.over and watch.replace(answered=answered)):
        clock.advance(1)
    return clock.monotonic() - began


def test_one_that_was_replaced_in_vain_is_replaced_more_and_more_rarely() -> None:
    clock = FakeClock()
    watch = StuckWatch(clock)
    watch.note(fine=False)
    assert [gap(watch, clock) - ANSWERED_FOR for _ in range(5)] == [20, 40, 80, 160, 160]
    watch.note(fine=True)
    watch.note(fine=False)
    assert gap(watch, clock) == STUCK_AFTER + ANSWERED_FOR


def test_it_is_kept_until_others_have_been_answered_for_some_time() -> None:
    clock = FakeClock()
    watch = StuckWatch(clock)
    watch.note(fine=False)
    for _ in range(100):
        clock.advance(1)
        assert not (watch.over and watch.replace(answered=False))
    began = clock.monotonic()
    while not watch.over:
        clock.advance(1)
    assert not watch.replace(answered=True)
    clock.advance(ANSWERED_FOR)
    assert watch.over
    assert not watch.replace(answered=False)  # away again
    assert gap(watch, clock) <= ANSWERED_FOR + 10
    assert clock.monotonic() - began < STUCK_AFTER * 2

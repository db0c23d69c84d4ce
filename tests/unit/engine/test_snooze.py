"""How long and how often a launch is put off without a failure."""

from __future__ import annotations

import pytest
from tests.support.stepped import Stepped, failure
from tests.unit.engine.test_runs import DLQ, RETRY, started

from tickrail.bus.codec import decode_dead_letter
from tickrail.core.states import State


@pytest.mark.parametrize(
    ("seconds", "delay", "message"),
    [
        (-5.0, 1, "tried again after 1 s, the least; no file"),
        (1e300, 30 * 86400, "tried again after 30 days, the longest; no file"),
    ],
)
def test_a_snooze_that_is_cut_says_so(seconds: float, delay: float, message: str) -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end(outcome=failure("snoozed", snooze=seconds, message="no file"))
    worker.work()
    row = world.row(launch)
    assert (row.due_at - world.clock.now()).total_seconds() == delay
    assert row.result is not None
    assert row.result["message"] == message


def test_after_a_thousand_snoozes_each_one_more_is_a_failure() -> None:
    world = Stepped()
    job = world.job(overlap="allow", retry={**RETRY, "max_attempts": 3})
    worker = world.worker()
    worker.executor.answer = lambda _run: failure("snoozed", snooze=1.0, message="no file")
    worker.take()
    launch = world.launch(job, attempt=1001, failures=1)
    world.relay(2)
    worker.work()
    assert (world.row(launch).state, world.row(launch).failures) == (State.DUE, 1)  # the last one
    for wait in (1, 4):
        world.advance(wait)
        world.relay(2)
        worker.work()
    row = world.row(launch)
    assert (row.state, row.attempt, row.failures) == (State.DEAD, 1003, 3)
    assert row.result is not None
    assert row.result["message"] == "a failure: 1000 attempts have ended as none; no file"
    letter = decode_dead_letter(world.bus.messages(DLQ)[-1].value)
    assert (letter.launch, letter.reason) == (launch, "attempts_exhausted")


def test_what_the_worker_puts_off_has_bounds_of_its_own() -> None:
    world = Stepped()
    worker, launch = started(world, world.launch(attempt=5000))
    worker.executor.end(outcome=failure("origin_busy", snooze=2.0))
    worker.work()
    assert (world.row(launch).state, world.row(launch).failures) == (State.DUE, 0)

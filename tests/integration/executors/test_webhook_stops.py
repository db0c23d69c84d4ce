"""A call that is stopped at any moment ends once, with the reason that it was stopped for."""

from __future__ import annotations

import threading

import pytest
from tests.support.receiver import Receiver, answer
from tests.support.runs import Outcomes, make_run

from tickrail.core.clock import SystemClock
from tickrail.executors.egress import EgressGuard, EgressPolicy
from tickrail.executors.webhook import WebhookExecutor

pytestmark = pytest.mark.integration


def test_a_call_that_is_stopped_before_its_first_step_ends_too() -> None:
    clock = SystemClock()
    executor = WebhookExecutor(EgressGuard(EgressPolicy.parse("127.0.0.0/8"), clock), clock)
    with Receiver(answer("200 OK")) as receiver:
        run = make_run({"webhook": {"url": receiver.url()}})
        outcomes, busy = Outcomes(), threading.Event()
        # The loop is behind: what comes meanwhile is done in one turn of it.
        executor._loop.call_soon_threadsafe(busy.wait, 30)
        executor.start(run, outcomes.done)
        executor.cancel(run, "claim_lost")
        busy.set()
        outcome = outcomes.of(run, 10)
        assert (outcome.ok, outcome.outcome, outcome.certain) == (False, "claim_lost", True)
        assert receiver.requests == []
        assert executor.open_calls == 0
    executor.close(0)

"""A call ends once: with the reason that it was stopped for, or when its receiver never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.receiver import OK_ANSWER, Receiver, Request, answer
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


HINT = b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"


@pytest.fixture
def executor() -> Iterator[WebhookExecutor]:
    clock = SystemClock()
    made = WebhookExecutor(EgressGuard(EgressPolicy.parse("127.0.0.0/8"), clock), clock)
    yield made
    made.close(0)


def test_interim_answers_without_end_end_the_call(executor: WebhookExecutor) -> None:
    def flood(connection: socket.socket, _: Request) -> bool:
        while True:  # until the connection is closed
            connection.sendall(HINT * 100)

    with Receiver(flood) as receiver:
        run, outcomes = make_run({"webhook": {"url": receiver.url()}}, timeout=300), Outcomes()
        executor.start(run, outcomes.done)
        outcome = outcomes.of(run, 30)
    assert (outcome.outcome, outcome.certain) == ("bad_response", False)
    assert "more than 10 interim answers" in outcome.message


def test_each_answer_may_have_interim_ones_before_it(executor: WebhookExecutor) -> None:
    def hint(connection: socket.socket, _: Request) -> bool:
        connection.sendall(HINT * 10 + OK_ANSWER)
        return True

    outcomes = Outcomes()
    with Receiver(hint) as receiver:
        for _ in range(3):
            run = make_run({"webhook": {"url": receiver.url()}})
            executor.start(run, outcomes.done)
            assert outcomes.of(run, 30).outcome == "ok"
        assert receiver.connections == 1

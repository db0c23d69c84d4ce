"""The helpers for users' tests of their tasks: an hour takes a moment, and all of it is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.sdk import App, Context, Fail, Retry, Snooze
from tickrail.sdk.testing import FakeClock, run, run_job

app = App()
CALLS: list[int] = []


@app.task
def greet(name: str) -> str:
    return f"Hello {name}"


@app.task
def flaky(context: Context, failures: int) -> int:
    if context.attempt <= failures:
        raise ConnectionError(f"no {context.attempt}")
    return context.attempt


@app.task
def slow(context: Context, hours: int) -> str:
    for hour in range(hours):
        context.heartbeat({"hour": hour})
        if context.cancelled.wait(3600):
            context.log("stopped in hour", hour)
            return "stopped"
    return "done"


@app.task
async def aslow(hours: int) -> str:
    for _ in range(hours):
        await asyncio.sleep(3600)
    return "done"


@app.task
async def crowd() -> list[int]:
    async def one(seconds: int) -> int:
        await asyncio.sleep(seconds)
        return seconds

    return list(await asyncio.gather(one(3), one(1), one(2)))


@app.task
def picky(context: Context) -> str:
    if context.attempt == 1:
        raise Retry("busy", after=timedelta(minutes=5))
    if context.attempt == 2:
        raise Snooze(60)
    raise Fail("gone")


@app.task
async def threads() -> int:
    return await asyncio.to_thread(lambda: 42)


def test_the_value_of_a_task() -> None:
    found = run(greet, {"name": "Ada"})
    assert (found.state, found.value, len(found.attempts)) == ("succeeded", "Hello Ada", 1)
    assert run(app, {"name": "Bo"}, name="greet").value == "Hello Bo"


def test_attempts_and_their_times() -> None:
    clock = FakeClock()
    began = clock.now()
    found = run(flaky, {"failures": 3}, clock=clock)
    assert (found.state, found.value) == ("succeeded", 4)
    assert [a.outcome for a in found.attempts] == ["raised_ConnectionError"] * 3 + ["ok"]
    assert [(a.started_at - began).total_seconds() for a in found.attempts] == [0, 2, 6, 14]
    error = found.attempts[1].error
    assert isinstance(error, ConnectionError)
    assert str(error) == "no 2"
    assert found.attempts[0].message.startswith("ConnectionError: no 1 (test_testing.py:")


def test_the_retry_policy_is_the_jobs() -> None:
    found = run(flaky, {"failures": 9}, retry={"max_attempts": 2})
    assert (found.state, len(found.attempts)) == ("dead", 2)
    found = run(flaky, {"failures": 9}, retry={"not_on": ["raised_OSError"]})
    assert (found.state, len(found.attempts)) == ("dead", 1)
    with pytest.raises(InvalidInputError):
        run_job(app, {"target": {"task": {"name": "a b"}}})


def test_time_passes_where_a_task_waits() -> None:
    clock = FakeClock()
    found = run(slow, {"hours": 5}, timeout=86400, clock=clock)
    assert (found.value, found.progress[-1], clock.monotonic()) == ("done", {"hour": 4}, 18000)
    clock = FakeClock()
    assert run(aslow, {"hours": 5}, timeout=86400, clock=clock).value == "done"
    assert clock.monotonic() == pytest.approx(18000)
    assert run(crowd).value == [3, 1, 2]
    assert run(threads).value == 42


@pytest.mark.parametrize("name", ["slow", "aslow"])
def test_a_cancel_comes_after_so_many_seconds(name: str) -> None:
    found = run(app, {"hours": 5}, name=name, timeout=86400, cancel_after=5000)
    assert (found.state, found.outcome) == ("cancelled", "cancelled")
    (attempt,) = found.attempts
    assert (attempt.ended_at - attempt.started_at).total_seconds() == pytest.approx(5000)
    if name == "slow":
        assert found.log == ["stopped in hour 1"]


@pytest.mark.parametrize("name", ["slow", "aslow"])
def test_the_time_limit_ends_an_attempt(name: str) -> None:
    found = run(app, {"hours": 5}, name=name, timeout=5000, retry={"max_attempts": 2})
    assert (found.state, [a.outcome for a in found.attempts]) == ("dead", ["timed_out"] * 2)


def test_a_cancel_between_two_attempts() -> None:
    clock = FakeClock()
    found = run(flaky, {"failures": 9}, cancel_after=4, clock=clock)
    assert (found.state, len(found.attempts), clock.monotonic()) == ("cancelled", 2, 4)


def test_a_task_says_what_is_to_happen() -> None:
    clock = FakeClock()
    found = run(picky, clock=clock)
    assert [a.outcome for a in found.attempts] == ["raised_Retry", "snoozed", "raised_Fail"]
    assert (found.state, clock.monotonic()) == ("dead", 360)


def test_a_snooze_is_no_failure_and_does_not_go_on_for_ever() -> None:
    tired = App()

    @tired.task
    def sleepy() -> None:
        raise Snooze(1)

    with pytest.raises(AssertionError, match="did not end within 1000 attempts"):
        run(sleepy, retry={"max_attempts": 1})


def test_mistakes_in_the_call_are_the_same_as_in_a_worker() -> None:
    found = run(greet, {"nam": "Ada"})
    assert (found.state, found.outcome) == ("dead", "invalid_arguments")
    assert "argument 'name' is missing; there is no argument 'nam'" in found.attempts[0].message
    found = run(app, name="great", retry={"max_attempts": 3})
    assert (found.outcome, len(found.attempts)) == ("unknown_task", 3)
    with pytest.raises(ValueError, match="name says which task of the app"):
        run(app)


def test_a_job_is_run_by_its_document() -> None:
    document: dict[str, Any] = {
        "name": "greeting",
        "target": {"task": {"name": "slow", "args": {"hours": 5}}},
        "timeout": "2h",
        "if_uncertain": "skip",
    }
    found = run_job(app, document)
    assert (found.state, found.outcome, len(found.attempts)) == ("abandoned", "timed_out", 1)
    with pytest.raises(ValueError, match="the job x calls no task"):
        run_job(app, {"name": "x", "target": {"noop": {}}})


def test_a_fake_clock_is_strict() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(FakeClock().now().replace(tzinfo=None))
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)

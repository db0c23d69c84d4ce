"""The task executor with real threads and a real event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.support.runs import SLOT, Outcomes, make_run
from tests.support.until import pause, until

from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome
from tickrail.core.ports_metrics import NullMetrics
from tickrail.executors.task import TaskExecutor, TaskSettings
from tickrail.sdk import App, Context, Fail, Retry, Snooze

CLOCK = SystemClock()
app = App()
GATE = threading.Event()
SEEN: list[Any] = []


@app.task
def add(a: int, b: int = 1) -> dict[str, int]:
    return {"sum": a + b}


@app.task
async def aadd(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@app.task
def see(context: Context) -> None:
    SEEN.append(context)
    context.log("half", "way")
    context.heartbeat({"percent": 50})
    context.log("there")


class PaymentError(ValueError):
    pass


@app.task
def broken() -> None:
    raise PaymentError("no\nmoney")


@app.task
async def abroken() -> None:
    await asyncio.sleep(0)
    raise PaymentError("no money")


@app.task
async def stops_the_loop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)
    return "still here"


class MuteError(ValueError):
    """An exception that cannot be told."""

    def __str__(self) -> str:
        raise SystemExit(7)


class OddError(ValueError):
    """One that cannot even be looked at."""

    @property
    def __traceback__(self) -> Any:
        raise RuntimeError("no")


class OddDict(dict[str, int]):
    """A value that cannot be written."""

    def items(self) -> Any:
        raise MuteError


@app.task
def mute() -> None:
    raise MuteError


@app.task
async def amute() -> None:
    raise MuteError


@app.task
def odd() -> None:
    raise OddError


@app.task
async def aodd() -> None:
    raise OddError


@app.task
def odd_value() -> OddDict:
    return OddDict(a=1)


@app.task
async def aodd_value() -> OddDict:
    return OddDict(a=1)


@app.task
@functools.wraps(aadd)
def wrapped(a: int) -> Any:
    return aadd(a)


@app.task
async def awrapped() -> Any:
    return aadd(1)


@app.task
def exits() -> None:
    raise SystemExit(3)


@app.task
def again() -> None:
    raise Retry("busy", after=timedelta(minutes=2))


@app.task
def later() -> None:
    raise Snooze(90)


@app.task
async def never() -> None:
    raise Fail("this account is closed")


@app.task
def opaque() -> object:
    return object()


@app.task
def deaf(seconds: float) -> str:
    """Looks at nothing."""
    pause(seconds)
    SEEN.append("effect")
    return "done"


@app.task
def waits() -> str:
    GATE.wait(20)
    return "through"


@app.task
def minds(context: Context) -> str:
    SEEN.append("began")
    context.cancelled.wait(20)
    return f"stopped since {context.cancelled.reason}"


@app.task
async def asleep(swallow: bool = False) -> str:
    SEEN.append("began")
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        SEEN.append("cleaned")
        if not swallow:
            raise
    return "swallowed"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    SEEN.clear()
    GATE.clear()
    yield
    GATE.set()


@pytest.fixture
def executor() -> Iterator[TaskExecutor]:
    settings = TaskSettings(max_concurrency=3, stop_grace=1.0)
    executor = TaskExecutor(app.tasks, CLOCK, NullMetrics(), settings)
    yield executor
    GATE.set()
    executor.close(0)


def call(name: str, args: Mapping[str, object] | None = None, **changes: Any) -> Any:
    return make_run({"task": {"name": name, "args": args or {}}}, **changes)


def run(executor: TaskExecutor, name: str, timeout: float = 20.0, **args: object) -> Outcome:
    outcomes = Outcomes()
    one = call(name, args, timeout=timeout)
    executor.start(one, outcomes.done)
    return outcomes.of(one)


def test_what_a_function_returns_is_kept(executor: TaskExecutor) -> None:
    assert run(executor, "add", a=2) == Outcome(ok=True, outcome="ok", value={"sum": 3})
    assert run(executor, "aadd", a=2, b=5) == Outcome(ok=True, outcome="ok", value=7)


def test_a_context_tells_of_the_run(executor: TaskExecutor) -> None:
    outcomes, told, progress = Outcomes(), [], []
    one = call("see", tell=told.append, progress=progress.append)
    executor.start(one, outcomes.done)
    assert outcomes.of(one) == Outcome(ok=True, outcome="ok", body="half way\nthere\n")
    assert told == [b"half way\n", b"there\n"]
    assert progress == [{"percent": 50}]
    (context,) = SEEN
    assert context.idempotency_key == str(one.launch_id)
    assert (context.job, context.attempt, context.fencing_token) == ("nightly", 2, 4711)
    assert (context.payload, context.scheduled_at) == ({"dry": False}, SLOT)
    assert 0 < context.remaining <= 20
    assert abs((context.deadline - CLOCK.now()).total_seconds() - 20) < 15
    assert not context.cancelled


def test_what_a_function_raises_is_named_with_its_classes(executor: TaskExecutor) -> None:
    for name in ("broken", "abroken"):
        found = run(executor, name)
        assert (found.ok, found.outcome, found.certain) == (False, "raised_PaymentError", True)
        assert found.retryable
        assert found.classes == ("raised_ValueError", "raised_Exception", "raised_BaseException")
        assert found.message.startswith("PaymentError: no money (test_task.py:")
        assert f"in {name}" in found.body
        assert "task_run.py" not in found.body
    assert run(executor, "exits").outcome == "raised_SystemExit"


@pytest.mark.parametrize("name", ["mute", "amute"])
def test_an_exception_without_a_text_is_named_all_the_same(
    executor: TaskExecutor, name: str
) -> None:
    found = run(executor, name)
    assert (found.ok, found.outcome, found.certain) == (False, "raised_MuteError", True)
    assert found.classes[0] == "raised_ValueError"
    assert found.message.startswith("MuteError: <no text: its __str__ raised SystemExit>")
    assert f"in {name}" in found.body


@pytest.mark.parametrize("name", ["odd", "aodd"])
def test_what_cannot_be_told_ends_nevertheless(executor: TaskExecutor, name: str) -> None:
    found = run(executor, name)
    assert (found.ok, found.outcome, found.certain) == (False, "internal", False)
    assert executor.running == 0
    assert run(executor, "aadd", a=2).ok  # the loop goes on


@pytest.mark.parametrize("name", ["odd_value", "aodd_value"])
def test_a_value_that_raises_is_not_kept(executor: TaskExecutor, name: str) -> None:
    found = run(executor, name)
    assert (found.ok, found.value) == (True, None)
    assert found.message.startswith("the returned value is not kept: it is no JSON (<no text")


@pytest.mark.parametrize(("name", "args"), [("wrapped", {"a": 1}), ("awrapped", {})])
def test_work_that_nobody_awaits_is_not_done(
    executor: TaskExecutor, name: str, args: dict[str, int]
) -> None:
    found = run(executor, name, **args)
    assert (found.ok, found.outcome, found.retryable) == (False, "returned_awaitable", False)
    assert found.message.startswith("it returned a coroutine that nobody awaits")


def test_a_function_says_what_is_to_happen(executor: TaskExecutor) -> None:
    found = run(executor, "again")
    assert (found.outcome, found.retry_after, found.retryable) == ("raised_Retry", 120.0, True)
    found = run(executor, "later")
    assert (found.outcome, found.snooze, found.ok) == ("snoozed", 90.0, False)
    found = run(executor, "never")
    assert (found.outcome, found.retryable) == ("raised_Fail", False)
    assert "this account is closed" in found.message


def test_a_value_that_cannot_be_kept_is_no_failure(executor: TaskExecutor) -> None:
    found = run(executor, "opaque")
    assert (found.ok, found.value) == (True, None)
    assert found.message.startswith("the returned value is not kept: it is no JSON")


def test_an_unknown_task_may_be_known_elsewhere(executor: TaskExecutor) -> None:
    found = run(executor, "ad")
    assert (found.outcome, found.retryable, found.certain) == ("unknown_task", True, True)
    assert found.message == "the worker's app has no task ad: did you mean add?"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "argument 'a' is missing"),
        ({"a": 1, "c": 2}, "there is no argument 'c'"),
        ({"b": 1, "z": 2}, "argument 'a' is missing; there is no argument 'z'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    executor: TaskExecutor, args: dict[str, object], message: str
) -> None:
    found = run(executor, "add", **args)
    assert (found.outcome, found.retryable) == ("invalid_arguments", False)
    assert found.message == f"task add: {message} (it takes: a, b)"


def test_a_target_that_is_none_is_refused(executor: TaskExecutor) -> None:
    outcomes = Outcomes()
    one = make_run({"task": {"args": {}}})
    executor.start(one, outcomes.done)
    found = outcomes.of(one)
    assert (found.outcome, found.retryable) == ("invalid_target", False)


def test_more_than_allowed_wait_for_a_thread(executor: TaskExecutor) -> None:
    outcomes = Outcomes()
    runs = [call("waits") for _ in range(5)]
    for one in runs:
        executor.start(one, outcomes.done)
    until(lambda: len([t for t in threading.enumerate() if t.name.startswith("task ")]) >= 3)
    executor.cancel(runs[4], "cancelled")  # it waits
    assert outcomes.of(runs[4]) == Outcome(
        ok=False, outcome="cancelled", message="stopped before it started"
    )
    assert (len(outcomes), executor.running) == (1, 4)
    GATE.set()
    assert [outcomes.of(one).value for one in runs[:4]] == ["through"] * 4


def test_a_thread_that_timed_out_has_its_outcome_when_it_really_ends(
    executor: TaskExecutor,
) -> None:
    """E-07: the effect comes after the time limit; until then no retry may run beside it."""
    outcomes = Outcomes()
    one = call("deaf", {"seconds": 1.0}, timeout=0.2)
    executor.start(one, outcomes.done)
    pause(0.6)
    assert (len(outcomes), SEEN) == (0, [])
    found = outcomes.of(one)
    assert SEEN == ["effect"]
    assert (found.outcome, found.certain, found.ok) == ("timed_out", False, False)
    assert found.message == "stopped after 0.2 s"


def test_a_function_that_looks_stops_at_its_limit(executor: TaskExecutor) -> None:
    began = CLOCK.monotonic()
    found = run(executor, "minds", timeout=0.2)
    assert (found.outcome, found.certain) == ("timed_out", False)
    assert CLOCK.monotonic() - began < 15


def test_an_async_function_is_cancelled_at_its_limit(executor: TaskExecutor) -> None:
    found = run(executor, "asleep", timeout=0.2)
    assert (found.outcome, found.certain) == ("timed_out", False)
    assert SEEN == ["began", "cleaned"]


@pytest.mark.parametrize(
    ("name", "args"), [("minds", {}), ("asleep", {}), ("asleep", {"swallow": True})]
)
def test_a_cancel_reaches_the_function(
    executor: TaskExecutor, name: str, args: dict[str, object]
) -> None:
    outcomes = Outcomes()
    one = call(name, args)
    executor.start(one, outcomes.done)
    until(lambda: SEEN == ["began"])
    executor.cancel(one, "cancelled")
    executor.cancel(one, "claim_lost")
    found = outcomes.of(one)
    assert (found.outcome, found.certain, found.ok) == ("cancelled", False, False)
    executor.cancel(one, "cancelled")
    assert len(outcomes) == 1


def test_a_function_that_never_knew_of_a_cancel_has_done_its_work(executor: TaskExecutor) -> None:
    outcomes = Outcomes()
    one = call("waits")
    executor.start(one, outcomes.done)
    until(lambda: executor.running == 1)
    executor.cancel(one, "interrupted")
    GATE.set()
    assert outcomes.of(one) == Outcome(ok=True, outcome="ok", value="through")


def test_close_lets_runs_end_then_tells_them_then_leaves_them(executor: TaskExecutor) -> None:
    outcomes = Outcomes()
    runs = {name: call(name) for name in ("minds", "asleep", "waits")}
    for one in runs.values():
        executor.start(one, outcomes.done)
    until(lambda: SEEN == ["began", "began"])
    executor.close(0.1)
    assert outcomes.of(runs["minds"]).outcome == "interrupted"
    assert outcomes.of(runs["asleep"]).outcome == "interrupted"
    GATE.set()
    pause(0.2)
    assert len(outcomes) == 2, "an outcome came after close"
    late = call("add", {"a": 1})
    executor.start(late, outcomes.done)
    assert outcomes.of(late).outcome == "interrupted"


def test_a_task_that_stops_the_loop_ends_it_for_nobody(executor: TaskExecutor) -> None:
    assert run(executor, "stops_the_loop").value == "still here"
    assert run(executor, "aadd", a=1).value == 2


def test_the_places_are_those_of_threads_alone(executor: TaskExecutor) -> None:
    most = executor.free_places
    outcomes = Outcomes()
    runs = [call("waits") for _ in range(2)] + [call("asleep", timeout=3.0)]
    for one in runs:
        executor.start(one, outcomes.done)
    assert executor.free_places == most - 2
    assert [executor.needs_place(n) for n in ("waits", "asleep", "none")] == [True, False, False]
    GATE.set()
    assert [outcomes.of(one).value for one in runs[:2]] == ["through"] * 2
    assert executor.free_places == most


def test_many_async_runs_go_on_at_once(executor: TaskExecutor) -> None:
    outcomes = Outcomes()
    runs = [call("asleep", timeout=3.0) for _ in range(200)]
    for one in runs:
        executor.start(one, outcomes.done)
    until(lambda: len(SEEN) == 200)
    for one in runs:
        executor.cancel(one, "cancelled")
    assert {outcomes.of(one).outcome for one in runs} == {"cancelled"}

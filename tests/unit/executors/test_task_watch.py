"""The watch over tasks, looked with by hand: lags, limits, and who is named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.clock import FakeClock
from tests.support.runs import Outcomes, make_run
from tests.support.until import until

from tickrail.core.ports_metrics import NullMetrics
from tickrail.executors.task_loop import where
from tickrail.executors.task_run import TaskRun
from tickrail.executors.task_watch import KEPT, TICK, TaskWatch
from tickrail.sdk import Task


class Gauges(NullMetrics):
    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def gauge(self, name: str, value: float, **labels: str) -> None:
        assert not labels
        self.found[name] = value


class Loop:
    """An event loop that turns when the test says."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.task: object = None

    def call(self, function: Callable[[], object]) -> None:
        self.waiting.append(function)

    def turn(self) -> None:
        for function in self.waiting:
            function()
        self.waiting.clear()

    def current(self) -> object:
        return self.task

    def where(self) -> str:
        return "tasks.py:7 in blocker"


@pytest.fixture
def bed() -> tuple[FakeClock, Gauges, Loop, list[TaskRun], TaskWatch]:
    clock, gauges, loop = FakeClock(), Gauges(), Loop()
    runs: list[TaskRun] = []
    found: Any = loop
    return clock, gauges, loop, runs, TaskWatch(lambda: runs, lambda: found, clock, gauges)


def make(clock: FakeClock, name: str, timeout: float = 60.0) -> TaskRun:
    run = make_run({"task": {"name": name}}, timeout=timeout)
    return TaskRun(run, Task(name, lambda: None), {}, Outcomes().done, clock)


def looks(clock: FakeClock, watch: TaskWatch, loop: Loop | None, seconds: float) -> None:
    for _ in range(round(seconds / TICK)):
        clock.advance(TICK)
        if loop is not None:
            loop.turn()
        watch.look()


def test_a_loop_that_turns_has_no_lag(bed: Any) -> None:
    clock, gauges, loop, _, watch = bed
    with capture_logs() as logs:
        looks(clock, watch, loop, 3)
    assert gauges.found["task_loop_lag_seconds"] == pytest.approx(TICK)
    assert logs == []


def test_a_blocked_loop_is_measured_and_the_offender_named_once(bed: Any) -> None:
    clock, gauges, loop, runs, watch = bed
    looks(clock, watch, loop, 1)
    offender, other = make(clock, "blocker"), make(clock, "good")
    offender.coroutine = loop.task = object()
    runs += [other, offender]
    with capture_logs() as logs:
        looks(clock, watch, None, 5)
        assert gauges.found["task_loop_lag_seconds"] == pytest.approx(5.0, abs=0.3)
        (entry,) = logs
        assert entry["event"] == "event_loop_blocked"
        assert entry["task"] == f"blocker (launch {offender.run.launch_id})"
        assert entry["at"] == "tasks.py:7 in blocker"
        looks(clock, watch, loop, 1)
    assert [e["event"] for e in logs] == ["event_loop_blocked", "event_loop_free_again"]
    assert logs[1]["blocked_seconds"] == pytest.approx(5.1, abs=0.3)
    looks(clock, watch, loop, KEPT - 5)
    assert gauges.found["task_loop_lag_seconds"] > 4.5, "a scrape in between must see it"
    looks(clock, watch, loop, 10)
    assert gauges.found["task_loop_lag_seconds"] < 0.5


def test_a_stall_of_the_whole_process_is_told_with_what_ran(bed: Any) -> None:
    clock, gauges, loop, runs, watch = bed
    looks(clock, watch, loop, 1)
    runs.append(make(clock, "idle"))
    on_loop = make(clock, "crunch")
    on_loop.coroutine = loop.task = object()
    assert on_loop.begin()
    runs.append(on_loop)
    gone, waited = make(clock, "gone"), make(clock, "waited")
    assert gone.begin()
    watch.ended(gone)
    watch.ended(waited)
    ending = make(clock, "ending")
    assert ending.begin()
    runs.append(ending)
    clock.advance(20)
    loop.turn()
    with capture_logs() as logs:
        watch.look()
    assert gauges.found["task_loop_lag_seconds"] == pytest.approx(20)
    (entry,) = [e for e in logs if e["event"] == "interpreter_stalled"]
    assert entry["seconds"] == 19.9
    assert entry["tasks"] == [
        {"task": on_loop.title, "cpu_seconds": 19.9, "at": "tasks.py:7 in blocker"},
        {"task": gone.title, "cpu_seconds": 0.0, "at": "it has ended"},
        {"task": ending.title, "cpu_seconds": 0.0, "at": "it has ended"},
    ]
    assert on_loop.title == f"crunch (launch {on_loop.run.launch_id})"


def test_a_thread_that_stands_where_it_stood_has_held_up_nobody(bed: Any) -> None:
    clock, _, loop, runs, watch = bed
    first, second, end = threading.Event(), threading.Event(), threading.Event()

    def stands() -> None:
        end.wait(30)

    def moves() -> None:
        first.wait(30)
        second.set()
        end.wait(30)

    runs += [_threaded(clock, "stands", stands), _threaded(clock, "moves", moves)]
    threads = [threading.Thread(target=one.in_thread, daemon=True) for one in runs]
    for thread in threads:
        thread.start()
    until(lambda: all(where(t.ident).endswith(" in wait") for t in threads))
    looks(clock, watch, loop, 1)
    first.set()
    assert second.wait(30)
    clock.advance(20)
    loop.turn()
    with capture_logs() as logs:
        watch.look()
    end.set()
    for thread in threads:
        thread.join(30)
    (entry,) = [e for e in logs if e["event"] == "interpreter_stalled"]
    assert [t["task"] for t in entry["tasks"]] == [runs[1].title]


def _threaded(clock: FakeClock, name: str, function: Callable[[], None]) -> TaskRun:
    run = make_run({"task": {"name": name}}, timeout=1000.0)
    return TaskRun(run, Task(name, function), {}, Outcomes().done, clock)


def test_runs_past_their_limit_are_told_once_and_counted(bed: Any) -> None:
    clock, gauges, loop, runs, watch = bed
    one, waiting = make(clock, "slow", timeout=2.0), make(clock, "waiting", timeout=2.0)
    runs += [one, waiting]
    assert one.begin()
    looks(clock, watch, loop, 1)
    assert (one.cancelled.reason, gauges.found["task_runs_overdue"]) == (None, 0)
    looks(clock, watch, loop, 1.5)
    assert (one.cancelled.reason, gauges.found["task_runs_overdue"]) == ("timed_out", 1)
    assert waiting.cancelled.reason is None, "its time has not begun"
    runs.remove(one)
    looks(clock, watch, loop, 0.2)
    assert gauges.found["task_runs_overdue"] == 0

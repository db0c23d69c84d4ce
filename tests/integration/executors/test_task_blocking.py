"""Tasks that keep others from running: claims are kept, nobody is doubled, and the log names them.

The real runs of a worker, on its real clock; claims are kept in memory, and a reaper and a relay
wait for one that is lost.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import pytest
from structlog.testing import capture_logs
from tests.support import stepped
from tests.support.stepped import Counted, Stepped
from tests.support.until import pause, until

from tickrail.core.clock import SystemClock
from tickrail.core.ids import LaunchId
from tickrail.core.states import State
from tickrail.executors.task import TaskExecutor
from tickrail.sdk import App
from tickrail_worker.build import WITH_TASKS

VISIBILITY = 8.0
BLOCKED = 10.0
HELD = 2.0
"""Below four fifths of the visibility timeout, less the margin and a heartbeat's turn."""

app = App()
STARTS: Counter[str] = Counter()
_LIBC = ctypes.PyDLL(None)
"""Calls through it keep the interpreter's lock."""


@app.task
async def blocks(seconds: float) -> None:
    STARTS["blocks"] += 1
    threading.Event().wait(seconds)


@app.task
def holds(seconds: float) -> None:
    STARTS["holds"] += 1
    pause(2.5)
    _LIBC.usleep(int(seconds * 1e6))


@app.task
def good(number: int, seconds: float) -> int:
    STARTS[f"good {number}"] += 1
    pause(seconds)
    return number


@app.task
async def agood(number: int) -> int:
    STARTS[f"agood {number}"] += 1
    await asyncio.sleep(0.1)
    return number


class Bed:
    """A worker whose loops turn in a thread of their own."""

    def __init__(self, world: Stepped) -> None:
        self.world = world
        self.metrics = Counted()
        self.worker = world.worker()
        executor = TaskExecutor(app.tasks, world.clock, self.metrics)
        self.worker.runs._executors = {"task": executor}
        self.worker.runs._settings = replace(self.worker.runs._settings, extensions=WITH_TASKS)
        self._executor = executor
        self._end = threading.Event()
        self._turned = 0
        self._thread = threading.Thread(target=self._turns, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._executor.close(0)

    def launch(self, name: str, **args: object) -> LaunchId:
        job = self.world.job(overlap="allow", target={"task": {"name": name, "args": args}})
        return self.world.launch(job, visibility=VISIBILITY)

    def _turns(self) -> None:
        while not self._end.wait(0.05):
            self._turned += 1
            self.worker.runs.watch_once()
            if self._turned % 10 == 0:
                self.worker.heartbeat()
            self.world.sweep()
            self.world.relay()
            self.worker.work()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stepped]:
    monkeypatch.setattr(stepped, "FakeClock", SystemClock)
    STARTS.clear()
    yield Stepped()
    STARTS.clear()


def test_e05_a_blocked_loop_and_a_held_lock_lose_no_claim(world: Stepped) -> None:
    bed = Bed(world)
    launches = [bed.launch("blocks", seconds=BLOCKED)]
    launches += [bed.launch("good", number=n, seconds=BLOCKED - 1) for n in range(4)]
    launches += [bed.launch("agood", number=n) for n in range(5)]
    launches.append(bed.launch("holds", seconds=HELD))
    with capture_logs() as logs, bed:
        until(lambda: world.states() == {"succeeded": len(launches)}, 60)
    assert {world.row(launch).attempt for launch in launches} == {1}
    assert set(STARTS.values()) == {1}
    assert len(STARTS) == len(launches)
    assert bed.worker.metrics.counts[("stale_results_total",)] == 0
    assert bed.metrics.gauges["task_loop_lag_seconds"] > VISIBILITY
    blocked = next(e for e in logs if e["event"] == "event_loop_blocked")
    assert blocked["task"].startswith("blocks (launch ")
    stalled = [e for e in logs if e["event"] == "interpreter_stalled"]
    assert any(t["task"].startswith("holds (launch ") for e in stalled for t in e["tasks"])


def test_e07_no_retry_runs_beside_a_thread_that_timed_out(world: Stepped) -> None:
    bed = Bed(world)
    job = world.job(
        overlap="allow",
        target={"task": {"name": "good", "args": {"number": 1, "seconds": 2.0}}},
        timeout="1s",
        retry={"max_attempts": 2, "initial": "100ms", "jitter": 0},
    )
    launch = world.launch(job, visibility=VISIBILITY)
    with bed:
        until(lambda: STARTS["good 1"] == 1, 20)
        pause(1.6)
        assert (STARTS["good 1"], world.row(launch).state) == (1, State.RUNNING)
        until(lambda: world.row(launch).attempt == 2, 20)
        until(lambda: world.row(launch).state is State.DEAD, 30)
    assert STARTS["good 1"] == 2

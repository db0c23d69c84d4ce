"""Tasks in a process each: real processes, killed in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import task_app
from tests.support.runs import SLOT, Outcomes, make_run
from tests.support.tree import ROOT
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome
from tickrail.core.ports_metrics import NullMetrics
from tickrail.executors.task import TaskExecutor, TaskSettings

CLOCK = SystemClock()
PROGRAM = (sys.executable, "-P", "-m", "tickrail.sdk.child", task_app.PATH)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskExecutor]:
    monkeypatch.chdir(ROOT)
    settings = TaskSettings(max_concurrency=4, stop_grace=1.0, program=PROGRAM)
    executor = TaskExecutor(task_app.app.tasks, CLOCK, NullMetrics(), settings)
    yield executor
    executor.close(0)


def call(name: str, **args: object) -> dict[str, object]:
    return {"task": {"name": name, "args": args}}


def run(executor: TaskExecutor, name: str, timeout: float = 60.0, **args: object) -> Outcome:
    outcomes = Outcomes()
    one = make_run(call(name, **args), timeout=timeout)
    executor.start(one, outcomes.done)
    return outcomes.of(one, 60)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_has_a_process_of_its_own_and_tells_from_there(
    executor: TaskExecutor, tmp_path: Path
) -> None:
    outcomes, progress, told = Outcomes(), [], []
    one = make_run(
        call("where", folder=str(tmp_path)),
        timeout=60.0,
        progress=progress.append,
        tell=told.append,
    )
    executor.start(one, outcomes.done)
    found = outcomes.of(one, 60)
    assert (found.ok, found.outcome, found.body) == (True, "ok", "a line\nprinted nightly\n")
    value: Any = found.value
    assert value["pid"] == value["group"] == int((tmp_path / "pid").read_text()) != os.getpid()
    assert (value["key"], value["token"]) == (str(one.launch_id), one.claim)
    assert (value["payload"], value["at"]) == (one.payload, SLOT.isoformat())
    assert 0 < value["left"] <= 60
    assert progress == [{"done": 1}, {"done": 2}]
    assert b"".join(told) == b"a line\nprinted nightly\n"
    assert not alive(value["pid"])


def test_an_async_function_runs_there_too(executor: TaskExecutor) -> None:
    assert run(executor, "awaited", number=41).value == 42


@pytest.mark.parametrize(
    ("how", "fields"),
    [
        ("raises", {"outcome": "raised_BadAccountError", "retryable": True, "certain": True}),
        ("mute", {"outcome": "raised_MuteError", "retryable": True, "certain": True}),
        ("retry", {"outcome": "raised_Retry", "retry_after": 7.0}),
        ("snooze", {"outcome": "snoozed", "snooze": 8.0}),
        ("fail", {"outcome": "raised_Fail", "retryable": False}),
        ("exit", {"outcome": "raised_SystemExit", "certain": True}),
        ("vanish", {"outcome": "exit_4", "certain": False, "code": 4, "ok": False}),
        ("kill", {"outcome": "signal_9", "certain": False, "code": 9, "ok": False}),
        ("large", {"outcome": "ok", "value": None}),
    ],
)
def test_how_it_ends(executor: TaskExecutor, how: str, fields: dict[str, object]) -> None:
    found = run(executor, "ends", how=how)
    assert {name: getattr(found, name) for name in fields} == fields
    if how == "raises":
        assert found.classes[:2] == ("raised_LookupError", "raised_Exception")
        assert "in ends" in found.body
    if how == "large":
        assert "has 100002 bytes of JSON, more than 16384" in found.message


def test_too_large_a_progress_is_an_error_of_the_task(executor: TaskExecutor) -> None:
    found = run(executor, "progresses_too_much")
    assert found.outcome == "raised_ValueError"
    assert "the progress has 5002 bytes of JSON, more than 4096" in found.message


@pytest.mark.parametrize("name", ["plain", "minds", "amind"])
def test_a_cancel_lets_it_clean_up(executor: TaskExecutor, tmp_path: Path, name: str) -> None:
    outcomes = Outcomes()
    one = make_run(call(name, folder=str(tmp_path)), timeout=60.0)
    executor.start(one, outcomes.done)
    until((tmp_path / "began").exists, 30)
    executor.cancel(one, "cancelled")
    found = outcomes.of(one)
    assert (found.outcome, found.certain, found.ok) == ("cancelled", False, False)
    assert (tmp_path / "cleaned").exists()


def test_what_does_not_mind_is_killed_with_all_that_it_started(
    executor: TaskExecutor, tmp_path: Path
) -> None:
    outcomes = Outcomes()
    one = make_run(call("deaf", folder=str(tmp_path)), timeout=60.0)
    executor.start(one, outcomes.done)
    pids = _pids(tmp_path)
    executor.cancel(one, "cancelled")
    found = outcomes.of(one)
    assert (found.outcome, found.certain) == ("cancelled", False)
    until(lambda: not any(map(alive, pids)))


def test_the_time_limit_kills_it(executor: TaskExecutor, tmp_path: Path) -> None:
    found = run(executor, "deaf", timeout=2.0, folder=str(tmp_path))
    assert (found.outcome, found.certain) == ("timed_out", False)
    assert found.message == "stopped after 2 s"
    until(lambda: not any(map(alive, _pids(tmp_path))))


def test_the_end_of_the_worker_interrupts_it(executor: TaskExecutor, tmp_path: Path) -> None:
    outcomes = Outcomes()
    one = make_run(call("plain", folder=str(tmp_path)), timeout=60.0)
    executor.start(one, outcomes.done)
    until((tmp_path / "began").exists, 30)
    executor.close(0)
    assert outcomes.of(one).outcome == "interrupted"
    assert (tmp_path / "cleaned").exists()


def test_it_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = f"""
import sys, threading
from tests.support import task_app
from tests.support.runs import Outcomes, make_run
from tickrail.core.clock import SystemClock
from tickrail.core.ports_metrics import NullMetrics
from tickrail.executors.task import TaskExecutor, TaskSettings
settings = TaskSettings(program={PROGRAM!r})
executor = TaskExecutor(task_app.app.tasks, SystemClock(), NullMetrics(), settings)
target = {{"task": {{"name": "deaf", "args": {{"folder": {str(tmp_path)!r}}}}}}}
executor.start(make_run(target, timeout=300.0), print)
threading.Event().wait(300)
"""
    process = subprocess.Popen([sys.executable, "-c", worker], cwd=ROOT)
    try:
        pids = _pids(tmp_path)
        assert all(map(alive, pids))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        until(lambda: not any(map(alive, pids)), 30)
    finally:
        process.kill()
        process.wait()


def test_without_a_program_for_them_such_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="need a program"):
        TaskExecutor(task_app.app.tasks, CLOCK, NullMetrics(), TaskSettings())


def _pids(folder: Path) -> list[int]:
    until(lambda: (folder / "pids").exists() and (folder / "pids").read_text().strip(), 30)
    return [int(word) for word in (folder / "pids").read_text().split()]

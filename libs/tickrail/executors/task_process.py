"""Runs of tasks in a process each: what they say comes through a pipe, and they can be killed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from tickrail.core.clock import Clock
from tickrail.core.execution import TIMED_OUT, Outcome, bounded_text, one_line
from tickrail.core.tasks import not_started, stopped
from tickrail.executors.process import Ended, Process, Watcher, identity
from tickrail.executors.task_run import TaskRun

_log = structlog.get_logger("tickrail.tasks")

_FIELDS = ("ok", "outcome", "retryable", "message", "retry_after", "snooze", "value")
_MAX_LINE = 1 << 20
"""No line of a task's process is longer: it is bounded where it is written."""
_READ_WITHIN = 5.0


class TaskProcesses:
    """Starts a program for each run. Thread-safe."""

    def __init__(self, program: Sequence[str], clock: Clock, stop_grace: float) -> None:
        """Starts the guard that kills the processes of a worker that dies.

        Args:
            program: the program that runs one task: it reads the call from standard input, and
                writes to the file whose number its one argument is.
            clock: measures time limits.
            stop_grace: seconds from SIGTERM to SIGKILL.
        """
        self._program = tuple(program)
        self._clock = clock
        self._stop_grace = stop_grace
        self._watcher = Watcher()

    def run(self, one: TaskRun) -> Outcome:
        """Run it to its end on this thread.

        Raises:
            OSError: no process can be started.
        """
        if not one.begin():
            return not_started(str(one.cancelled.reason))
        read, write = os.pipe()
        try:
            process = Process(self._watcher, self._clock, pass_fds=(write,))
        except OSError:
            os.close(read)
            os.close(write)
            raise
        process.tell = one.run.tell
        said = _Said(one, read)
        said.start()
        try:
            one.interrupt = lambda: process.stop(str(one.cancelled.reason))
            if one.cancelled.reason is not None:
                one.interrupt()  # it came while this was made
            found = process.run(
                [*self._program, str(write)],
                env=dict(os.environ),
                cwd=str(Path.cwd()),
                who=identity(None),
                stdin=json.dumps(_call(one)).encode(),
                timeout=one.run.timeout,
                grace=self._stop_grace,
            )
        finally:
            process.release()
            os.close(write)
            said.join(_READ_WITHIN)
        return _outcome(one, found, said.outcome)

    def close(self) -> None:
        """End the guard."""
        self._watcher.close()


class _Said(threading.Thread):
    """Reads what a task's process writes into its pipe, line by line, until its end."""

    def __init__(self, one: TaskRun, pipe: int) -> None:
        super().__init__(name="task pipe", daemon=True)
        self.outcome: Mapping[str, Any] | None = None
        self._one = one
        self._pipe = pipe

    def run(self) -> None:
        with os.fdopen(self._pipe, "rb") as lines:
            while line := lines.readline(_MAX_LINE):
                try:
                    self._take(json.loads(line))
                except Exception:  # noqa: BLE001 - a task may write nonsense into any file
                    _log.warning("unreadable line of a task's process", task=self._one.title)

    def _take(self, document: Mapping[str, Any]) -> None:
        if "progress" in document:
            with suppress(ValueError):  # looked at where it was given
                self._one.progress(document["progress"])
        if "outcome" in document:
            self.outcome = document["outcome"]


def _call(one: TaskRun) -> dict[str, object]:
    """What the program needs to know."""
    run = one.run
    return {
        "task": one.task.name,
        "args": dict(one.args),
        "launch_id": str(run.launch_id),
        "job": run.job_name,
        "job_id": str(run.job_id),
        "attempt": run.attempt,
        "scheduled_at": run.scheduled_at.isoformat(),
        "payload": run.payload,
        "fencing_token": run.claim,
        "timeout": run.timeout,
    }


def _outcome(one: TaskRun, found: Ended, said: Mapping[str, Any] | None) -> Outcome:
    """How the run ended, by what its process said and by how that ended."""
    body = bounded_text(found.output, tail=True)
    if found.stopped is not None:
        whole = said is not None and said["ok"] and not said["told"]
        if not whole or found.stopped == TIMED_OUT:
            return stopped(found.stopped, one.run.timeout, found.output)
    if said is not None:
        values = {name: said[name] for name in _FIELDS if name in said}
        return Outcome(**values, body=body, classes=tuple(said.get("classes", ())))
    status = found.status
    name, number = ("signal", -status) if status < 0 else ("exit", status)
    return Outcome(
        ok=False,
        outcome=f"{name}_{number}",
        certain=False,
        code=number,
        message=one_line(f"the task's process ended before the task did: {name} {number}"),
        body=body,
    )

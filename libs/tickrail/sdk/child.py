"""Runs one task in this process: `python -m tickrail.sdk.child APP FD`, started by a worker.

It reads the call from standard input as JSON, and writes lines of JSON to the open file FD: how far
it is, and at the end the outcome. What the task prints goes to standard output. SIGTERM asks it to
stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tickrail.core.clock import Clock, SystemClock
from tickrail.core.execution import CANCELLED, Outcome
from tickrail.core.tasks import (
    Cancelled,
    Context,
    Task,
    raised,
    returned,
    unknown_task,
)
from tickrail.sdk.app import load_app

_TERMINATED = 143


class _Hooks:
    """What the context does its work with: the pipe to the worker, and standard output."""

    def __init__(self, pipe: int, timeout: float, clock: Clock) -> None:
        self._pipe = pipe
        self._clock = clock
        self._until = clock.monotonic() + timeout
        self._lock = threading.Lock()

    def remaining(self) -> float:
        return self._until - self._clock.monotonic()

    def progress(self, value: object) -> None:
        self.say({"progress": value})

    def log(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - standard output is the run's log

    def say(self, document: Mapping[str, object]) -> None:
        """One line to the worker, whole."""
        line = json.dumps(document).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._pipe, line) :]


def main(path: str, pipe: int) -> int:
    """Run the task that standard input names; the exit code."""
    os.set_inheritable(pipe, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    call: Mapping[str, Any] = json.load(sys.stdin)
    clock = SystemClock()
    hooks = _Hooks(pipe, call["timeout"], clock)
    cancelled = Cancelled(threading.Event())
    context = _context(call, cancelled, hooks, clock)
    try:
        tasks = load_app(path).tasks
        task = tasks.get(call["task"])
        if task is None:
            outcome = unknown_task(call["task"], tasks)
        else:
            outcome = returned(_run(task, call["args"], context))
    except BaseException as error:  # noqa: BLE001 - the border of the run: SystemExit too
        traceback.print_exception(error)
        outcome = raised(error)
    hooks.say({"outcome": {**_document(outcome), "told": cancelled.seen}})
    return 0


def _run(task: Task, args: Mapping[str, object], context: Context) -> object:
    """Call it, with SIGTERM as the way to stop it."""
    arguments = task.bind(args, context)
    if task.is_async:
        return asyncio.run(_awaited(task, arguments, context.cancelled))

    def terminated(_number: int, _frame: object) -> None:
        context.cancelled.ask(CANCELLED)
        if not task.wants_context:  # it could not know
            raise SystemExit(_TERMINATED)

    return _with_sigterm(terminated, lambda: task.function(**arguments))


async def _awaited(task: Task, arguments: dict[str, Any], cancelled: Cancelled) -> object:
    this = asyncio.current_task()

    def terminated() -> None:
        cancelled.ask(CANCELLED)
        cancelled.seen = True
        if this is not None:
            this.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated)
    return await task.function(**arguments)


def _with_sigterm(handler: Callable[[int, object], None], function: Callable[[], object]) -> object:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        return function()
    finally:
        signal.signal(signal.SIGTERM, before)


def _context(call: Mapping[str, Any], cancelled: Cancelled, hooks: _Hooks, clock: Clock) -> Context:
    return Context(
        launch_id=UUID(call["launch_id"]),
        job=call["job"],
        job_id=UUID(call["job_id"]),
        attempt=call["attempt"],
        scheduled_at=datetime.fromisoformat(call["scheduled_at"]),
        deadline=clock.now() + timedelta(seconds=call["timeout"]),
        payload=call["payload"],
        fencing_token=call["fencing_token"],
        cancelled=cancelled,
        hooks=hooks,
    )


def _document(outcome: Outcome) -> dict[str, object]:
    return {
        "ok": outcome.ok,
        "outcome": outcome.outcome,
        "retryable": outcome.retryable,
        "message": outcome.message,
        "retry_after": outcome.retry_after,
        "snooze": outcome.snooze,
        "classes": list(outcome.classes),
        "value": outcome.value,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

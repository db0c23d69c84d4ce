"""The task target: Python functions of the worker's own app.

An ordinary function runs in a thread, an `async` one on one event loop, and one that asks for it
in a process of its own. A thread cannot be stopped: a function that does not look at
`context.cancelled` goes on past its time limit, and its claim is kept until it really ends, so that
no retry runs beside it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import InvalidInputError
from tickrail.core.execution import INTERRUPTED, Done, Outcome, Run, one_line
from tickrail.core.ports_metrics import Metrics
from tickrail.core.target_task import TaskCall
from tickrail.core.targets import parse_target
from tickrail.core.tasks import (
    INVALID_ARGUMENTS,
    ArgumentsError,
    Task,
    not_started,
    told,
    unknown_task,
)
from tickrail.executors.task_loop import TaskLoop
from tickrail.executors.task_process import TaskProcesses
from tickrail.executors.task_run import TaskRun
from tickrail.executors.task_threads import DaemonThreads
from tickrail.executors.task_watch import TaskWatch

_log = structlog.get_logger("tickrail.tasks")


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """How tasks are run.

    Attributes:
        max_concurrency: functions in threads and in processes at once; more wait. Async ones are
            bounded by the worker alone.
        stop_grace: seconds that a run has to stop after it was asked to: from SIGTERM to SIGKILL
            of a process, and at the end of the worker for all.
        program: runs one task in a process; see `TaskProcesses`. Empty: there are none.
    """

    max_concurrency: int = 32
    stop_grace: float = 5.0
    program: Sequence[str] = ()


class _RefusedError(Exception):
    """The task cannot be called so."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class TaskExecutor:
    """`core.execution.Executor` for `task`. `done` is called on the thread of the task."""

    kinds = frozenset({"task"})

    def __init__(
        self,
        tasks: Mapping[str, Task],
        clock: Clock,
        metrics: Metrics,
        settings: TaskSettings | None = None,
    ) -> None:
        """Ready to run.

        Args:
            tasks: the app's, by name.
            clock: measures time limits.
            metrics: take the lag of the loop.
            settings: bounds.

        Raises:
            ValueError: a task needs a process, and there is no program for it.
        """
        self._tasks = tasks
        self._clock = clock
        self._settings = settings or TaskSettings()
        self._changed = threading.Condition()
        self._closed = False
        self._running: dict[Run, TaskRun] = {}
        self._threads = DaemonThreads(self._settings.max_concurrency, "task")
        self._loop = TaskLoop() if any(_on_loop(t) for t in tasks.values()) else None
        self._processes: TaskProcesses | None = None
        if apart := [t.name for t in tasks.values() if t.process]:
            if not self._settings.program:
                raise ValueError(f"tasks {apart} need a program that runs them")
            program, grace = self._settings.program, self._settings.stop_grace
            self._processes = TaskProcesses(program, clock, grace)
        self._watch = TaskWatch(self._runs, lambda: self._loop, clock, metrics)
        self._watch.start()

    def start(self, run: Run, done: Done) -> None:
        """Begin the task, or let it wait for a free thread."""
        try:
            one = self._made(run, done)
        except _RefusedError as error:
            done(run, error.outcome)
            return
        with self._changed:
            closed = self._closed
            if not closed:
                self._running[run] = one
        if closed:
            done(run, not_started(INTERRUPTED))
        elif self._loop is not None and _on_loop(one.task):
            self._spawn(self._loop, one)
        else:
            self._submit(one)

    def cancel(self, run: Run, reason: str) -> None:
        """Tell the task; an async one is cancelled, a process gets SIGTERM and later SIGKILL."""
        one = self._running.get(run)
        if one is not None:
            one.stop(reason)

    def close(self, grace: float) -> None:
        """Wait `grace` seconds for what runs, then ask it to stop and wait for the stop grace."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._running, max(0.0, grace))
        for one in self._runs():
            one.stop(INTERRUPTED)
        with self._changed:
            # A process is gone a moment after its SIGKILL.
            self._changed.wait_for(lambda: not self._running, self._settings.stop_grace + 2.0)
            left = list(self._running.values())
            self._running.clear()
        for one in left:
            _log.warning(
                "task_left_running", task=one.title, hint="it is run again after its claim"
            )
        self._watch.close()
        if self._loop is not None:
            self._loop.close()
        if self._processes is not None:
            self._processes.close()

    @property
    def free_places(self) -> int:
        """How many more tasks that need a thread would begin at once."""
        busy = sum(not _on_loop(one.task) for one in self._runs())
        return self._settings.max_concurrency - busy

    def needs_place(self, name: str) -> bool:
        """Whether the task of this name runs in a thread or a process; one on the loop does not."""
        task = self._tasks.get(name)
        return task is not None and not _on_loop(task)

    @property
    def running(self) -> int:
        """Runs that go on or wait for a thread."""
        return len(self._running)

    def _runs(self) -> list[TaskRun]:
        with self._changed:
            return list(self._running.values())

    def _made(self, run: Run, done: Done) -> TaskRun:
        try:
            call = parse_target(run.target)
        except InvalidInputError as error:
            raise _refused("invalid_target", str(error)) from error
        if not isinstance(call, TaskCall):
            raise _refused("invalid_target", "not a task")
        task = self._tasks.get(call.name)
        if task is None:
            raise _RefusedError(unknown_task(call.name, self._tasks))
        try:
            task.bind(call.args)
        except ArgumentsError as error:
            raise _refused(INVALID_ARGUMENTS, str(error)) from error
        return TaskRun(run, task, call.args, done, self._clock)

    # --- in a thread or a process -----------------------------------------------------------------

    def _submit(self, one: TaskRun) -> None:
        def work() -> None:
            self._end(one, self._outcome(one))

        def withdraw() -> None:
            if self._threads.withdraw(work):
                self._end(one, not_started(str(one.cancelled.reason)))

        one.interrupt = withdraw
        self._threads.submit(work)

    def _outcome(self, one: TaskRun) -> Outcome:
        try:
            if one.task.process and self._processes is not None:
                return self._processes.run(one)
            return one.in_thread()
        except OSError as error:
            message = one_line(f"no process for the task: {error.strerror or error}")
            return Outcome(ok=False, outcome="cannot_start", message=message)
        except BaseException as error:  # noqa: BLE001 - the border of one run
            return _failed_inside(one, error)

    # --- on the loop ------------------------------------------------------------------------------

    def _spawn(self, loop: TaskLoop, one: TaskRun) -> None:
        async def drive() -> None:
            try:
                outcome = await one.on_loop()
            except BaseException as error:  # noqa: BLE001 - the border of one run
                outcome = _failed_inside(one, error)
            self._end(one, outcome)

        def begun(task: asyncio.Task[None]) -> None:
            one.coroutine = task

        def cancel() -> None:
            # One that has not begun will see that it must not.
            if one.coroutine is not None and one.began is not None and not one.coroutine.done():
                one.cancelled.seen = True
                one.coroutine.cancel()

        one.interrupt = lambda: loop.call(cancel)
        loop.spawn(drive(), begun)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, one: TaskRun, outcome: Outcome) -> None:
        self._watch.ended(one)
        with self._changed:
            known = self._running.pop(one.run, None) is not None
            self._changed.notify_all()
        if not known:
            return  # left behind by close
        try:
            one.done(one.run, outcome)
        except Exception:  # noqa: BLE001 - the border to the caller
            _log.exception("an outcome was not taken", launch=str(one.run.launch_id))


def _failed_inside(one: TaskRun, error: BaseException) -> Outcome:
    """How a run ended whose end cannot be told: its claim must not be kept for ever."""
    message = one_line(f"{type(error).__name__}: {told(error)}")
    _log.error("task failed inside", task=one.title, error=message)
    return Outcome(ok=False, outcome="internal", certain=False, message=message)


def _on_loop(task: Task) -> bool:
    return task.is_async and not task.process


def _refused(outcome: str, message: str) -> _RefusedError:
    return _RefusedError(
        Outcome(ok=False, outcome=outcome, retryable=False, message=one_line(message))
    )

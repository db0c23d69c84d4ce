"""Runs tasks in a test: in the test's own thread, without servers, on a clock that stands still.

    from tickrail.sdk.testing import run

    found = run(greet, {"name": "Ada"})
    assert found.value == "Hello Ada"

Time passes only where the task waits: in `context.cancelled.wait(...)`, in `asyncio.sleep(...)`
of an async task, between two attempts, and where somebody calls `FakeClock.advance`. So a task that
waits for an hour takes a moment.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tickrail.core.durations import parse_duration
from tickrail.core.execution import CANCELLED, TIMED_OUT, Outcome
from tickrail.core.retry_document import parse_retry
from tickrail.core.states import State
from tickrail.core.target_task import TaskCall
from tickrail.core.targets import parse_target
from tickrail.core.tasks import (
    INVALID_ARGUMENTS,
    ArgumentsError,
    Cancelled,
    Context,
    Task,
    ended,
    raised,
    returned,
    stopped,
    unknown_task,
)
from tickrail.core.verdict import retry_verdict, snooze_verdict
from tickrail.sdk.app import App
from tickrail.sdk.fake_time import FakeClock, FakeFlag, FakeLoop

__all__ = ["Attempt", "FakeClock", "Result", "run", "run_job"]

_LAUNCH = UUID("019b76da-a800-8000-8000-000000000001")
_JOB = UUID("019b76da-a800-7000-8000-000000000001")
_FIRST_TOKEN = 1000
_MIDDLE = 0.5
_TIMEOUT = 60.0
_MOST = 1000


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt of a run.

    Attributes:
        number: counted from 1.
        started_at: when it began, by the fake clock.
        ended_at: when it ended.
        outcome: `ok`, `raised_ValueError`, `timed_out`, ...
        value: what the task returned, where it is kept.
        message: one line for people.
        progress: what the task showed with `context.heartbeat`, in order.
        log: the lines of `context.log`.
        error: the exception that ended it.
    """

    number: int
    started_at: datetime
    ended_at: datetime
    outcome: str
    value: Any = None
    message: str = ""
    progress: tuple[Any, ...] = ()
    log: tuple[str, ...] = ()
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a launch.

    Attributes:
        state: `succeeded`, `dead`, `cancelled` or `abandoned`, as a launch's.
        attempts: each of its attempts.
    """

    state: str
    attempts: tuple[Attempt, ...]

    @property
    def outcome(self) -> str:
        """How the last attempt ended."""
        return self.attempts[-1].outcome

    @property
    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """What the last attempt returned."""
        return self.attempts[-1].value

    @property
    def progress(self) -> list[Any]:
        """What the task showed, over all attempts."""
        return [value for one in self.attempts for value in one.progress]

    @property
    def log(self) -> list[str]:
        """The lines of the log, over all attempts."""
        return [line for one in self.attempts for line in one.log]


def run(
    task: Task | App,
    args: Mapping[str, object] | None = None,
    *,
    name: str | None = None,
    payload: object = None,
    retry: Mapping[str, Any] | None = None,
    timeout: float = _TIMEOUT,
    cancel_after: float | None = None,
    clock: FakeClock | None = None,
) -> Result:
    """Run a task as a launch of a job would, with its retries, to the end.

    Args:
        task: the task, or an app and with it `name`.
        args: its arguments.
        name: which task of the app.
        payload: the job's payload.
        retry: the job's retry policy, as in its document: `{"max_attempts": 3}`. Delays are in the
            middle of their jitter.
        timeout: seconds that an attempt may take.
        cancel_after: seconds after which the launch is asked to stop.
        clock: the clock; a new one unless given.

    Returns:
        what became of it.
    """
    document = {"payload": payload, "retry": retry or {}}
    launch = _Launch(document, timeout, cancel_after, clock or FakeClock())
    if isinstance(task, Task):
        return launch.run({task.name: task}, task.name, args or {})
    tasks = task.tasks
    if name is None:
        if len(tasks) != 1:
            raise ValueError(f"name says which task of the app: one of {', '.join(sorted(tasks))}")
        (name,) = tasks
    return launch.run(tasks, name, args or {})


def run_job(
    app: App,
    document: Mapping[str, Any],
    *,
    cancel_after: float | None = None,
    clock: FakeClock | None = None,
) -> Result:
    """Run what a job's document says: by its task, arguments, payload, time limit and policies.

    Args:
        app: the tasks.
        document: the job, as the API takes it.
        cancel_after: as for `run`.
        clock: as for `run`.

    Raises:
        InvalidInputError: the target is not right.
        ValueError: it is no task.
    """
    target = parse_target(document.get("target"))
    if not isinstance(target, TaskCall):
        raise ValueError(f"the job {document.get('name', '')} calls no task")  # noqa: TRY004 - it is about the document
    timeout = parse_duration(document.get("timeout", "1m")).total_seconds()
    launch = _Launch(document, timeout, cancel_after, clock or FakeClock())
    return launch.run(app.tasks, target.name, target.args)


class _Launch:
    """A launch that is run here."""

    def __init__(
        self,
        document: Mapping[str, Any],
        timeout: float,
        cancel_after: float | None,
        clock: FakeClock,
    ) -> None:
        self.clock = clock
        self.timeout = timeout
        self.payload: object = document.get("payload")
        self.cancel_at = math.inf if cancel_after is None else clock.monotonic() + cancel_after
        self._retry = parse_retry(dict(document.get("retry") or {}))
        self._rerun = document.get("if_uncertain") != "skip"
        self._attempts: list[Attempt] = []

    def run(self, tasks: Mapping[str, Task], name: str, args: Mapping[str, object]) -> Result:
        """Attempt after attempt, until the launch has ended."""
        slot, failures = self.clock.now(), 0
        for number in range(1, _MOST + 1):
            one = _Attempt(self, number, slot)
            found = tasks.get(name)
            outcome = unknown_task(name, tasks) if found is None else one.run(found, args)
            self._attempts.append(one.record(outcome))
            if outcome.ok:
                return self._end(State.SUCCEEDED)
            if self.clock.monotonic() >= self.cancel_at:
                return self._end(State.CANCELLED)
            if outcome.snooze is not None:
                verdict = snooze_verdict(outcome.snooze, attempt=number, failures=failures)
            else:
                names = {outcome.outcome, *outcome.classes}
                verdict = retry_verdict(
                    retryable=self._retry.again(names, usual=outcome.retryable),
                    certain=outcome.certain,
                    rerun=self._rerun,
                    attempt=number,
                    failures=failures,
                    retry=self._retry,
                    spread=_MIDDLE,
                    retry_after=outcome.retry_after,
                )
            if verdict.state is not State.DUE:
                return self._end(verdict.state)
            failures = verdict.failures
            due = self.clock.monotonic() + verdict.delay.total_seconds()
            self.clock.advance(min(due, self.cancel_at) - self.clock.monotonic())
            if self.clock.monotonic() < due:
                return self._end(State.CANCELLED)
        raise AssertionError(f"the task did not end within {_MOST} attempts")

    def _end(self, state: State) -> Result:
        return Result(state=state.value, attempts=tuple(self._attempts))


class _Attempt:
    """One attempt; the hooks of its context are its own methods."""

    def __init__(self, launch: _Launch, number: int, slot: datetime) -> None:
        self._launch = launch
        self._number = number
        self._slot = slot
        self._clock = launch.clock
        self._began = self._clock.monotonic()
        self._started_at = self._clock.now()
        self._flag = FakeFlag(self._clock, self._look)
        self._cancelled = Cancelled(self._flag)
        self._progress: list[Any] = []
        self._lines: list[str] = []
        self._error: BaseException | None = None

    def remaining(self) -> float:
        return self._began + self._launch.timeout - self._clock.monotonic()

    def progress(self, value: object) -> None:
        self._progress.append(value)

    def log(self, line: str) -> None:
        self._lines.append(line)

    def run(self, task: Task, args: Mapping[str, object]) -> Outcome:
        """Call the task, as a worker would."""
        try:
            arguments = task.bind(args, self._context())
        except ArgumentsError as error:
            self._error = error
            return Outcome(ok=False, outcome=INVALID_ARGUMENTS, retryable=False, message=str(error))
        try:
            call = self._awaited if task.is_async else self._called
            value = call(task, arguments)
        except asyncio.CancelledError as error:
            if self._cancelled.reason is not None:
                return stopped(self._cancelled.reason, self._launch.timeout)
            outcome = self._raised(error)
        except BaseException as error:  # noqa: BLE001 - SystemExit of a task is its failure
            outcome = self._raised(error)
        else:
            outcome = returned(value)
        self._look()
        return ended(self._cancelled, outcome, self._launch.timeout)

    def record(self, outcome: Outcome) -> Attempt:
        """What the test is told of it."""
        return Attempt(
            number=self._number,
            started_at=self._started_at,
            ended_at=self._clock.now(),
            outcome=outcome.outcome,
            value=outcome.value,
            message=outcome.message,
            progress=tuple(self._progress),
            log=tuple(self._lines),
            error=self._error,
        )

    def _raised(self, error: BaseException) -> Outcome:
        if isinstance(error, KeyboardInterrupt):
            raise error
        self._error = error
        return raised(error)

    @staticmethod
    def _called(task: Task, arguments: dict[str, Any]) -> object:
        return task.function(**arguments)

    def _awaited(self, task: Task, arguments: dict[str, Any]) -> object:
        async def awaited() -> object:
            loop, this = asyncio.get_running_loop(), asyncio.current_task()

            def stop() -> None:
                self._look()
                if this is not None and self._cancelled.reason is not None:
                    self._cancelled.seen = True
                    this.cancel()

            at = self._next()
            timer = loop.call_at(at, stop) if at < math.inf else None
            try:
                return await task.function(**arguments)
            finally:
                if timer is not None:
                    timer.cancel()

        with asyncio.Runner(loop_factory=lambda: FakeLoop(self._clock)) as runner:
            return runner.run(awaited())

    def _context(self) -> Context:
        return Context(
            launch_id=_LAUNCH,
            job="test",
            job_id=_JOB,
            attempt=self._number,
            scheduled_at=self._slot,
            deadline=self._started_at + timedelta(seconds=self._launch.timeout),
            payload=self._launch.payload,
            fencing_token=_FIRST_TOKEN + self._number,
            cancelled=self._cancelled,
            hooks=self,
        )

    def _next(self) -> float:
        """When this attempt is asked to stop."""
        return min(self._began + self._launch.timeout, self._launch.cancel_at)

    def _look(self) -> float:
        """Ask it to stop if it is time; when it will be."""
        at = self._next()
        if self._clock.monotonic() >= at:
            timed_out = self._began + self._launch.timeout <= self._launch.cancel_at
            self._cancelled.ask(TIMED_OUT if timed_out else CANCELLED)
        return at

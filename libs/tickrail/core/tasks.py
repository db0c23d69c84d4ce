"""Tasks: Python functions that jobs call, what they are given and what their ends mean.

Used by the SDK, where tasks are made, and by the executor that runs them.
"""

from __future__ import annotations

import difflib
import inspect
import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from tickrail.core.documents import json_problems
from tickrail.core.execution import OK, PROGRESS_BYTES, TIMED_OUT, Outcome, bounded_text, one_line
from tickrail.core.target_task import CONTEXT

UNKNOWN_TASK = "unknown_task"
INVALID_ARGUMENTS = "invalid_arguments"
RETURNED_AWAITABLE = "returned_awaitable"
SNOOZED = "snoozed"
MAX_VALUE_BYTES = 16 * 1024
"""How long what a task returns may be as JSON text, to be kept."""
_MAX_NAME = 100
_NAMED = 10


class Retry(Exception):  # noqa: N818 - an instruction, named as in other task libraries
    """Raised by a task that failed and says when it wants to be tried again.

    Args:
        message: why, for people.
        after: seconds (or a timedelta) to wait at least, up to the job's longest delay; None
            leaves the delay to the job's retry policy.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.after = _seconds(after)


class Snooze(Exception):  # noqa: N818 - as above
    """Raised by a task that cannot do its work yet: it is tried again, and that is no failure.

    After a thousand attempts of a launch that were no failures, each more that snoozes is one.

    Args:
        seconds: after how many seconds, or a timedelta: from 1 s to 30 days.
        message: why, for people.
    """

    def __init__(self, seconds: float | timedelta, message: str = "") -> None:
        super().__init__(message)
        self.seconds = _seconds(seconds) or 0.0


class Fail(Exception):  # noqa: N818 - as above
    """Raised by a task that failed and would fail again: it is not tried again."""


class ArgumentsError(Exception):
    """A task was called with arguments that it does not take; the text names them."""


class Flag(Protocol):
    """A `threading.Event`, or what stands for one in a test."""

    def set(self) -> None:
        """Raise it, for good."""
        ...

    def is_set(self) -> bool:
        """Whether it is raised."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is raised, so many seconds at most; whether it is."""
        ...


class Cancelled:
    """Whether a run is asked to stop: true in a condition once it is.

    `if context.cancelled:` looks, `context.cancelled.wait(5)` waits for five seconds or until
    then. `reason` says why: `cancelled`, `timed_out`, `interrupted` (the worker stops) or
    `claim_lost`.
    """

    __slots__ = ("_flag", "reason", "seen")

    def __init__(self, flag: Flag) -> None:
        self._flag = flag
        self.reason: str | None = None
        self.seen = False
        """Whether the task has been told by now."""

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Whether the run is asked to stop."""
        return self._told(self._flag.is_set())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run is asked to stop, so many seconds at most; whether it is."""
        return self._told(self._flag.wait(timeout))

    def ask(self, reason: str) -> None:
        """Ask the run to stop; the first reason counts. For what runs tasks."""
        if self.reason is None:
            self.reason = reason
            self._flag.set()

    def _told(self, value: bool) -> bool:
        self.seen = self.seen or value
        return value


class Hooks(Protocol):
    """What a context does its work with: it differs by where the task runs."""

    def remaining(self) -> float:
        """Seconds until the time limit, negative after it."""
        ...

    def progress(self, value: object) -> None:
        """Show how far the run is."""
        ...

    def log(self, line: str) -> None:
        """Add a line to the run's log."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a task may know of its run: given to a function that has a parameter `context`.

    Attributes:
        launch_id: the launch.
        job: the name of the job.
        job_id: the job.
        attempt: counted from 1.
        scheduled_at: the slot, aware, in UTC.
        deadline: when the time limit is reached, by the worker's clock.
        payload: the job's payload, or the trigger's.
        fencing_token: higher at each later start of this launch; a receiver that refuses a lower
            one than it has seen is safe from a run that was held for lost.
        cancelled: whether the run is asked to stop.
    """

    launch_id: UUID
    job: str
    job_id: UUID
    attempt: int
    scheduled_at: datetime
    deadline: datetime
    payload: Any
    fencing_token: int
    cancelled: Cancelled
    hooks: Hooks

    @property
    def idempotency_key(self) -> str:
        """The launch's id as text: the same at every attempt."""
        return str(self.launch_id)

    @property
    def remaining(self) -> float:
        """Seconds until the time limit, negative after it."""
        return self.hooks.remaining()

    def heartbeat(self, progress: object) -> None:
        """Show how far the run is: any small JSON value, in place of the last one.

        The worker keeps the claim by itself; no task needs to call this to stay alive.

        Raises:
            ValueError: the value is no JSON or is larger than 4 KiB.
        """
        if why := _unfit(progress, PROGRESS_BYTES):
            raise ValueError(f"the progress {why}")
        self.hooks.progress(progress)

    def log(self, *values: object) -> None:
        """Add a line to the run's log, as `print` would write it."""
        self.hooks.log(" ".join(map(str, values)))


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A function that jobs can call by a name. Called itself, it is the plain function.

    Attributes:
        name: what jobs call it.
        function: what is run: an ordinary one in a thread, an `async` one on the worker's event
            loop.
        process: whether each run has a process of its own, which can be killed.
    """

    name: str
    function: Callable[..., Any]
    process: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
        """What the function returns."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def wants_context(self) -> bool:
        """Whether the function has a parameter `context`."""
        return CONTEXT in inspect.signature(self.function).parameters

    def check(self) -> None:
        """See whether a worker can call it.

        Raises:
            TypeError: it is no function.
            ValueError: it is a generator, or has a parameter that cannot be given by name.
        """
        if not callable(self.function) or isinstance(self.function, type):
            raise TypeError(f"task {self.name}: a task is a function")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise ValueError(f"task {self.name}: a generator cannot be a task")
        for name, parameter in inspect.signature(self.function).parameters.items():
            if (
                parameter.kind is inspect.Parameter.POSITIONAL_ONLY
                and parameter.default is inspect.Parameter.empty
            ):
                raise ValueError(f"task {self.name}: {name!r} cannot be given by its name")

    def bind(self, args: Mapping[str, object], context: Context | None = None) -> dict[str, Any]:
        """The keyword arguments of a call.

        Raises:
            ArgumentsError: an argument is missing or not known.
        """
        parameters = inspect.signature(self.function).parameters
        given: dict[str, Any] = {**args, CONTEXT: context} if CONTEXT in parameters else {**args}
        named = {n for n, p in parameters.items() if p.kind in _BY_NAME}
        open_ = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        missing = [
            n
            for n, p in parameters.items()
            if n in named and p.default is inspect.Parameter.empty and n not in given
        ]
        unknown = [] if open_ else [n for n in given if n not in named]
        if missing or unknown:
            wrong = [f"argument {n!r} is missing" for n in missing[:_NAMED]]
            wrong += [f"there is no argument {n[:_MAX_NAME]!r}" for n in unknown[:_NAMED]]
            takes = ", ".join(n for n in parameters if n != CONTEXT) or "none"
            raise ArgumentsError(f"task {self.name}: {'; '.join(wrong)} (it takes: {takes})")
        return given


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def unknown_task(name: str, known: Iterable[str]) -> Outcome:
    """The end of a call of a task that this worker's app does not have: another one may."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else "it has " + (", ".join(known) or "none")
    message = one_line(f"the worker's app has no task {name}: {hint}")
    return Outcome(ok=False, outcome=UNKNOWN_TASK, message=message)


def returned(value: object, log: bytes = b"") -> Outcome:
    """The end of a run that returned: a success, whatever the value.

    A value that is no JSON or too large is not kept, and the message says so: to fail would be to
    do again what is done. An awaitable, as a plain function round an `async` one returns it, is the
    work itself, and nobody has done it: that is a failure.
    """
    body = bounded_text(log, tail=True)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        kind = type(value).__name__
        message = one_line(f"it returned a {kind} that nobody awaits: make the task `async def`")
        return Outcome(
            ok=False, outcome=RETURNED_AWAITABLE, retryable=False, message=message, body=body
        )
    if value is None:
        return Outcome(ok=True, outcome=OK, body=body)
    why = _unfit(value, MAX_VALUE_BYTES)
    if why is not None:
        message = one_line(f"the returned value is not kept: it {why}")
        return Outcome(ok=True, outcome=OK, message=message, body=body)
    return Outcome(ok=True, outcome=OK, body=body, value=value)


def raised(error: BaseException, log: bytes = b"") -> Outcome:
    """The end of a run that raised: a failure, or what Retry, Snooze and Fail ask for."""
    if isinstance(error, Snooze):
        message = one_line(told(error) or f"snoozed for {error.seconds:g} s")
        body = bounded_text(log, tail=True)
        return Outcome(ok=False, outcome=SNOOZED, snooze=error.seconds, message=message, body=body)
    classes = tuple(f"raised_{_named(c)}" for c in type(error).__mro__ if c is not object)
    trace = _trace(error).encode(errors="replace")
    return Outcome(
        ok=False,
        outcome=classes[0],
        retryable=not isinstance(error, Fail),
        message=one_line(f"{type(error).__name__}: {told(error)}{_place(error)}"),
        body=bounded_text(log + trace, tail=True),
        retry_after=error.after if isinstance(error, Retry) else None,
        classes=classes[1:],
    )


def stopped(reason: str, timeout: float, log: bytes = b"") -> Outcome:
    """The end of a run that was asked to stop while it ran: how far it came is not known."""
    message, body = _words(reason, timeout), bounded_text(log, tail=True)
    return Outcome(ok=False, outcome=reason, certain=False, message=message, body=body)


def not_started(reason: str) -> Outcome:
    """The end of a run that was asked to stop before it began."""
    return Outcome(ok=False, outcome=reason, message="stopped before it started")


def ended(cancelled: Cancelled, outcome: Outcome, timeout: float) -> Outcome:
    """How a run ended that may have been asked to stop meanwhile.

    A run past its time limit has timed out, whatever it did. One that returned and was never told
    of another reason has done its work; one that was told may have left some of it out.
    """
    reason = cancelled.reason
    if reason is None or (outcome.ok and not cancelled.seen and reason != TIMED_OUT):
        return outcome
    message = outcome.message or _words(reason, timeout)
    return Outcome(ok=False, outcome=reason, certain=False, message=message, body=outcome.body)


def _words(reason: str, timeout: float) -> str:
    return f"stopped after {timeout:g} s" if reason == TIMED_OUT else "stopped"


def _unfit(value: object, limit: int) -> str | None:
    """Why a value cannot be kept."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        problems = list(json_problems(json.loads(text), ""))
    except Exception as error:  # noqa: BLE001 - a value's own methods may raise anything
        return f"is no JSON ({told(error)})"
    if problems:
        return f"{problems[0].message} (at {problems[0].pointer or '/'})"
    size = len(text.encode())
    return f"has {size} bytes of JSON, more than {limit}" if size > limit else None


def told(error: BaseException) -> str:
    """The text of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except BaseException as inner:  # noqa: BLE001 - a text must not end what it tells of
        return f"<no text: its __str__ raised {type(inner).__name__}>"


def _trace(error: BaseException) -> str:
    """The stack trace, as far as it can be had."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as inner:  # noqa: BLE001 - as above
        return f"<no stack trace: {type(inner).__name__}>\n"


def _place(error: BaseException) -> str:
    """Where an exception was raised, as ` (file:line)`."""
    found = traceback.extract_tb(error.__traceback__)
    if not found:
        return ""
    return f" ({found[-1].filename.rpartition('/')[2]}:{found[-1].lineno})"


def _named(kind: type) -> str:
    return kind.__name__[:_MAX_NAME]


def _seconds(value: float | timedelta | None) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return None if value is None else max(0.0, float(value))

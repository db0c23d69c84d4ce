"""One run of a task in this worker: from the call to its outcome, in a thread or on the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tickrail.core.clock import Clock
from tickrail.core.execution import BODY_BYTES, Done, Outcome, Run
from tickrail.core.tasks import (
    Cancelled,
    Context,
    Task,
    ended,
    not_started,
    raised,
    returned,
    stopped,
)


class TaskRun:
    """A run of a task that waits or goes on. The hooks of its context are its own methods."""

    def __init__(
        self, run: Run, task: Task, args: Mapping[str, object], done: Done, clock: Clock
    ) -> None:
        """Nothing runs yet.

        Args:
            run: the attempt.
            task: what is called.
            args: with which arguments; they fit.
            done: told of the outcome.
            clock: measures the time limit.
        """
        self.run = run
        run.began = None
        self.task = task
        self.args = args
        self.done = done
        self.cancelled = Cancelled(threading.Event())
        self.interrupt: Callable[[], None] = _nothing
        """How it is stopped besides being told."""
        self.thread: threading.Thread | None = None
        """The thread that is its own while it runs."""
        self.cpu_before = 0.0
        """The CPU seconds that this thread had used when the run began."""
        self.cpu_used = 0.0
        """The CPU seconds that it has used, where it had a thread of its own and has ended."""
        self.coroutine: asyncio.Task[None] | None = None
        self.overdue = False
        self._clock = clock
        self._log = b""
        self._lock = threading.Lock()

    @property
    def title(self) -> str:
        """What logs call it."""
        return f"{self.task.name} (launch {self.run.launch_id})"

    @property
    def began(self) -> float | None:
        """When it began by the monotonic clock; None while it waits."""
        return self.run.began

    # --- its hooks --------------------------------------------------------------------------------

    def remaining(self) -> float:
        """Seconds until the time limit."""
        begun = self._clock.monotonic() if self.began is None else self.began
        return begun + self.run.timeout - self._clock.monotonic()

    def progress(self, value: object) -> None:
        """Show how far it is."""
        if self.run.progress is not None:
            self.run.progress(value)

    def log(self, line: str) -> None:
        """Keep a line, and tell it."""
        raw = f"{line}\n".encode(errors="replace")
        with self._lock:
            self._log = (self._log + raw)[-BODY_BYTES:]
        if self.run.tell is not None:
            self.run.tell(raw)

    # --- how it goes ------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Ask it to stop; only the first time counts."""
        if self.cancelled.reason is None:
            self.cancelled.ask(reason)
            self.interrupt()

    def context(self) -> Context:
        """What its function may know."""
        run = self.run
        return Context(
            launch_id=run.launch_id,
            job=run.job_name,
            job_id=run.job_id,
            attempt=run.attempt,
            scheduled_at=run.scheduled_at,
            deadline=self._clock.now() + timedelta(seconds=run.timeout),
            payload=run.payload,
            fencing_token=run.claim,
            cancelled=self.cancelled,
            hooks=self,
        )

    def begin(self) -> bool:
        """The time limit counts from here; False: it was asked to stop before."""
        if self.cancelled.reason is not None:
            return False
        self.run.began = self._clock.monotonic()
        return True

    def in_thread(self) -> Outcome:
        """Call the function on this thread; how it ended."""
        if not self.begin():
            return not_started(str(self.cancelled.reason))
        self.thread, self.cpu_before = threading.current_thread(), time.thread_time()
        try:
            value = self.task.function(**self._arguments())
        except BaseException as error:  # noqa: BLE001 - the border of one run: SystemExit too
            return self._raised(error)
        finally:
            self.thread, self.cpu_used = None, time.thread_time() - self.cpu_before
        return self._returned(value)

    async def on_loop(self) -> Outcome:
        """Await the function on this loop; how it ended."""
        if not self.begin():
            return not_started(str(self.cancelled.reason))
        try:
            value = await self.task.function(**self._arguments())
        except asyncio.CancelledError as error:
            reason = self.cancelled.reason
            if reason is None:
                return self._raised(error)  # somebody else's cancel, inside the function
            return stopped(reason, self.run.timeout, self._log)
        except BaseException as error:  # noqa: BLE001 - as above
            return self._raised(error)
        return self._returned(value)

    def _arguments(self) -> dict[str, Any]:
        return self.task.bind(self.args, self.context() if self.task.wants_context else None)

    def _returned(self, value: object) -> Outcome:
        return ended(self.cancelled, returned(value, self._log), self.run.timeout)

    def _raised(self, error: BaseException) -> Outcome:
        trace = error.__traceback__
        error = error.with_traceback(trace.tb_next if trace else None)  # without our own call
        return ended(self.cancelled, raised(error, self._log), self.run.timeout)


def _nothing() -> None:
    """Nothing more than to be told."""

"""Looks after the tasks of a worker: their time limits, and what keeps others from running.

A blocking call in an async task stops every other one on the loop; a C function that does not let
go of the interpreter's lock stops every thread, the one that keeps the claims among them. Both are
measured (`task_loop_lag_seconds`) and the log says which task it was.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from tickrail.core.clock import Clock
from tickrail.core.execution import TIMED_OUT
from tickrail.core.ports_metrics import Metrics
from tickrail.executors.task_loop import TaskLoop, frames, where
from tickrail.executors.task_run import TaskRun

log = structlog.get_logger("tickrail.tasks")

TICK = 0.1
"""Seconds between two looks."""
LAG_LIMIT = 1.0
"""A lag of so many seconds is told in the log."""
KEPT = 60.0
"""For so many seconds the gauge shows the longest lag."""
_NAMED = 5
_REMEMBERED = 1000
_UTIME, _STIME = 11, 12


_Place = tuple[int, int]
"""Where a thread is: which frame, and which instruction of it."""


class TaskWatch:
    """Looks at the runs each tenth of a second."""

    def __init__(
        self,
        runs: Callable[[], Sequence[TaskRun]],
        loop: Callable[[], TaskLoop | None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Does not look yet.

        Args:
            runs: the runs of this worker that wait or go on.
            loop: the loop of async tasks, where there is one.
            clock: measures.
            metrics: takes the lag.
        """
        self._runs = runs
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._lags: deque[tuple[float, float]] = deque()
        self._asked: float | None = None
        self._turned: float | None = None
        self._told = False
        self._looked: float | None = None
        self._ended: deque[TaskRun] = deque(maxlen=_REMEMBERED)
        self._places: dict[TaskRun, _Place] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="task watch", daemon=True)

    def start(self) -> None:
        """Look from now on, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def ended(self, one: TaskRun) -> None:
        """A run has ended; it may have been what held the others up since the last look."""
        self._ended.append(one)

    def look(self) -> None:
        """One look."""
        now = self._clock.monotonic()
        runs = self._runs()
        lately = [self._ended.popleft() for _ in range(len(self._ended))]
        self._limits(runs)
        late = 0.0 if self._looked is None else now - self._looked - TICK
        if late > LAG_LIMIT:
            self._stalled(runs, lately, late)
        self._looked = now
        self._places = _places(runs)
        lag = max(0.0, self._loop_lag(now), late if late > LAG_LIMIT else 0.0)
        # Each lag stays until a longer one comes or a minute has passed.
        while self._lags and self._lags[-1][1] <= lag:
            self._lags.pop()
        self._lags.append((now, lag))
        while self._lags[0][0] < now - KEPT:
            self._lags.popleft()
        self._metrics.gauge("task_loop_lag_seconds", self._lags[0][1])

    def _limits(self, runs: Sequence[TaskRun]) -> None:
        """Tell those whose time is over; a process keeps its limit by itself."""
        overdue = 0
        for one in runs:
            if one.task.process or one.began is None or one.remaining() > 0:
                continue
            overdue += 1
            if not one.overdue:
                one.overdue = True
                one.stop(TIMED_OUT)
        self._metrics.gauge("task_runs_overdue", overdue)

    def _loop_lag(self, now: float) -> float:
        """How long the loop has not turned; asks it to turn once more."""
        loop = self._loop()
        if loop is None:
            return 0.0
        if self._asked is not None and self._turned is None:
            lag = now - self._asked
            if lag > LAG_LIMIT and not self._told:
                self._told = True
                self._blocked(loop, lag)
            return lag
        lag = 0.0
        if self._asked is not None and self._turned is not None:
            lag = self._turned - self._asked
            if self._told:
                log.warning("event_loop_free_again", blocked_seconds=round(lag, 1))
        self._asked, self._turned, self._told = now, None, False
        loop.call(self._note)
        return lag

    def _note(self) -> None:
        self._turned = self._clock.monotonic()

    def _blocked(self, loop: TaskLoop, lag: float) -> None:
        current = loop.current()
        found = [one for one in self._runs() if one.coroutine is current is not None]
        log.error(
            "event_loop_blocked",
            task=found[0].title if found else "none of the tasks",
            seconds=round(lag, 1),
            at=loop.where(),
            hint="an async task must not block: use await, a plain function, or process=True",
        )

    def _stalled(self, runs: Sequence[TaskRun], lately: Sequence[TaskRun], late: float) -> None:
        """No thread ran: the interpreter's lock was held, or the process was stopped.

        Named are those that may have held it, the likeliest first: by the CPU time of their
        threads, which a call that only waits does not use; then those that have ended or gone on
        since the last look, since one that stands where it stood has held nothing.
        """
        loop = self._loop()
        current = loop.current() if loop is not None else None
        found = []
        places = _places(runs)
        for one in dict.fromkeys((*lately, *runs)):
            if one.task.process or one.began is None:
                continue
            if one.coroutine is not None and one.coroutine is current and loop is not None:
                found.append((round(late, 1), True, one.title, loop.where()))
            elif (thread := one.thread) is not None:
                used = max(0.0, _cpu_seconds(thread.native_id) - one.cpu_before)
                moved = places.get(one) != self._places.get(one)
                found.append((round(used, 1), moved, one.title, where(thread.ident)))
            elif one.coroutine is None or one in lately:
                found.append((round(one.cpu_used, 1), True, one.title, "it has ended"))
        found.sort(reverse=True)
        log.error(
            "interpreter_stalled",
            seconds=round(late, 1),
            tasks=[
                {"task": title, "cpu_seconds": used, "at": at}
                for used, moved, title, at in found[:_NAMED]
                if used or moved
            ],
            hint="a task that holds the interpreter's lock needs process=True",
        )

    def _work(self) -> None:
        while not self._end.wait(TICK):
            try:
                self.look()
            except Exception:
                log.exception("the look at tasks failed")


def _places(runs: Sequence[TaskRun]) -> dict[TaskRun, _Place]:
    """Where the threads of these runs are."""
    threads = {one: one.thread.ident for one in runs if one.thread is not None}
    if not threads:
        return {}
    there = frames()
    return {
        one: (id(there[ident]), there[ident].f_lasti)
        for one, ident in threads.items()
        if ident in there
    }


def _cpu_seconds(thread: int | None) -> float:
    """The CPU time of a thread of this process, by its number in the system; 0: not known."""
    with suppress(OSError, IndexError, ValueError):
        words = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
        return (int(words[_UTIME]) + int(words[_STIME])) / os.sysconf("SC_CLK_TCK")
    return 0.0

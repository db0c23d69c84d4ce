"""The one scheduler of a simulation: virtual time, loops of processes, and the ports' faults.

One thing happens at a time. A loop's turn is an ordinary call on a thread of its own
(`fibers.py`); where a port lets time pass it waits, and others have their turns or go on with them.
So between two calls of a process anything may happen, for any time, and turns may cross.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.simulation.fibers import Fiber, go_on, rest
from tests.support.clock import START

from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.ports_bus import BusError

LOCAL = frozenset(("publish", "report", "consume", "commit"))
OUTAGES = (UnavailableError, BusError, SetupError)


class Killed(BaseException):
    """Ends the turn of a process that was killed."""


@dataclass
class Fault:
    """What happens to a call of a process: at its `nth` use from `at` on.

    `call` is a port's method, or `*`; `when` is before the call has its effect or after it. `what`:
    `crash`, `freeze` (the whole process), `stall` (this loop alone) or `fail` (the answer is lost).
    """

    at: float
    process: str
    call: str
    when: str
    what: str
    seconds: float = 0.0
    nth: int = 1


class SimClock:
    """A process's, or a server's, view of the time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.ahead = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._kernel.now + self.ahead)

    def monotonic(self) -> float:
        return 1000.0 + self._kernel.now


@dataclass(eq=False)
class Process:
    """One life of a process."""

    name: str
    clock: SimClock
    rng: random.Random
    alive: bool = True
    frozen_until: float = 0.0
    disturbed_until: float = -1.0
    held_up_until: float = -1.0
    began: float = 0.0
    cut_until: dict[str, float] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)

    def reaches(self, server: str, now: float) -> bool:
        return self.cut_until.get(server, 0.0) <= now


@dataclass(eq=False)
class Task:
    """A loop of a process."""

    process: Process
    name: str
    body: Callable[[], float]
    busy: bool = False
    again: bool = False
    resting: bool = False
    stuck: bool = False
    began: float = 0.0
    backoff: float = 0.1
    entry: int = 0


class Kernel:
    """Time and turns."""

    def __init__(self, seed: str, noise: float) -> None:
        self.now = 0.0
        self.noise = noise
        self.steps = 0
        self.crossed = 0
        self.faults: dict[str, list[Fault]] = {}
        self.troubled = False
        self.done: list[str] = []
        self.trace: list[str] | None = None
        self.down: dict[str, bool] = dict.fromkeys(
            ("etcd", "db", "kafka", "produce", "local"), False
        )
        self.crashed: Callable[[Process], None] = lambda _process: None
        self.repaired_at = float("inf")
        self._rng = random.Random(f"{seed}/kernel")
        self._heap: list[tuple[float, int, Callable[[], None] | Fiber]] = []
        self._count = 0
        self._until = 0.0
        self._home = threading.Lock()
        self._home.acquire()
        self._runs: Fiber | None = None
        self._waiting: list[Fiber] = []
        self._closing = False
        self._error: BaseException | None = None

    # --- what is to come --------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None], process: Process | None = None) -> None:
        """Do this then; what belongs to a process waits until that runs, and dies with it."""

        def run() -> None:
            if process is not None:
                if not process.alive:
                    return
                if process.frozen_until > self.now:
                    self.at(process.frozen_until, what, process)
                    return
            what()

        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, run))

    def spawn(self, process: Process, name: str, body: Callable[[], float]) -> Task:
        """A loop, which begins at once."""
        task = Task(process, name, body)
        process.tasks.append(task)
        self._schedule(task, self._rng.uniform(0.0, 0.05))
        return task

    def wake(self, task: Task) -> None:
        """Have the loop turn now, unless it rests after an error."""
        if task.busy:
            task.again = True
        elif not task.resting:
            self._schedule(task, self._rng.uniform(0.0, 0.005))

    def _schedule(self, task: Task, wait: float) -> None:
        self._count += 1
        task.entry = entry = self._count

        def run() -> None:
            if task.entry == entry and task.process.alive:
                self._turn(task)

        self.at(self.now + wait, run, task.process)

    def _turn(self, task: Task) -> None:
        if task.busy or task.stuck:
            return
        task.busy, task.again, task.resting = True, False, False
        task.began = self.now
        self.steps += 1
        try:
            wait = max(0.0, task.body())
            task.backoff = 0.1
        except Killed:
            return
        except OUTAGES:
            wait = task.backoff * self._rng.uniform(0.5, 1.0)
            task.backoff = min(2.0, task.backoff * 2)
            task.resting = True
        finally:
            task.busy = False
        if task.again and not task.resting:
            wait = 0.0
        self._schedule(task, wait + self._rng.uniform(0.0, 0.004))

    def run(self, until: float) -> None:
        """Let time pass; what is to come happens."""
        self._until = until
        go_on(self._drive)
        self._home.acquire()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """No time passes any more: turns that wait are given up."""
        self._closing = True
        for fiber in list(self._waiting):
            fiber.baton.release()
            self._home.acquire()

    def _drive(self, fiber: Fiber) -> None:
        """What is to come happens on this thread, until another one is to go on."""
        heap = self._heap
        self._runs = fiber
        try:
            while heap and heap[0][0] <= self._until and not self._closing:
                when, _, what = heapq.heappop(heap)
                self.now = max(self.now, when)
                if isinstance(what, Fiber):
                    rest(fiber)
                    what.baton.release()
                    return
                what()
            self.now = max(self.now, self._until)
        except BaseException as error:  # noqa: BLE001 - is raised where `run` was called
            self._error = self._error or error
        rest(fiber)
        self._home.release()

    # --- inside a call ----------------------------------------------------------------------------

    def sleep(self, process: Process, seconds: float, *, freeze: bool = False) -> None:
        """Time passes in a call; others have their turns. `freeze`: none of this process's has."""
        if freeze:
            process.frozen_until = max(process.frozen_until, self.now + seconds)
        self._wait(self.now + seconds)
        while process.alive and process.frozen_until > self.now:
            self._wait(process.frozen_until)
        if not process.alive:
            raise Killed

    def _wait(self, until: float) -> None:
        if self._closing:
            raise Killed
        heap, mine = self._heap, self._runs
        if (not heap or heap[0][0] > until) and until <= self._until:
            self.now = max(self.now, until)
            return
        assert mine is not None
        self._count += 1
        heapq.heappush(heap, (until, self._count, mine))
        self._waiting.append(mine)
        go_on(self._drive)
        mine.baton.acquire()
        if self._waiting[-1] is not mine:
            self.crossed += 1  # who began to wait later still waits
        self._waiting.remove(mine)
        self._runs = mine
        if self._closing:
            raise Killed

    def at_most(self, seconds: float) -> float:
        """So long, but not beyond the repair."""
        return max(0.0, min(seconds, self.repaired_at - self.now))

    def disturb(self, process: Process, seconds: float) -> None:
        """The process is out of touch for so long, by its own fault."""
        process.held_up_until = max(process.held_up_until, self.now + seconds)
        process.disturbed_until = max(process.disturbed_until, self.now + seconds)

    def kill(self, process: Process) -> None:
        """The process is no more; what it was doing ends where it is."""
        if process.alive:
            process.alive = False
            self.crashed(process)

    def say(self, who: str, what: str, *more: Any) -> None:
        """A line of the history, where one is wanted."""
        if self.trace is not None:
            text = " ".join(str(x) for x in more)
            self.trace.append(f"{self.now:9.3f} {who:4} {what} {text}".rstrip())

    def before(self, process: Process, call: str, server: str) -> None:
        """A call begins: it may be late, and it may never arrive."""
        if self._closing or not process.alive:
            raise Killed
        if process.name in self.faults:
            self._strike(process, call, "before")
        if self.noise and process.rng.random() < self.noise:
            self.sleep(process, process.rng.choice((0.002, 0.02, 0.3)))
        if self.troubled and (self.down[server] or not process.reaches(server, self.now)):
            self.sleep(process, process.rng.choice((0.0, 0.0, 0.2, 1.0)))
            self.say(process.name, call, f"{server} does not answer")
            raise UnavailableError(f"{server} does not answer")

    def after(self, process: Process, call: str) -> None:
        """A call has had its effect: its answer may be late, or be lost."""
        if process.name in self.faults:
            self._strike(process, call, "after")
        if self.noise and process.rng.random() < self.noise:
            self.sleep(process, process.rng.choice((0.002, 0.02, 0.3)))

    def _strike(self, process: Process, call: str, when: str) -> None:
        armed = self.faults[process.name]
        for fault in armed:
            if fault.at <= self.now and fault.when == when and fault.call in ("*", call):
                fault.nth -= 1
                if fault.nth <= 0:
                    armed.remove(fault)
                    if not armed:
                        del self.faults[process.name]
                    self._hit(process, call, fault)
                    return

    def _hit(self, process: Process, call: str, fault: Fault) -> None:
        self.done.append(fault.what)
        self.say(process.name, f"!! {fault.what} {fault.when} {call}", fault.seconds or "")
        seconds = self.at_most(fault.seconds)
        self.disturb(process, seconds)
        if fault.what == "crash":
            self.kill(process)
            raise Killed
        if fault.what == "fail":
            if call in LOCAL:  # these are the process's own, and have no answer to lose
                return
            raise UnavailableError(f"{call}: no answer")
        self.sleep(process, seconds, freeze=fault.what == "freeze")


def port(
    kernel: Kernel,
    process: Process,
    server: str,
    target: object,
    calls: tuple[str, ...],
    observe: Callable[..., None] | None = None,
) -> Any:
    """The object as the process reaches it: each of these calls may be struck by faults."""

    def through(name: str) -> Callable[..., Any]:
        method = getattr(target, name)

        def call(*args: Any, **more: Any) -> Any:
            kernel.before(process, name, server)
            result = method(*args, **more)
            if observe is not None:
                observe(process, name, args, result)
            kernel.after(process, name)
            return result

        return call

    made = _Port()
    for name in calls:
        setattr(made, name, through(name))
    return made


class _Port:
    """Takes the calls as attributes."""

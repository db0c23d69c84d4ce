"""Processes of servers: start, find again, signal as a whole, stop within a bound."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from tickrail.core.clock import Clock
from tickrail.local.users import SystemUser

POLL_SECONDS = 0.02
"""How often a condition of another process is looked at; there is nothing to be woken by."""

START_TIME_TOLERANCE = 5.0
"""Seconds by which a process's start time may seem to move when the wall clock is set."""

LOG_LIMIT_BYTES = 20_000_000
"""A log larger than this at a start is kept aside as `.1`."""

FOREIGN_PREFIXES = ("PG", "ETCD", "KAFKA", "JAVA_", "_JAVA", "JDK_", "LOG4J", "CLASSPATH")
"""Variables of the caller that would change a server's settings behind our back."""

StopPlan = Sequence[tuple[signal.Signals, float]]
"""Signals to send in turn, each with the seconds to wait for the end; then comes SIGKILL."""


@dataclass(frozen=True)
class Identity:
    """A process that can be told from a later one with the same pid by its start time."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Identity:
        """The process that has this pid now.

        Raises:
            psutil.NoSuchProcess: there is none.
        """
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """The running process, or None when it has ended (a zombie has)."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.created) <= START_TIME_TOLERANCE
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process() is not None

    def tree(self) -> list[psutil.Process]:
        """It and its descendants, itself first; empty when it has ended."""
        found = self.process()
        if found is None:
            return []
        try:
            return [found, *found.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def wait_until(condition: Callable[[], bool], seconds: float, clock: Clock) -> bool:
    """Whether the condition became true within so many seconds."""
    deadline = clock.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if clock.monotonic() >= deadline:
            return False
        pause.wait(POLL_SECONDS)
    return True


def signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each; those that have ended are passed over."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def stop(who: Identity, plan: StopPlan, clock: Clock) -> None:
    """End a process by the plan, by SIGKILL (with its descendants) at the last. Never hangs.

    A frozen process is thawed first, since it could not act on a signal.
    """
    signal_all(who.tree(), signal.SIGCONT)
    for number, seconds in plan:
        process = who.process()
        if process is None:
            return
        signal_all([process], number)
        if wait_until(lambda: not who.alive(), seconds, clock):
            return
    kill(who, clock)


def kill(who: Identity, clock: Clock) -> None:
    """SIGKILL the process, then its descendants, and see them gone."""
    everyone = who.tree()
    signal_all(everyone, signal.SIGKILL)
    wait_until(lambda: all(_ended(process) for process in everyone), 5.0, clock)


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class ServerProcess:
    """A child process whose output goes to a log file.

    It has a session of its own, so that Ctrl-C in the terminal reaches only us and the order of
    stopping stays ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        user: SystemUser | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        rotate(log)
        with log.open("ab") as out:
            self._child = popen(command, out=out, cwd=cwd, user=user, environment=environment)
        self.identity = Identity.of(self._child.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._child.poll()

    def alive(self) -> bool:
        """Whether it still runs; reaps it when it has ended."""
        return self._child.poll() is None

    def stop(self, plan: StopPlan, clock: Clock) -> None:
        """End it within the plan's bounds."""
        stop(self.identity, plan, clock)
        self._reap()

    def kill(self, clock: Clock) -> None:
        """SIGKILL it and its descendants, as a loss of power would."""
        kill(self.identity, clock)
        self._reap()

    def _reap(self) -> None:
        """Take the exit code; a process that even SIGKILL does not end (a dead disk) is left."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(5.0)


def popen(
    command: Sequence[str],
    *,
    out: IO[bytes],
    cwd: Path,
    user: SystemUser | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command with a clean environment, its own session and all output in one file."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=clean_environment(environment),
        start_new_session=True,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=[] if user else None,
    )


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would steer a server, and with `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN_PREFIXES)}
    return kept | dict(more or {})


def rotate(log: Path) -> None:
    """Keep a log that has grown too large aside."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log file; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])

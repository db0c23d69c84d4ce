"""What PostgreSQL, etcd and Kafka on this machine have in common.

One process each, that can be started, waited for, stopped, killed, frozen and started again on the
same port and data.
"""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tickrail.core.clock import Clock
from tickrail.local import procs
from tickrail.local.errors import LocalServersError, died_at_start, not_ready
from tickrail.local.procs import Identity, ServerProcess, StopPlan
from tickrail.local.users import SystemUser

READY_SECONDS = 60.0
"""How long a server may take until it answers; a first start on a slow disk takes some seconds."""


@dataclass(frozen=True)
class Place:
    """Where a server lives.

    Attributes:
        folder: its own folder in the data folder.
        log: the file that takes its output.
        clock: measures waiting.
        fast: for tests: nothing is flushed to disk; a loss of power may lose data, a killed
            process does not.
        cancelled: set when the start was given up: nothing is started or waited for any more.
        changed: called after a process was started or has ended.
    """

    folder: Path
    log: Path
    clock: Clock
    fast: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)
    changed: Callable[[], None] = lambda: None


class Server(ABC):
    """One server process."""

    name: ClassVar[str]
    """What people call it."""
    program_name: ClassVar[str]
    """What the system calls the process."""
    stop_plan: ClassVar[StopPlan]
    """How it is asked to end."""

    port: int
    """Where clients reach it."""
    user: SystemUser | None = None
    """Whom it runs as, where that is not us."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._process: ServerProcess | None = None

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the program."""

    @abstractmethod
    def prepare(self) -> None:
        """Make its files where they are missing. Idempotent."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers now. Does not block for long, raises nothing."""

    def environment(self) -> Mapping[str, str]:
        """Variables for the process, over this process's own."""
        return {}

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process and self._process.alive() else None

    @property
    def identity(self) -> Identity | None:
        """The running process, safe against reuse of its pid."""
        return self._process.identity if self._process and self._process.alive() else None

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may be frozen or not ready yet."""
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """How the last process ended (negative: by this signal); None if it runs or never did."""
        return self._process.exit_code if self._process else None

    def start(self) -> None:
        """Start the process; does nothing while it runs. `wait_ready` says when it answers.

        Raises:
            LocalServersError: its files cannot be made or the program cannot be run.
        """
        if self.alive:
            return
        self.prepare()
        self._check_cancelled()
        try:
            self._process = ServerProcess(
                self.command(),
                log=self.place.log,
                cwd=self.place.folder,
                user=self.user,
                environment=self.environment(),
            )
        except OSError as error:
            raise LocalServersError(f"{self.name} cannot be started: {error}") from error
        self.place.changed()

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it answers.

        Raises:
            LocalServersError: it ended, or did not answer in time; with its last log lines.
        """
        given_up = self.place.cancelled.is_set
        procs.wait_until(
            lambda: not self.alive or given_up() or self.is_ready(), seconds, self.place.clock
        )
        self._check_cancelled()
        if not self.alive:
            self.place.changed()
            log = self.place.log
            raise died_at_start(self.name, self.exit_code, log, procs.tail(log))
        if not self.is_ready():
            raise not_ready(self.name, seconds, self.place.log, procs.tail(self.place.log))

    def _check_cancelled(self) -> None:
        if self.place.cancelled.is_set():
            raise LocalServersError(f"the start of {self.name} was given up")

    def stop(self) -> None:
        """Stop it in an orderly way, by force if it takes too long. Never hangs."""
        if self._process is not None and self.alive:
            self._process.stop(self.stop_plan, self.place.clock)
            self.place.changed()

    def kill(self) -> None:
        """SIGKILL it and all its child processes, without warning."""
        if self._process is not None and self.alive:
            self._process.kill(self.place.clock)
            self.place.changed()

    def restart(self) -> None:
        """Stop it if it runs, start it on the same port and data, wait until it answers."""
        self.stop()
        self.start()
        self.wait_ready()

    def freeze(self) -> None:
        """SIGSTOP it and its child processes: connections stay open, nothing answers."""
        if self.identity is not None:
            procs.signal_all(self.identity.tree(), signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        if self.identity is not None:
            procs.signal_all(self.identity.tree(), signal.SIGCONT)

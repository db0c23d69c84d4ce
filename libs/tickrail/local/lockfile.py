"""One holder for a data folder.

The lock is the kernel's (flock): it is gone with the process that held it, so a holder that was
killed can never block the next one. The text inside only says who holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from tickrail.core.clock import Clock
from tickrail.local.errors import LocalServersError
from tickrail.local.procs import Identity


@dataclass(frozen=True)
class Holder:
    """Who holds a data folder: a process, what it was started as, and since when (ISO 8601)."""

    pid: int
    created: float
    command: str
    since: str

    @property
    def identity(self) -> Identity:
        """The process, safe against a pid that was given to another one."""
        return Identity(self.pid, self.created)

    def __str__(self) -> str:
        since = datetime.fromisoformat(self.since).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"process {self.pid} (`{self.command}`) since {since}"


class FolderLock:
    """The exclusive hold on a data folder, for as long as this process lives or until released."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._file: IO[str] | None = None

    def acquire(self) -> Holder:
        """Take the lock, without waiting.

        Raises:
            LocalServersError: another process holds it; the message says which.
        """
        file = (self._folder / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            who = holder_of(self._folder)
            raise LocalServersError(
                f"{self._folder} is in use by {who or 'another process'};"
                " stop it there (`tickrail down`) or choose another data folder"
            ) from None
        me = Holder(
            pid=os.getpid(),
            created=Identity.of(os.getpid()).created,
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200],
            since=self._clock.now().isoformat(timespec="seconds"),
        )
        file.truncate(0)
        file.write(json.dumps(asdict(me)))
        file.flush()
        self._file = file
        return me

    def release(self) -> None:
        """Give it back; does nothing when it is not held."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def holder_of(folder: Path) -> Holder | None:
    """The live process that holds this folder; None when nobody does or it cannot be told yet."""
    try:
        with (folder / "lock").open() as file:
            holder = Holder(**json.loads(file.read()))
    except (OSError, ValueError, TypeError):
        return None
    return holder if holder.identity.alive() else None

"""A small process that outlives a killed holder and stops its servers in order.

It waits for the end of its standard input, a pipe whose other end only the holder has. When the
holder ends, however that was, the pipe ends. What it finds still running then, it stops. (Linux
could kill a child with its parent, but not in order, and not on macOS.)

Run as `python -m tickrail.local.guard DATA_FOLDER HOLDER_PID HOLDER_CREATED`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tickrail.core.clock import SystemClock
from tickrail.local import state
from tickrail.local.procs import Identity


def spawn(folder: Path, holder: Identity) -> subprocess.Popen[bytes]:
    """Start a guard for this process; closing its `stdin` lets it look and end."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tickrail.local.guard"),
            *(str(folder), str(holder.pid), repr(holder.created)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def watch(folder: Path, holder: Identity, pipe: int) -> list[str]:
    """Wait for the end of the pipe, then stop what the holder left; the names of that.

    The state file of a later holder is left alone, and the file is never removed from here: the
    next start may be writing its own at this moment.
    """
    while os.read(pipe, 4096):
        pass
    found = state.read(folder)
    if found is None or found.holder != holder:
        return []
    return state.stop_leftovers(found, SystemClock())


def main() -> None:
    """The program."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    folder, pid, created = sys.argv[1:]
    watch(Path(folder), Identity(int(pid), float(created)), sys.stdin.fileno())


if __name__ == "__main__":
    main()

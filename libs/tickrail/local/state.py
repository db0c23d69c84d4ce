"""What runs in a data folder, written down so that a successor can find it.

The file names the holder, the processes in the order in which they are to be stopped, and the
addresses. While the holder lives it is the truth; after the holder was killed it says what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tickrail.core.clock import Clock
from tickrail.local import procs
from tickrail.local.procs import Identity, StopPlan

STATE_FILE = "state.json"
PROGRAMS = ("java", "etcd", "postgres")
"""The programs of our servers, in the order of stopping: Kafka, etcd, PostgreSQL."""

LEFTOVER_PLANS: dict[str, StopPlan] = {
    "java": [(signal.SIGTERM, 15.0)],
    "etcd": [(signal.SIGTERM, 10.0)],
    "postgres": [(signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0)],
}


@dataclass(frozen=True)
class Running:
    """One server process: what people call it, its program, and who it is."""

    name: str
    program: str
    identity: Identity


@dataclass(frozen=True)
class RunState:
    """The content of the file."""

    holder: Identity
    servers: Sequence[Running] = ()
    addresses: dict[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    """Folders whose names appear in the command lines of our servers."""


def write(folder: Path, state: RunState) -> None:
    """Replace the file; only its owner can read it, since a DSN holds a password."""
    target = folder / STATE_FILE
    fresh = target.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump(asdict(state), file, indent=1)
    fresh.replace(target)


def read(folder: Path) -> RunState | None:
    """What the file says; None when there is none or it cannot be read."""
    try:
        stored = json.loads((folder / STATE_FILE).read_text())
        return RunState(
            holder=Identity(**stored["holder"]),
            servers=[
                Running(one["name"], one["program"], Identity(**one["identity"]))
                for one in stored["servers"]
            ],
            addresses=stored["addresses"],
            folders=stored["folders"],
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remove(folder: Path) -> None:
    """Everything has been stopped in order."""
    (folder / STATE_FILE).unlink(missing_ok=True)


def leftovers(state: RunState) -> list[Running]:
    """The server processes of a run that still live, in the order in which to stop them.

    Those written down, and those started in the instant before the holder was killed, which are
    known by their program and by our folder in their command line.
    """
    known = [one for one in state.servers if one.identity.alive()]
    pids = {one.identity.pid for one in known}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            program = process.name()
            if process.pid in pids or program not in PROGRAMS:
                continue
            if process.ppid() in pids:
                continue  # a child of one that we know
            if _mentions(process.cmdline(), state.folders):
                pids.add(process.pid)
                known.append(Running(program, program, Identity.of(process.pid)))
    return sorted(known, key=lambda one: PROGRAMS.index(one.program))


def stop_leftovers(state: RunState, clock: Clock) -> list[str]:
    """Stop what a killed holder left behind, in order; the names of what was stopped."""
    found = leftovers(state)
    for one in found:
        procs.stop(one.identity, LEFTOVER_PLANS[one.program], clock)
    return [one.name for one in found]


def _mentions(command: Sequence[str], folders: Sequence[str]) -> bool:
    return any(folder in argument for argument in command for folder in folders)

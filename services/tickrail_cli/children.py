"""The processes of `tickrail up`: started with their output in a pipe, found again, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO

from tickrail.core.clock import Clock
from tickrail.executors import guard
from tickrail.local import procs
from tickrail.local.procs import Identity
from tickrail.local.server import Server

CHILDREN_FILE = "processes.json"
TARGETS_FILE = "metrics.json"
"""Where the metrics of each process are, as `file_sd_configs` of Prometheus reads it."""
_WRITING = threading.Lock()
_OK = 200

Sink = Callable[[str, str], None]
"""Takes a process's name and one of its lines."""


class Guard:
    """A small process that kills the children when this process is gone, however it went."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, str(Path(guard.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Kill this process group too."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """It has ended; its number may be given to another one."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Let it end; it kills what it still watches."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
        self._process = None

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()


class Service:
    """One process of the installation. Its session is its own: Ctrl-C reaches only the parent.

    Args:
        name: what logs and people call it.
        arguments: of `tickrail`, such as `scheduler`.
        environment: all its variables.
        sink: takes its lines.
        guard: kills it when we are gone.
        changed: called after it was started, and when it has said where its status is.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        sink: Sink,
        guard: Guard,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        # -P: a file in the current folder must not stand in for a module.
        self._command = [sys.executable, "-P", "-m", "tickrail_cli", *arguments]
        self._environment = dict(environment)
        self._sink = sink
        self._guard = guard
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._status: str | None = None
        self.identity: Identity | None = None

    @property
    def status(self) -> str | None:
        """The address of its status port, with its metrics; None while it has not said so."""
        return None if self._status is None else self._status.removeprefix("http://")

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it; does nothing while it runs."""
        if self.alive:
            return
        if self._process is not None:
            self._guard.forget(self._process.pid)
        self._status = None
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self._guard.watch(self._process.pid)
        self.identity = Identity.of(self._process.pid)
        self._changed()
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name=self.name, daemon=True
        )
        self._reader.start()

    def ready(self) -> str | None:
        """What is missing until it does its work; None when nothing is."""
        if not self.alive:
            return "it does not run"
        status = self._status
        if status is None:
            return "it is starting"
        try:
            return _missing(status)
        except (OSError, HTTPException, ValueError) as error:
            return f"its status does not answer ({error})"

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def finish(self, seconds: float) -> bool:
        """Wait for its end so long, then kill it; whether it ended by itself."""
        if self._process is None:
            return True
        by_itself = True
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            by_itself = False
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._guard.forget(self._process.pid)
        if self._reader is not None:
            self._reader.join(2.0)
        return by_itself

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for raw in pipe:
                line = raw.decode(errors="replace").rstrip("\n")
                if '"serving"' in line:
                    self._note(line)
                self._sink(self.name, line)

    def _note(self, line: str) -> None:
        """Where its status is: it says so when it serves."""
        with contextlib.suppress(ValueError, AttributeError):
            event = json.loads(line)
            if event.get("event") == "serving":
                self._status = event.get("status")
                self._changed()


class ServerChild:
    """A local server under the supervisor."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = server.name

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._server.alive

    @property
    def exit_code(self) -> int | None:
        """How it ended."""
        return self._server.exit_code

    def start(self) -> None:
        """Start it on the same port and data; the services wait until it answers."""
        self._server.start()


def _missing(status: str) -> str | None:
    """What /readyz says is missing."""
    host = status.removeprefix("http://")
    connection = HTTPConnection(host, timeout=2.0)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    return None if answer.status == _OK else " ".join(text.split())[:300]


def note(folder: Path, services: Sequence[Service]) -> None:
    """Write down which processes run, for a successor of a killed `up`, and where metrics are."""
    found = [
        {"name": s.name, "pid": s.identity.pid, "created": s.identity.created}
        for s in services
        if s.identity is not None
    ]
    targets = [
        {"targets": [s.status], "labels": {"process": s.name}}
        for s in services
        if s.status is not None
    ]
    with _WRITING:  # one that serves says so in a thread of its own
        for name, what in ((CHILDREN_FILE, found), (TARGETS_FILE, targets)):
            target = folder / name
            fresh = target.with_suffix(".new")
            fresh.write_text(json.dumps(what))
            fresh.replace(target)


def forget(folder: Path) -> None:
    """Everything has been stopped."""
    for name in (CHILDREN_FILE, TARGETS_FILE):
        (folder / name).unlink(missing_ok=True)


def stop_leftovers(folder: Path, clock: Clock) -> list[str]:
    """Kill the processes that a killed `up` left in this folder; their names."""
    try:
        stored = json.loads((folder / CHILDREN_FILE).read_text())
        left = [(str(s["name"]), Identity(s["pid"], s["created"])) for s in stored]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    found = [(name, who) for name, who in left if who.alive()]
    for _, who in found:
        procs.kill(who, clock)
    forget(folder)
    return [name for name, _ in found]

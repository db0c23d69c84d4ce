"""One command as a process group: started, watched, stopped, its output kept within a bound."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Self

from tickrail.core.clock import Clock
from tickrail.core.execution import BODY_BYTES
from tickrail.core.resource_limits import NO_LIMITS, ResourceLimits
from tickrail.core.stream_mask import StreamMasker

_LINUX = hasattr(os, "pidfd_open")
_CHUNK = 65536
_POLL = 0.05
"""Seconds between looks at a process where the system cannot wake us when it ends."""


class Identity(NamedTuple):
    """Whom a command runs as; `switch` when that is another user than the worker's."""

    name: str
    home: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    switch: bool


class RefusedUserError(Exception):
    """The command cannot run as that user."""


def identity(user: str | None) -> Identity:
    """Look up a user; None is the worker's own.

    Raises:
        RefusedUserError: no such user, or the worker may not become it.
    """
    own = os.geteuid()
    try:
        entry = pwd.getpwuid(own) if user is None else pwd.getpwnam(user)
    except KeyError:
        if user is None:  # a container may run under a number without a name
            return Identity(str(own), os.environ.get("HOME", "/"), own, os.getegid(), (), False)
        raise RefusedUserError(f"there is no user {user} on this worker") from None
    if entry.pw_uid == own:
        return Identity(entry.pw_name, entry.pw_dir, own, entry.pw_gid, (), switch=False)
    if own != 0:
        raise RefusedUserError(f"this worker is not root and cannot run commands as {user}")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Identity(entry.pw_name, entry.pw_dir, entry.pw_uid, entry.pw_gid, groups, switch=True)


class Watcher:
    """The guard program: kills the groups of a worker that dies. Thread-safe."""

    def __init__(self) -> None:
        """Starts it at once, so that it is told of a group within a moment of its start."""
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process: subprocess.Popen[str] | None = None
        self._tell("")

    def add(self, group: int) -> None:
        """From now on this group dies with the worker."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """The group's leader has ended."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard; what is still listed is killed."""
        with self._lock:
            if self._process is not None:
                self._end(self._process)
                self._process = None

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        process.wait()

    def _tell(self, line: str) -> None:
        if self._process is not None:
            try:
                _write(self._process, line)
            except BrokenPipeError:  # somebody killed it: a new one, told everything
                self._end(self._process)
            else:
                return
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            cwd="/",
        )
        _write(self._process, "".join(f"+{group}\n" for group in sorted(self._groups)))


class Ended(NamedTuple):
    """How a process ended: exit status or negative signal number, and why it was stopped if so."""

    status: int
    output: bytes
    stopped: str | None


class Process:
    """One running command. `run` belongs to one thread; `stop` may come from any.

    Attributes, to be set before `run`:
        limits: what each of its processes may use.
        tell: is given the output as it comes.
        masker: what the output goes through first.
    """

    def __init__(self, watcher: Watcher, clock: Clock, *, pass_fds: Sequence[int] = ()) -> None:
        """Nothing runs yet.

        Args:
            watcher: is told of the group.
            clock: measures the time limit.
            pass_fds: open files that it inherits besides its three.
        """
        self._watcher = watcher
        self._clock = clock
        self._pass_fds = tuple(pass_fds)
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._open = True
        self.started = False
        self.limits: ResourceLimits = NO_LIMITS
        self.tell: Callable[[bytes], None] | None = None
        self.masker: StreamMasker | None = None

    def stop(self, reason: str) -> None:
        """Ask it to end; the first reason counts."""
        with self._lock:
            if self._open and self._reason is None:
                self._reason = reason
                os.write(self._wake_write, b"x")

    @property
    def reason(self) -> str | None:
        """Why it was asked to stop."""
        return self._reason

    def release(self) -> None:
        """Give back what it holds; afterwards `stop` does nothing."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._wake_read)
                os.close(self._wake_write)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: dict[str, str],
        cwd: str,
        who: Identity,
        stdin: bytes,
        timeout: float,
        grace: float,
    ) -> Ended:
        """Run it to its end.

        It is stopped after `timeout` seconds or by `stop`: SIGTERM to its group, SIGKILL `grace`
        seconds later or as soon as the group has let go of the output. A command that ends by
        itself leaves its background children alone, as cron does.

        Args:
            argv: program and arguments.
            env: all its variables.
            cwd: the folder that it begins in.
            who: whom it runs as.
            stdin: its standard input.
            timeout: seconds that it may take.
            grace: seconds from SIGTERM to SIGKILL.

        Raises:
            OSError: it cannot be started.
        """
        with tempfile.TemporaryFile() as source:
            source.write(stdin)
            source.seek(0)
            if self.limits:
                process = self._start_limited(argv, env, cwd, who, source)
            else:
                process = self._start(argv, env, cwd, who, source)
        try:
            output = _Tail(_stdout(process).fileno(), self.tell, self.masker)
            return self._watch(process, output, timeout, grace)
        except BaseException:
            _signal(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            _stdout(process).close()

    def _start_limited(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        who: Identity,
        source: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        """Start it by way of the launcher, which sets the limits and switches the user."""
        plan = {
            "argv": list(argv),
            "env": env,
            "limits": self.limits.numbers(),
            "identity": (who.uid, who.gid, who.groups) if who.switch else None,
        }
        read, write = os.pipe()
        with (
            os.fdopen(read, "rb") as status,
            os.fdopen(write, "wb") as told,
            tempfile.TemporaryFile() as file,
        ):
            file.write(json.dumps(plan).encode())
            file.seek(0)
            own = who._replace(switch=False)
            fds = (file.fileno(), told.fileno())
            launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py"))]
            process = self._start([*launcher, *map(str, fds)], {}, cwd, own, source, fds)
            told.close()  # its own end is left, which closes when the command begins
            said = status.read()
        if said:
            self._watcher.remove(process.pid)
            process.wait()
            _stdout(process).close()
            self.started = False
            number, text = json.loads(said)
            raise OSError(number, text)
        return process

    def _start(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        who: Identity,
        source: IO[bytes],
        more_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            pass_fds=(*self._pass_fds, *more_fds),
            user=who.uid if who.switch else None,
            group=who.gid if who.switch else None,
            extra_groups=who.groups if who.switch else None,
        )
        self.started = True
        self._watcher.add(process.pid)
        return process

    def _watch(
        self, process: subprocess.Popen[bytes], output: _Tail, timeout: float, grace: float
    ) -> Ended:
        deadline = self._clock.monotonic() + timeout
        with _Signals(process, self._wake_read, output.fd) as signals:
            stopped: str | None = None
            while True:
                left = deadline - self._clock.monotonic()
                if left <= 0 or (stopped is None and self._reason is not None):
                    if stopped is not None:
                        break  # the grace is over
                    stopped = self._reason or "timed_out"
                    _signal(process.pid, signal.SIGTERM)
                    deadline = self._clock.monotonic() + grace
                    signals.forget(self._wake_read)
                    continue
                ready = signals.wait(left)
                if output.fd in ready and not output.read():
                    signals.forget(output.fd)
                if _has_ended(process):
                    if stopped is None or output.at_end:
                        break
                    signals.forget_end()
        if stopped is not None:
            # The leader is not reaped yet, so the number is still the group's.
            _signal(process.pid, signal.SIGKILL)
        output.drain()
        self._watcher.remove(process.pid)  # before the number is free for others
        status = process.wait()
        return Ended(status, output.kept, stopped)


class _Tail:
    """The end of what comes out of a pipe; told on as it comes, without values of secrets."""

    def __init__(
        self, fd: int, tell: Callable[[bytes], None] | None, masker: StreamMasker | None
    ) -> None:
        self.fd = fd
        self.at_end = False
        self.kept = b""
        self._tell = tell
        self._masker = masker
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Take what is there; False at the end."""
        return self._take() != 0

    def _take(self) -> int:
        """How much there was; 0 at the end, -1 where there is nothing now."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return -1
        self.at_end = not data
        self._keep(data if self._masker is None else self._masker.feed(data))
        return len(data)

    def _keep(self, data: bytes) -> None:
        if data:
            self.kept = (self.kept + data)[-BODY_BYTES:]
            if self._tell is not None:
                self._tell(data)

    def drain(self) -> None:
        """Take what is left without waiting, at most a megabyte: others may go on writing."""
        for _ in range(16):
            if self.at_end or self._take() <= 0:
                break
        if self._masker is not None:
            self._keep(self._masker.end())


class _Signals:
    """Waits for output, the end of the process and the wake-up of `stop`."""

    def __init__(self, process: subprocess.Popen[bytes], *fds: int) -> None:
        self._selector = selectors.DefaultSelector()
        for fd in fds:
            self._selector.register(fd, selectors.EVENT_READ)
        self._pidfd = os.pidfd_open(process.pid) if _LINUX else None
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._selector.close()
        if self._pidfd is not None:
            os.close(self._pidfd)

    def wait(self, seconds: float) -> set[int]:
        bound = seconds if self._pidfd is not None else min(seconds, _POLL)
        return {int(key.fd) for key, _ in self._selector.select(bound)}

    def forget(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def forget_end(self) -> None:
        """The process ended; only its output is waited for."""
        if self._pidfd is not None:
            self.forget(self._pidfd)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader ended; on Linux without reaping it, so that its number stays taken."""
    if _LINUX:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdout is None:
        raise RuntimeError("the command was started without a pipe for its output")
    return process.stdout


def _write(process: subprocess.Popen[str], text: str) -> None:
    if process.stdin is None:
        raise RuntimeError("the guard was started without a pipe for its input")
    process.stdin.write(text)
    process.stdin.flush()

"""The command target: programs on the worker's machine, each in a process group of its own.

Only for workers that are started with it allowed. The environment is small, as under cron; the
target adds to it. A command that is stopped gets SIGTERM and later SIGKILL, its whole group with
it. When the worker itself is killed, a guard program kills the groups. A process that makes a
session or a group of its own (`setsid`, a daemon) leaves the group and escapes both.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import InvalidInputError, TickrailError
from tickrail.core.execution import (
    INTERRUPTED,
    OK,
    Done,
    Outcome,
    Run,
    bounded_text,
    one_line,
)
from tickrail.core.resource_limits import NO_LIMITS, ResourceLimits
from tickrail.core.secrets import Masker, SecretReader, SecretRef
from tickrail.core.stream_mask import StreamMasker
from tickrail.core.target_command import Command
from tickrail.core.targets import parse_target
from tickrail.executors.http_rules import instant_text
from tickrail.executors.process import Ended, Identity, Process, RefusedUserError, Watcher, identity

_log = structlog.get_logger(__name__)

BASE_PATH = "/usr/bin:/bin"
BASE_SHELL = "/bin/sh"
MAX_PAYLOAD_VARIABLE = 32 * 1024
"""A larger payload is not put into the environment."""


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """How commands are run.

    Attributes:
        max_concurrency: commands at once; more wait.
        kill_grace: seconds from SIGTERM to SIGKILL.
        passed: the worker's own variables that every command gets.
        limits: the highest that a target may ask for, and what holds where it asks for nothing.
    """

    max_concurrency: int = 32
    kill_grace: float = 10.0
    passed: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: ResourceLimits = NO_LIMITS


class _RefusedError(Exception):
    """The command was not started."""

    def __init__(self, outcome: str, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.outcome = Outcome(
            ok=False, outcome=outcome, retryable=retryable, message=one_line(message)
        )


class _Entry(NamedTuple):
    """A command that runs or waits for a thread."""

    future: Future[None]
    process: Process
    done: Done


class CommandExecutor:
    """`core.execution.Executor` for `command`. `done` is called on the thread of the command."""

    kinds = frozenset({"command"})

    def __init__(
        self,
        clock: Clock,
        settings: CommandSettings | None = None,
        secrets: SecretReader | None = None,
    ) -> None:
        """Ready to run.

        Args:
            clock: measures time limits.
            settings: bounds.
            secrets: reads values of secrets; None: there are none.
        """
        self._clock = clock
        self._secrets = secrets
        self._settings = settings or CommandSettings()
        self._lock = threading.Lock()
        self._closed = False
        self._running: dict[Run, _Entry] = {}
        self._watcher = Watcher()
        self._threads = ThreadPoolExecutor(self._settings.max_concurrency, "command")

    def start(self, run: Run, done: Done) -> None:
        """Begin the command, or let it wait for a free thread."""
        with self._lock:
            if self._closed:
                refused = _stopped_early(INTERRUPTED)
            else:
                try:
                    process = Process(self._watcher, self._clock)
                except OSError as error:  # no file descriptor left
                    refused = _RefusedError("cannot_start", f"no pipe: {error.strerror}").outcome
                else:
                    run.began = None  # it may wait for a thread
                    future = self._threads.submit(self._handle, run, done, process)
                    self._running[run] = _Entry(future, process, done)
                    return
        done(run, refused)

    def cancel(self, run: Run, reason: str) -> None:
        """SIGTERM to the command's group, SIGKILL after the grace."""
        with self._lock:
            entry = self._running.get(run)
        if entry is None:
            return
        entry.process.stop(reason)
        if entry.future.cancel():  # it waited for a thread
            self._end(run, entry.process, entry.done, _stopped_early(reason))

    def close(self, grace: float) -> None:
        """Wait `grace` seconds for what runs, then stop it."""
        with self._lock:
            self._closed = True
            entries = list(self._running.values())
        wait([entry.future for entry in entries], timeout=max(0.0, grace))
        for entry in entries:
            entry.process.stop(INTERRUPTED)
        self._threads.shutdown(wait=True)
        self._watcher.close()

    @property
    def free_places(self) -> int:
        """How many more commands would begin at once."""
        return self._settings.max_concurrency - len(self._running)

    def needs_place(self, name: str) -> bool:
        """Every command does."""
        del name
        return True

    @property
    def running(self) -> int:
        """Commands that run or wait for a thread."""
        return len(self._running)

    # --- on the command's thread -----------------------------------------------------------------

    def _handle(self, run: Run, done: Done, process: Process) -> None:
        run.began = self._clock.monotonic()
        try:
            outcome = (
                _stopped_early(process.reason)
                if process.reason is not None
                else self._outcome(run, process)
            )
        except _RefusedError as error:
            outcome = error.outcome
        except Exception as error:  # noqa: BLE001 - the border of one run
            _log.exception("command failed inside", launch=str(run.launch_id))
            outcome = Outcome(
                ok=False,
                outcome="internal",
                certain=not process.started,
                message=one_line(f"{type(error).__name__}: {error}"),
            )
        self._end(run, process, done, outcome)

    def _end(self, run: Run, process: Process, done: Done, outcome: Outcome) -> None:
        process.release()
        with self._lock:
            self._running.pop(run, None)
        try:
            done(run, outcome)
        except Exception:  # noqa: BLE001 - the border to the caller
            _log.exception("an outcome was not taken", launch=str(run.launch_id))

    def _outcome(self, run: Run, process: Process) -> Outcome:
        try:
            target = parse_target(run.target)
        except InvalidInputError as error:
            raise _RefusedError("invalid_target", str(error), retryable=False) from error
        if not isinstance(target, Command):
            raise _RefusedError("invalid_target", "not a command", retryable=False)
        try:
            who = identity(target.user)
        except RefusedUserError as error:
            raise _RefusedError("refused_user", str(error), retryable=False) from error
        limits = self._limits(target)
        values = self._values(run, target)
        env = environment(run, target, who, self._settings.passed, values)
        masker = Masker(v.encode("utf-8", "surrogateescape") for v in values.values())
        shell = env["SHELL"] or BASE_SHELL
        argv = target.argv if target.shell is None else (shell, "-c", target.shell)
        cwd = target.cwd or (who.home if Path(who.home).is_dir() else "/")
        if not Path(cwd).is_dir():
            raise _RefusedError("cannot_start", f"there is no folder {cwd}")
        process.limits, process.tell = limits, run.tell
        process.masker = StreamMasker(masker) if masker else None
        try:
            ended = process.run(
                argv,
                env=env,
                cwd=cwd,
                who=who,
                stdin=(target.stdin or "").encode(),
                timeout=run.timeout,
                grace=self._settings.kill_grace,
            )
        except OSError as error:
            why = f"{argv[0]}: {error.strerror or error}"
            raise _RefusedError("cannot_start", why) from error
        return _outcome_of(ended, run.timeout, limits)

    def _limits(self, target: Command) -> ResourceLimits:
        most = self._settings.limits
        if (why := target.limits.above(most)) is not None:
            why = f"{why}, which this worker allows at most"
            raise _RefusedError("refused_limits", why, retryable=False)
        return target.limits.within(most)

    def _values(self, run: Run, target: Command) -> Mapping[str, str]:
        """The values of the secrets that a target names, by the secrets' names."""
        names = sorted({v.name for _, v in target.env if isinstance(v, SecretRef)})
        if not names:
            return {}
        try:
            found = {} if self._secrets is None else self._secrets.get(run.tenant_id, names)
        except TickrailError as error:
            raise _RefusedError("secrets_unavailable", str(error)) from error
        for name in names:
            if name not in found:
                why = f"there is no secret {name}"
                raise _RefusedError("secret_missing", why, retryable=False)
            if b"\x00" in found[name]:
                why = f"the secret {name} holds a NUL, which no variable can"
                raise _RefusedError("invalid_secret", why, retryable=False)
        return {name: found[name].decode("utf-8", "surrogateescape") for name in names}


def environment(
    run: Run,
    target: Command,
    who: Identity,
    passed: Mapping[str, str],
    values: Mapping[str, str],
) -> dict[str, str]:
    """The variables of a command: cron's few, the worker's, the target's, what names the run.

    Args:
        run: the run.
        target: its target.
        who: whom it runs as.
        passed: those of the worker.
        values: of the secrets that the target names.
    """
    env = {
        "SHELL": BASE_SHELL,
        "PATH": BASE_PATH,
        "HOME": who.home,
        "LOGNAME": who.name,
        "USER": who.name,
        **passed,
        **{n: values[v.name] if isinstance(v, SecretRef) else v for n, v in target.env},
        "TICKRAIL_LAUNCH_ID": str(run.launch_id),
        "TICKRAIL_JOB": run.job_name,
        "TICKRAIL_JOB_ID": str(run.job_id),
        "TICKRAIL_CLAIM": str(run.claim),
        "TICKRAIL_ATTEMPT": str(run.attempt),
        "TICKRAIL_SCHEDULED_AT": instant_text(run.scheduled_at),
    }
    if run.trace:
        env["TRACEPARENT"] = run.trace
    if run.payload is not None:
        payload = json.dumps(run.payload, separators=(",", ":"))
        if len(payload) <= MAX_PAYLOAD_VARIABLE:
            env["TICKRAIL_PAYLOAD"] = payload
    return env


def _outcome_of(ended: Ended, timeout: float, limits: ResourceLimits) -> Outcome:
    body = bounded_text(ended.output, tail=True)
    if ended.stopped is not None:
        message = f"stopped after {timeout:g} s" if ended.stopped == "timed_out" else "stopped"
        return Outcome(ok=False, outcome=ended.stopped, certain=False, message=message, body=body)
    if ended.status < 0:
        # Killed from outside (out of memory, an operator) or crashed: how far it came is unknown.
        number = -ended.status
        why = f"ended by signal {number}"
        if number == signal.SIGXCPU and limits.cpu is not None:
            why = f"used more than {limits.cpu} s of CPU time, its limit"
        elif number == signal.SIGXFSZ and limits.file_size is not None:
            why = f"wrote a file of more than {limits.file_size} bytes, its limit"
        return Outcome(
            ok=False,
            outcome=f"signal_{number}",
            certain=False,
            code=number,
            message=why,
            body=body,
        )
    if ended.status == 0:
        return Outcome(ok=True, outcome=OK, code=0, message="exit 0", body=body)
    return Outcome(
        ok=False,
        outcome=f"exit_{ended.status}",
        code=ended.status,
        message=f"exit {ended.status}",
        body=body,
    )


def _stopped_early(reason: str) -> Outcome:
    return Outcome(ok=False, outcome=reason, message="stopped before it started")

"""What a worker runs and what came of it: the port between the intake and the executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

BODY_BYTES = 4096
"""How much is kept of what a target answered or printed."""
MESSAGE_CHARS = 500
"""How long the one-line message of an outcome may be."""
LOG_BYTES = 64 * 1024
"""How much is kept of what a run prints: the end of it."""
PROGRESS_BYTES = 4096
"""How long the JSON text of a run's progress may be."""

OK = "ok"
TIMED_OUT = "timed_out"
INTERRUPTED = "interrupted"
CANCELLED = "cancelled"
CLAIM_LOST = "claim_lost"


@dataclass(slots=True, eq=False)
class Run:
    """One attempt of one launch, claimed by this worker.

    Attributes:
        launch_id: the launch; also the Idempotency-Key, the same at every attempt.
        job_id: the job.
        job_name: its name; empty for a notice, which is of no launch: then what would tell a
            target of one is left out.
        tenant_id: the tenant.
        scheduled_at: the slot, aware, in UTC.
        attempt: counted from 1.
        claim: the claim number; also the Fencing-Token.
        target: the target document, `{"<kind>": {...}}`.
        payload: any JSON value.
        timeout: seconds that the attempt may take.
        trace: a W3C traceparent, or None.
        began: the monotonic time from which the timeout counts. An executor that lets a run wait
            before it begins clears it, and sets it when the run begins.
        tell: takes output as it comes, from any thread, and returns at once; the end of it is kept
            and can be read while the run goes on. Secrets must be masked before. None: nobody
            listens.
        progress: takes a JSON value of at most PROGRESS_BYTES that says how far the run is, in
            place of the last one; from any thread. Raises ValueError where it is none or too
            large. None as for `tell`.
        secrets: values of the secrets that the target names, and of others that are to be masked;
            None: they are the tenant's.
    """

    launch_id: UUID
    job_id: UUID
    job_name: str
    tenant_id: UUID
    scheduled_at: datetime
    attempt: int
    claim: int
    target: Mapping[str, object]
    payload: object
    timeout: float
    trace: str | None = None
    tell: Callable[[bytes], None] | None = None
    progress: Callable[[object], None] | None = None
    began: float | None = None
    secrets: Mapping[str, bytes] | None = None

    @property
    def kind(self) -> str:
        """The kind of the target, the one key of its document."""
        return next(iter(self.target), "")


@dataclass(slots=True, frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        ok: whether it succeeded.
        outcome: `ok`, `http_500`, `exit_1`, `signal_9`, `timed_out`, `refused_egress`, ...
        certain: False when the effect may have happened although the attempt did not succeed: it
            timed out, the connection was lost after sending, it was stopped while it ran.
        retryable: whether trying the same again can help.
        code: HTTP status, exit status or signal number.
        message: one line for people.
        body: the start (webhook) or the end (command) of what came back, at most 4 KiB.
        retry_after: seconds that the target asked to wait.
        classes: further names of what happened, which a retry policy may name as it may `outcome`
            (for an exception `raised_<TypeName>` of each class that it derives from).
        snooze: seconds after which the run wants to be tried again, which is no failure: the
            attempt number rises, the failures do not. Not looked at where `ok`.
        place: where a message landed (`topic`, `partition`, `offset`); kept in the result.
        value: what a task returned, a JSON value; kept in the result where it is not None.
    """

    ok: bool
    outcome: str
    certain: bool = True
    retryable: bool = True
    code: int | None = None
    message: str = ""
    body: str = ""
    retry_after: float | None = None
    classes: tuple[str, ...] = ()
    snooze: float | None = None
    place: Mapping[str, object] | None = None
    value: object = None


SUCCESS = Outcome(ok=True, outcome=OK)
"""Success with nothing to tell."""

Done = Callable[[Run, Outcome], None]


class Executor(Protocol):
    """Runs attempts of some kinds of target.

    `start` returns soon and calls `done(run, outcome)` exactly once for each run, from any thread,
    possibly before it returns. It does not raise for what a run does; a run that cannot be started
    ends with an outcome. No outcome comes after `close` has returned.
    """

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of target that it runs."""
        ...

    def start(self, run: Run, done: Done) -> None:
        """Begin the run; it is stopped by itself when `run.timeout` seconds have passed."""
        ...

    def cancel(self, run: Run, reason: str) -> None:
        """Ask that a run be stopped; it ends with the outcome `reason` unless it ended first.

        `reason` is a short name: `cancelled`, `claim_lost`, `timed_out`, `interrupted`. Unknown or
        ended runs are ignored.
        """
        ...

    def close(self, grace: float) -> None:
        """Let what runs go on for `grace` seconds, then end it as `interrupted`.

        What cannot be stopped (a thread that does not mind) has no outcome: it goes on until this
        process ends, and its claim runs out after that.
        """
        ...


class Bounded(Executor, Protocol):
    """An executor with fewer places than a worker has runs."""

    @property
    def free_places(self) -> int:
        """How many more runs that need a place would begin at once."""
        ...

    def needs_place(self, name: str) -> bool:
        """Whether a run of the target of this name (a task's) needs one."""
        ...


def bounded_text(raw: bytes, *, tail: bool = False) -> str:
    """At most BODY_BYTES of output as text that Postgres can keep.

    Bytes that are not UTF-8, and NUL, become U+FFFD; the result is at most BODY_BYTES when encoded.

    Args:
        raw: the output.
        tail: keep the end instead of the start.
    """
    cut = raw[-BODY_BYTES:] if tail else raw[:BODY_BYTES]
    text = cut.decode("utf-8", "replace").replace("\x00", "\ufffd")
    if len(text.encode()) <= BODY_BYTES:
        return text
    # Each bad byte became three: cut again, on a character's border.
    again = text.encode()
    again = again[-BODY_BYTES:] if tail else again[:BODY_BYTES]
    return again.decode("utf-8", "ignore")


def one_line(text: str) -> str:
    """A message on one line, without NUL and control characters, at most MESSAGE_CHARS."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= MESSAGE_CHARS else line[: MESSAGE_CHARS - 1] + "…"

"""What runs print and how far they are, kept within a bound and written about twice a second.

Apart from claims and their ends: a database that is slow or away delays what a screen shows and
nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from tickrail.core.errors import UnavailableError
from tickrail.core.execution import LOG_BYTES, PROGRESS_BYTES, Run
from tickrail.core.ids import Claim, LaunchId, TenantId
from tickrail.core.ports_reports import ReportStore, RunReport

EVERY = 0.5
"""Seconds between two reports."""
_STATEMENT_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Told:
    """What one run has told, and what of it is not written yet."""

    run: Run
    output: bytearray = field(default_factory=bytearray)
    size: int = 0
    progress: str | None = None
    ended: bool = False
    new_output: bool = False
    new_progress: bool = False


class RunReports:
    """Takes what runs tell and writes it. Safe to use from several threads."""

    def __init__(self, store: ReportStore) -> None:
        """Nothing told yet.

        Args:
            store: where it is kept.
        """
        self._store = store
        self._lock = threading.Lock()
        self._told: dict[Run, _Told] = {}
        self._changed: dict[_Told, None] = {}

    def begin(self, run: Run) -> None:
        """From now on the run can tell."""
        told = _Told(run)
        with self._lock:
            self._told[run] = told
        run.tell = partial(self._tell, told)
        run.progress = partial(self._progress, told)

    def end(self, run: Run) -> None:
        """The run tells no more."""
        with self._lock:
            told = self._told.pop(run, None)
            if told is None:
                return
            told.ended = True
            # It refers to what refers to it: let go of here, a run is freed when it is over, and
            # not when all the process's objects are searched for such circles.
            run.tell = run.progress = _too_late
            if told.size:
                told.new_output = True
                self._changed[told] = None

    def _tell(self, told: _Told, data: bytes) -> None:
        if not data:
            return
        with self._lock:
            if told.ended:
                return
            told.size += len(data)
            told.output += data[-LOG_BYTES:]
            if len(told.output) > 2 * LOG_BYTES:
                del told.output[:-LOG_BYTES]
            told.new_output = True
            self._changed[told] = None

    def _progress(self, told: _Told, value: object) -> None:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError) as e:
            raise ValueError(f"progress is not a JSON value: {e}") from None
        if size > PROGRESS_BYTES:
            raise ValueError(f"progress has {size} bytes of JSON, at most {PROGRESS_BYTES}")
        with self._lock:
            if told.ended:
                return
            told.progress = text.replace("\\u0000", "\\ufffd")
            told.new_progress = True
            self._changed[told] = None

    def run_once(self) -> float:
        """Write what is new; seconds until the next look.

        Raises:
            UnavailableError: the database does not answer; the next call writes it.
        """
        while batch := self._take():
            try:
                self._store.write_runs([r for _, r in batch])
            except UnavailableError:
                self._give_back(batch)
                raise
        return EVERY

    def flush(self) -> None:
        """Write what is left, at the end.

        Raises:
            UnavailableError: the database does not answer; that much is lost.
        """
        self.run_once()

    def _take(self) -> list[tuple[_Told, RunReport]]:
        """What is new, up to a statement's size."""
        taken: list[tuple[_Told, bytes | None, str | None]] = []
        size = 0
        with self._lock:
            while self._changed and size < _STATEMENT_BYTES:
                told = next(iter(self._changed))
                del self._changed[told]
                output = bytes(told.output[-LOG_BYTES:]) if told.new_output else None
                taken.append((told, output, told.progress if told.new_progress else None))
                told.new_output = told.new_progress = False
                size += len(output or b"") + PROGRESS_BYTES
        return [(told, _report(told, output, progress)) for told, output, progress in taken]

    def _give_back(self, batch: Sequence[tuple[_Told, RunReport]]) -> None:
        with self._lock:
            for told, report in batch:
                told.new_output |= report.body is not None
                told.new_progress |= report.progress is not None
                self._changed[told] = None


def _too_late(told: object) -> None:
    """What comes after the run's end is not kept."""


def _report(told: _Told, output: bytes | None, progress: str | None) -> RunReport:
    run = told.run
    return RunReport(
        LaunchId(run.launch_id),
        run.scheduled_at,
        TenantId(run.tenant_id),
        run.attempt,
        Claim(run.claim),
        None if output is None else tail_text(output, cut=told.size > len(output)),
        told.size,
        told.ended,
        progress,
    )


def tail_text(output: bytes, *, cut: bool) -> str:
    """The end of an output as text that PostgreSQL can keep.

    Args:
        output: the bytes; what is not UTF-8, and NUL, becomes U+FFFD.
        cut: whether more stood before it, so that it may begin inside a character.
    """
    if cut:
        begin = 0
        while begin < min(3, len(output)) and output[begin] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8's
            begin += 1
        output = output[begin:]
    return output.decode("utf-8", "replace").replace("\x00", "\ufffd")

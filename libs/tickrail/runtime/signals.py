"""SIGTERM and SIGINT: the first asks the process to stop, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BASE = 128


class StopRequested(BaseException):
    """A stop was asked for while the process was still starting."""


class StopSignals:
    """Listens while it is entered (main thread only); puts the old handlers back.

    Attributes:
        requested: set by the first signal.
        interrupts: while true, the first signal also raises StopRequested in the main thread, so
            that a start that waits for a server can be given up.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.interrupts = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave us

    def wait(self, timeout: float) -> bool:
        """Wait for the first signal up to `timeout` seconds; whether it has come."""
        return self.requested.wait(timeout)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested.is_set():
            os._exit(_BASE + number)
        self.requested.set()
        if self.interrupts:
            raise StopRequested

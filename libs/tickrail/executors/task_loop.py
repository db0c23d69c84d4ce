"""The event loop of async tasks: one, in a thread of its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class TaskLoop:
    """An event loop in a daemon thread. `spawn` and `call` may come from any thread."""

    def __init__(self) -> None:
        """Starts it."""
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="task loop", daemon=True)
        self._thread.start()

    def spawn(
        self,
        coroutine: Coroutine[Any, Any, None],
        begun: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """Run a coroutine; `begun` gets its task on the loop's thread, before its first step."""
        self.call(lambda: begun(self._loop.create_task(coroutine)))

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop's thread; not at all once the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def current(self) -> asyncio.Task[Any] | None:
        """The task that has the loop at this moment."""
        return asyncio.current_task(self._loop)

    def where(self) -> str:
        """Where the loop's thread is: `file:line in function`."""
        return where(self._thread.ident)

    def close(self) -> None:
        """End the loop, unless something blocks it."""
        self._closing.set()
        self.call(self._loop.stop)
        self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        finally:
            self._loop.close()

    def _turn(self) -> None:
        """Run the loop until somebody stops it: a task must not end it for the others."""
        try:
            self._loop.run_forever()
        except BaseException:  # noqa: BLE001 - whatever a callback of a task raised
            _log.exception("event_loop_failed")
        else:
            if not self._closing.is_set():
                _log.error("event_loop_stopped", hint="a task stopped it; it goes on")


def where(thread: int | None) -> str:
    """Where a thread of this process is: `file:line in function`; empty where it has ended."""
    frame = frames().get(thread) if thread is not None else None
    if frame is None:
        return ""
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def frames() -> dict[int, FrameType]:
    """The innermost frame of each thread by the thread's number."""
    return sys._current_frames()  # noqa: SLF001 - the one way to see another thread's place

"""A scheduler, or a watchdog, whose clock is moved by lines on its standard input.

    python -m tests.support.shifted_scheduler [watchdog]

`wall SECONDS` moves the wall clock alone, forth or back, as NTP or an operator would.
`suspend SECONDS` moves the monotonic clock alone: what a process finds when its machine was
suspended, since that clock counts the time (CLOCK_BOOTTIME) and the wall clock is right again.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import datetime, timedelta

from tickrail.core.clock import SystemClock
from tickrail.runtime import log, service
from tickrail.runtime.settings import load_settings
from tickrail_scheduler.main import Scheduler
from tickrail_watchdog.main import WatchdogProcess


class ShiftedClock:
    """The clock of this machine, moved."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._wall = timedelta(0)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._clock.now() + self._wall

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._monotonic

    def obey(self) -> None:
        for line in sys.stdin:
            what, seconds = line.split()
            if what == "wall":
                self._wall += timedelta(seconds=float(seconds))
            else:
                self._monotonic += float(seconds)


def main() -> int:
    settings = load_settings(environ=os.environ)
    log.configure(settings.log_format, settings.log_level, settings.name)
    clock = ShiftedClock()
    threading.Thread(target=clock.obey, daemon=True).start()
    if sys.argv[1:] == ["watchdog"]:
        return service.run("watchdog", lambda: WatchdogProcess(settings, clock))
    return service.run("scheduler", lambda: Scheduler(settings, clock))


if __name__ == "__main__":
    sys.exit(main())

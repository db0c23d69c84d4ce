"""A watchdog process: every due slot, and every success that is expected."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import structlog

from tickrail.core.clock import Clock, SystemClock
from tickrail.runtime import service
from tickrail.runtime.certificates import Certificates
from tickrail.runtime.http import StatusServer
from tickrail.runtime.loop import LoopThread, stop_all, troubles
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail_watchdog.build import Parts, build

log = structlog.get_logger("tickrail.watchdog")

_POSTGRES = "postgres"


class WatchdogProcess:
    """A watchdog that runs."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Start everything.

        Raises:
            TickrailError: the database does not answer, or the installation is not as needed.
        """
        self._clock = clock
        self._began = clock.monotonic()
        self._metrics = PrometheusMetrics("watchdog")
        self._metrics.gauge("build_info", 1, version=version("tickrail"), service="watchdog")
        self._certificates = Certificates(settings, clock, self._metrics)
        self._parts: Parts | None = None
        self._loops: tuple[LoopThread, ...] = ()
        self._status = StatusServer(
            settings.status_host,
            settings.status_port,
            health=lambda: troubles(self._loops, self._clock),
            ready=self.missing,
            metrics=self,
        )
        self._status.start()
        try:
            parts = self._parts = build(settings, clock, self._metrics)
        except BaseException:
            self._status.stop()
            raise
        slots, silences = parts.stores
        self._loops = (
            LoopThread("watch", parts.watchdog.run_once, clock, stuck_after=60.0,
                       at_end=slots.close, metrics=self._metrics),
            LoopThread("silences", parts.silences.run_once, clock, stuck_after=60.0,
                       at_end=silences.close, metrics=self._metrics),
            LoopThread("alarms", parts.sender.run_once, clock, metrics=self._metrics),
        )  # fmt: skip
        for loop in self._loops:
            loop.start()
        log.info(
            "serving",
            status=f"http://{self._status.host}:{self._status.port}",
            late_after=settings.watchdog_late,
            every=settings.watchdog_every,
            webhook=parts.executor is not None,
        )

    def missing(self) -> Mapping[str, str]:
        """What is missing for the work of a watchdog."""
        if self._parts is None:
            return {"start": "the server is being looked at"}
        return {
            f"loop {loop.name}": str(loop.last_error)
            for loop in self._loops
            if loop.last_error is not None
        }

    def failed(self) -> str | None:
        """Why this process should be started anew."""
        dead = [loop.name for loop in self._loops if not loop.alive]
        return f"loop {dead[0]} has ended" if dead else None

    def render(self, accept: str) -> tuple[bytes, str]:
        """/metrics, what is read at the scrape included."""
        if self._parts is not None:
            self._certificates.look()
            now, watchdog = self._clock.monotonic(), self._parts.watchdog
            for name, at in (("look", watchdog.last_look), ("pass", watchdog.last_pass)):
                age = now - (self._began if at is None else at)
                self._metrics.gauge(f"watchdog_last_{name}_seconds", age)
            away = any(loop.last_error is not None for loop in self._loops)
            self._metrics.gauge("server_up", not away, server=_POSTGRES)
        return self._metrics.render(accept)

    def stop(self) -> None:
        """Finish the turn, give an alarm that is on its way a moment, leave."""
        stop_all(self._loops, 10.0, self._clock)
        if self._parts is not None and self._parts.executor is not None:
            self._parts.executor.close(2.0)
        self._status.stop()


def run(settings: Settings) -> int:
    """Run a watchdog until a signal; the exit code."""
    return service.run("watchdog", lambda: WatchdogProcess(settings, SystemClock()))

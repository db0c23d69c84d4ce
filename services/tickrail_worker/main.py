"""A worker process: intake and executors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.metadata import version

import structlog

from tickrail.core.clock import Clock, SystemClock
from tickrail.core.ports_bus import BusError
from tickrail.runtime import service
from tickrail.runtime.certificates import Certificates
from tickrail.runtime.http import StatusServer
from tickrail.runtime.look import Look
from tickrail.runtime.loop import LoopThread, stop_all, troubles
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail.runtime.tracing import start_tracing
from tickrail_worker.bounds import concurrency_problem
from tickrail_worker.build import Parts, build

log = structlog.get_logger("tickrail.worker")

_SETTLE_WITHIN = 5.0
_RECORD_WITHIN = 10.0
_STOP_WITHIN = 60.0
"""Seconds beyond the grace time."""


class Worker:
    """A worker that runs."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Start everything.

        Raises:
            TickrailError: a server does not answer, or the installation is not as needed.
        """
        self._settings = settings
        self._clock = clock
        self._tracing = start_tracing(settings, "worker")
        self._metrics = PrometheusMetrics("worker", trace=self._tracing.trace_id)
        self._metrics.gauge("build_info", 1, version=version("tickrail"), service="worker")
        self._certificates = Certificates(settings, clock, self._metrics)
        self._topics: set[str] = set()
        self._parts: Parts | None = None
        self._look: Look | None = None
        self._fatal: str | None = None
        self._status = StatusServer(
            settings.status_host,
            settings.status_port,
            health=lambda: troubles(self._loops, self._clock),
            ready=self.missing,
            metrics=self,
        )
        self._loops: tuple[LoopThread, ...] = ()
        self._status.start()
        try:
            parts = self._parts = build(settings, clock, self._metrics, self._tracing.tracer)
        except BaseException:
            self._status.stop()
            raise
        # One that has nothing to claim asks PostgreSQL for nothing, and could not tell.
        self._look = Look("postgresql", parts.store.trouble, clock)
        self._intake_loop = LoopThread(
            "intake", self._intake, clock, stuck_after=60.0, at_end=parts.intake.finish,
            metrics=self._metrics,
        )  # fmt: skip
        self._present = LoopThread(
            "presence", parts.presence.run_once, clock, stuck_after=60.0,
            at_end=parts.presence.leave, metrics=self._metrics,
        )  # fmt: skip
        self._loops = (
            self._intake_loop,
            LoopThread("finish", self._finish, clock,
                       stuck_after=60.0, metrics=self._metrics),
            LoopThread("heartbeat", parts.runs.heartbeat_once, clock, stuck_after=60.0,
                       metrics=self._metrics),
            LoopThread("claim watch", parts.runs.watch_once, clock, stuck_after=60.0,
                       metrics=self._metrics),
            LoopThread("run reports", parts.reports.run_once, clock, stuck_after=60.0,
                       at_end=parts.reports.flush, metrics=self._metrics),
            self._present,
            LoopThread("notices", parts.notices.run_once, clock, stuck_after=60.0,
                       at_end=parts.notices.finish, metrics=self._metrics),
        )  # fmt: skip
        for loop in self._loops:
            loop.start()
        log.info(
            "serving",
            status=f"http://{self._status.host}:{self._status.port}",
            queues=list(settings.worker_queues),
            targets=list(parts.targets),
        )
        commands = settings.command_concurrency if "command" in parts.targets else 0
        if problem := concurrency_problem(settings.worker_concurrency, commands):
            log.warning("too_few_files", reason=problem)
        service.tell_standby(synchronous=parts.installation.synchronous_standby)

    def _intake(self) -> float:
        parts = self._parts
        if parts is None:
            return 1.0
        try:
            parts.intake.run_once()
        except BusError as e:
            if e.fatal:
                self._fatal = str(e)
            raise
        return 0.0

    def _finish(self) -> float:
        if self._parts is not None:
            self._parts.runs.finish_once()
        return 0.0

    def missing(self) -> Mapping[str, str]:
        """What is missing for the work of a worker; itself answers within about two seconds."""
        if self._parts is None or self._look is None:
            return {"start": "the servers are being looked at"}
        problems = {
            f"loop {loop.name}": str(loop.last_error)
            for loop in self._loops
            if loop.last_error is not None
        }
        if trouble := self._parts.consumer.trouble:
            problems["kafka"] = str(trouble)
        return {**problems, **self._look.read()}

    def failed(self) -> str | None:
        """Why this process should be started anew."""
        dead = [loop.name for loop in self._loops if not loop.alive]
        return self._fatal or (f"loop {dead[0]} has ended" if dead else None)

    def render(self, accept: str) -> tuple[bytes, str]:
        """/metrics, what is read at the scrape included."""
        parts = self._parts
        if parts is not None:
            self._metrics.gauge("runs_active", parts.runs.count)
            self._metrics.gauge("synchronous_standby", parts.store.synchronous_standby)
            lags = parts.consumer.lag
            self._topics |= lags.keys()
            for topic in self._topics:  # also those of which it holds nothing any more
                self._metrics.gauge("consumer_lag", lags.get(topic, 0), topic=topic)
            self._metrics.gauge("server_up", parts.consumer.trouble is None, server="kafka")
            # Its loop asks PostgreSQL every few seconds; the look of /readyz may take its time.
            self._metrics.gauge("server_up", self._present.last_error is None, server="postgres")
        self._certificates.look()
        return self._metrics.render(accept)

    def stop(self) -> str | None:
        """Claim nothing more, let runs end within the grace time, give the rest back, leave.

        An interrupted run is due again at once under its next attempt; one whose owner holds a
        doubled run for worse is abandoned.
        """
        parts = self._parts
        if parts is None:
            return None
        parts.runs.drain()
        parts.intake.close_intake()
        parts.intake.settled(_SETTLE_WITHIN)
        log.info("draining", runs=parts.runs.count, grace=self._settings.drain_grace)
        parts.runs.close(self._settings.drain_grace)
        until = self._clock.monotonic() + _RECORD_WITHIN
        moment = threading.Event()
        while parts.runs.count and self._clock.monotonic() < until:
            parts.runs.wake()
            moment.wait(0.05)
        left = stop_all(self._loops, 10.0, self._clock)
        if left or parts.runs.count:
            log.warning("not_recorded", runs=parts.runs.count, loops=left)
        for publisher in parts.publishers:
            publisher.close(2.0)
        parts.store.close()
        parts.report_store.close()
        parts.notice_store.close()
        parts.facts.close()
        self._tracing.close()
        self._status.stop()
        given_back = parts.runs.interrupted
        return f"{given_back} runs were interrupted and given back" if given_back else None


def run(settings: Settings) -> int:
    """Run a worker until a signal; the exit code."""
    return service.run(
        "worker",
        lambda: Worker(settings, SystemClock()),
        stop_within=settings.drain_grace + _STOP_WITHIN,
    )

"""A scheduler process: ownership, tick, relay, reaper, history."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from math import nan

import structlog

from tickrail.core.clock import Clock, SystemClock
from tickrail.engine.members import Census
from tickrail.runtime import service
from tickrail.runtime.certificates import Certificates
from tickrail.runtime.http import StatusServer
from tickrail.runtime.loop import stop_all, troubles
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail.runtime.tracing import start_tracing
from tickrail_scheduler.build import Parts, build

log = structlog.get_logger("tickrail.scheduler")


class Scheduler:
    """A scheduler that runs."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Start everything.

        Raises:
            TickrailError: a server does not answer, or the installation is not as needed.
        """
        self._clock = clock
        self._tracing = start_tracing(settings, "scheduler")
        self._metrics = PrometheusMetrics("scheduler", trace=self._tracing.trace_id)
        self._metrics.gauge("build_info", 1, version=version("tickrail"), service="scheduler")
        self._certificates = Certificates(settings, clock, self._metrics)
        self._parts: Parts | None = None
        self._census: Census | None = None
        self._epochs: set[str] = set()
        self._status = StatusServer(
            settings.status_host,
            settings.status_port,
            health=self.health,
            ready=self.missing,
            metrics=self,
        )
        self._status.start()
        try:
            self._parts = build(settings, clock, self._metrics, self._tracing.tracer)
        except BaseException:
            self._status.stop()
            raise
        partitions = self._parts.installation.partitions
        self._census = Census(self._parts.coordinator, partitions, clock)
        for loop in self._parts.loops:
            loop.start()
        log.info(
            "serving",
            status=f"http://{self._status.host}:{self._status.port}",
            partitions=self._parts.installation.partitions,
        )
        service.tell_standby(synchronous=self._parts.installation.synchronous_standby)

    def health(self) -> Mapping[str, str]:
        """What makes this process worth restarting."""
        return {} if self._parts is None else troubles(self._parts.loops, self._clock)

    def missing(self) -> Mapping[str, str]:
        """What is missing for the work of a scheduler."""
        if self._parts is None:
            return {"start": "the servers are being looked at"}
        problems: dict[str, str] = {}
        for loop in self._parts.loops:
            if loop.last_error is not None:
                problems[f"loop {loop.name}"] = str(loop.last_error)
        problems.update(self._parts.ownership.unreachable())
        if trouble := self._parts.publisher.trouble:
            problems["kafka"] = str(trouble)
        problems.update({f"queue {q}": why for q, why in self._parts.relay.missing.items()})
        if refused := self._parts.ownership.status().refused:
            problems["ownership"] = refused
        return problems

    def failed(self) -> str | None:
        """Why this process should be started anew."""
        dead = [loop.name for loop in self._parts.loops if not loop.alive] if self._parts else []
        return f"loop {dead[0]} has ended" if dead else None

    def render(self, accept: str) -> tuple[bytes, str]:
        """/metrics, what is read at the scrape included."""
        if self._parts is not None and self._census is not None:
            self._read_ownership(self._parts, self._census)
            self._read_servers(self._parts)
        self._certificates.look()
        return self._metrics.render(accept)

    def _read_servers(self, parts: Parts) -> None:
        away = {*parts.ownership.unreachable(), *(("kafka",) if parts.publisher.trouble else ())}
        for server in ("postgres", "etcd", "kafka"):
            self._metrics.gauge("server_up", server not in away, server=server)

    def _read_ownership(self, parts: Parts, census: Census) -> None:
        status = parts.ownership.status()
        gauge = self._metrics.gauge
        gauge("partitions_owned", len(status.owned))
        gauge("lease_remaining_seconds", status.lease_remaining)
        if status.unowned is not None:
            gauge("partitions_unowned", status.unowned)
            gauge("members", len(status.members))
        else:  # no member, or one that has seen nothing yet
            counts = census.read()
            gauge("partitions_unowned", nan if counts is None else counts.unowned)
            gauge("members", nan if counts is None else counts.members)
        gauge("clock_skew_seconds", status.clock_skew)
        gauge("synchronous_standby", parts.fence.synchronous_standby)
        owned = {str(p): e for p, e in status.owned.items()}
        for partition in self._epochs - owned.keys():
            gauge("ownership_epoch", 0, partition=partition)
        for partition, epoch in owned.items():
            gauge("ownership_epoch", epoch, partition=partition)
        self._epochs |= owned.keys()

    def stop(self) -> None:
        """Finish the turn, mark what was published, hand the partitions over at once."""
        parts = self._parts
        if parts is None:
            return
        parts.owner_loop.stop(10.0)
        try:
            parts.owner.drain(2.0)
        finally:
            parts.ownership.stop()
            stop_all(parts.loops, 10.0, self._clock)
            parts.publisher.close(2.0)
            parts.coordinator.close()
            parts.store.close()
            parts.fence.close()
            self._tracing.close()
            self._status.stop()


def run(settings: Settings) -> int:
    """Run a scheduler until a signal; the exit code."""
    return service.run("scheduler", lambda: Scheduler(settings, SystemClock()))

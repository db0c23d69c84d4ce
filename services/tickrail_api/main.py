"""An API process: the application on a port of its own, its status on another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from importlib.metadata import version
from math import inf, nan

import structlog

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.core.clock import Clock, SystemClock
from tickrail.engine.members import Census
from tickrail.engine.presence import ABSENT_AFTER
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.runtime import service
from tickrail.runtime.certificates import Certificates
from tickrail.runtime.http import StatusServer
from tickrail.runtime.look import Look
from tickrail.runtime.loop import LoopThread, troubles
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import Settings
from tickrail.runtime.tracing import start_tracing
from tickrail.store.cipher import SecretCipher
from tickrail.store.engine import ApiDatabase, read_overdue
from tickrail.store.history import read_days
from tickrail.store.installation import read_installation
from tickrail.store.session import DatabaseSettings
from tickrail.store.workers import count_workers
from tickrail_api.app import ApiSettings, create_app
from tickrail_api.edge import EdgeSettings
from tickrail_api.oidc import oidc_settings
from tickrail_api.routes.status import STOPPING
from tickrail_api.server import Bounds, Server, listen

_FINISH_WITHIN = 20
"""Seconds for requests that are under way when the process is asked to stop."""
STUCK_AFTER = 120.0
"""Seconds; above what one turn can wait for a PostgreSQL that is frozen: for a connection of the
pool, the pool's look at it (32 s), a new one to each server, and a statement (32 s)."""
_LOOK_EVERY = 5.0
_KNOWN_FOR = 20.0
"""Seconds that what was seen of due jobs is shown."""
log = structlog.get_logger("tickrail.api")


class Api:
    """An API that serves."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Start everything.

        Raises:
            TickrailError: the database does not answer, the installation is not as needed, or a
                port is taken.
        """
        self._clock = clock
        egress = EgressPolicy.parse(",".join(settings.egress_allow), ",".join(settings.egress_deny))
        cipher = SecretCipher(settings.secret_keys)
        self._tracing = start_tracing(settings, "api")
        self._metrics = PrometheusMetrics("api", trace=self._tracing.trace_id)
        self._metrics.gauge("build_info", 1, version=version("tickrail"), service="api")
        self._database: ApiDatabase | None = None
        self._look: Look | None = None
        self._coordinator: EtcdCoordinator | None = None
        self._census: Census | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._loops: list[LoopThread] = []
        self._looks: LoopThread | None = None
        self._certificates = Certificates(settings, clock, self._metrics)
        self._history = timedelta(days=settings.history_days)
        self._overdue = (-inf, nan)
        self._days = (nan, nan)
        self._serving: Mapping[str, int] = {}
        self._status = StatusServer(
            settings.status_host,
            settings.status_port,
            health=self.health,
            ready=self.missing,
            metrics=self,
        )
        self._status.start()
        listener: socket.socket | None = None
        try:
            listener = listen(settings.api_host, settings.api_port, reuse=settings.api_reuse_port)
            database = DatabaseSettings(
                settings.database_url, name=settings.name, prepare=settings.prepare_statements
            )
            installation = read_installation(
                database, partitions=settings.partitions, role="tickrail_api"
            )
            # Connects when it is asked for the first time; nothing but /v1/system needs it.
            self._coordinator = EtcdCoordinator(EtcdSettings(**settings.group("etcd")))
            self._census = Census(self._coordinator, installation.partitions, clock)
            app = create_app(
                ApiSettings(
                    database=database,
                    partitions=installation.partitions,
                    history=timedelta(days=settings.history_days),
                    pepper=settings.key_pepper.encode(),
                    egress=egress,
                    cipher=cipher,
                    topic_prefix=settings.topic_prefix,
                    failures=settings.api_key_failures,
                    trusted_proxies=settings.api_trusted_proxies,
                    oidc=oidc_settings(**settings.group("oidc")),
                    edge=EdgeSettings(
                        origins=frozenset(settings.api_cors_origins),
                        hsts=settings.api_hsts,
                        body_within=settings.api_body_timeout,
                    ),
                ),
                clock,
                self._metrics,
                self._coordinator,
                self._tracing.tracer,
            )
        except BaseException:
            if listener is not None:
                listener.close()
            self._status.stop()
            raise
        self._database = app.state.parts.database
        runner = app.state.parts.runner
        self._look = app.state.parts.look
        runner.wake = self._start_loop("operations", runner.run_once).wake
        self._looks = self._start_loop("overdue jobs", self._look_at_jobs)
        self._start_loop("keys", app.state.parts.authenticator.run_once)
        bounds = Bounds(
            connections=settings.api_connections,
            head=settings.api_head_timeout,
            idle=settings.api_idle_timeout,
            finish=_FINISH_WITHIN,
        )
        self._server = Server(app, bounds, clock)
        self._stopping = app.state.stopping
        self._drain_delay = settings.api_drain_delay
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(
            target=self._server.run, args=(listener,), name="api", daemon=True
        )
        self._thread.start()
        host = f"[{settings.api_host}]" if ":" in settings.api_host else settings.api_host
        log.info(
            "serving",
            api=f"http://{host}:{self.port}",
            docs=f"http://{host}:{self.port}/docs",
            status=f"http://{self._status.host}:{self._status.port}",
            partitions=installation.partitions,
        )

    def _start_loop(self, name: str, run_once: Callable[[], float]) -> LoopThread:
        loop = LoopThread(
            name, run_once, self._clock, stuck_after=STUCK_AFTER, metrics=self._metrics
        )
        loop.start()
        self._loops.append(loop)
        return loop

    def health(self) -> Mapping[str, str]:
        """What makes this process worth restarting."""
        why = self.failed()
        found = {} if why is None else {"server": why}
        return {**found, **troubles(self._loops, self._clock)}

    def missing(self) -> Mapping[str, str]:
        """What is missing for the API to answer; itself answers within about two seconds."""
        if self._look is None:
            return {"start": "the database is being looked at"}
        if self._stopping.is_set():
            return STOPPING
        return self._look.read()

    def render(self, accept: str) -> tuple[bytes, str]:
        """/metrics, with what no scheduler tells when there is none."""
        if self._census is not None:
            counts = self._census.read()
            gauge = self._metrics.gauge
            gauge("server_up", counts is not None, server="etcd")
            gauge("partitions_unowned", nan if counts is None else counts.unowned)
            gauge("members", nan if counts is None else counts.members)
        at, overdue = self._overdue
        known = self._clock.monotonic() - at <= _KNOWN_FOR
        self._metrics.gauge("jobs_overdue_seconds", overdue if known else nan)
        ahead, late = self._days if known else (nan, nan)
        self._metrics.gauge("history_ahead_days", ahead)
        self._metrics.gauge("history_late_days", late)
        if self._looks is not None:
            self._metrics.gauge("server_up", self._looks.last_error is None, server="postgres")
        self._certificates.look()
        for queue, count in self._serving.items():
            value = float(count) if known and count >= 0 else nan
            self._metrics.gauge("queue_workers", value, queue=queue)
        return self._metrics.render(accept)

    def _look_at_jobs(self) -> float:
        """See how late the tick is, who serves the queues, and which days the history has.

        No scheduler tells this of partitions that it does not own, no worker of the others.
        """
        if self._database is not None:
            with self._database.installation() as tx:
                overdue = read_overdue(tx)
                serving = count_workers(tx, ABSENT_AFTER)
                days, today = read_days(tx), tx.now.astimezone(UTC).date()
            # A queue that is gone keeps its line, of which nothing is known any more.
            self._serving = {**dict.fromkeys(self._serving, -1), **serving}
            if days is not None:
                late = (tx.now - self._history).astimezone(UTC).date() - days.oldest
                self._days = ((days.newest - today).days, max(0, late.days))
            self._overdue = (self._clock.monotonic(), overdue)
        return _LOOK_EVERY

    def failed(self) -> str | None:
        """Why this process should be started anew."""
        ended = self._thread is not None and not self._thread.is_alive()
        return "the server has ended" if ended else None

    def stop(self) -> None:
        """Say so, wait for balancers, take no more connections, finish what is under way."""
        self._stopping.set()
        if self._drain_delay:
            log.info("draining", seconds=self._drain_delay)
            threading.Event().wait(self._drain_delay)
        self._server.stop()
        if self._thread is not None:
            self._thread.join(_FINISH_WITHIN + 5.0)
        for loop in self._loops:
            # A batch under way is finished, or rolled back and done by another process.
            loop.stop(_FINISH_WITHIN)
        if self._database is not None:
            self._database.close()
        if self._coordinator is not None:
            self._coordinator.close()
        self._tracing.close()
        self._status.stop()


def run(settings: Settings) -> int:
    """Run the API until a signal; the exit code."""
    return service.run("api", lambda: Api(settings, SystemClock()))

"""One installation on this machine, from its servers to its workers: started, kept, stopped."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, SettingsError, SetupError
from tickrail.core.targets import KINDS
from tickrail.local import ports
from tickrail.local.errors import LocalServersError
from tickrail.local.lockfile import FolderLock
from tickrail.local.progress import Progress, best_progress, step_of
from tickrail.local.stack import LocalStack
from tickrail.runtime.settings import Settings
from tickrail.runtime.signals import StopRequested, StopSignals
from tickrail.sdk.app import load_app
from tickrail.sdk.client import ApiError, Client, UnreachableError
from tickrail.store.installation import read_installation
from tickrail.store.provision import ROLES, Urls, login_of, provision
from tickrail.store.session import DatabaseSettings
from tickrail_cli import children, home
from tickrail_cli.children import Guard, ServerChild, Service
from tickrail_cli.screen import Lines, screen
from tickrail_cli.supervisor import Child, Supervisor

log = structlog.get_logger("tickrail.up")

TENANT = "default"
TARGETS = ("webhook", "kafka", "command")
TASK = "task"
LOOPBACK = ("127.0.0.0/8", "::1/128")
USUAL_API_PORT = 8080
DRAIN = 10.0
"""Seconds that runs may go on after a stop was asked for, unless set otherwise."""
READY_WITHIN = 60.0
_STOP_SLACK = 30.0
"""Seconds beyond the drain after which a process that does not stop is killed.

A worker needs up to 19 of them where a task does not listen: its stop grace, then the records.
"""
_MAINTENANCE = ("postgres", "template1")
_LOCAL_ONLY = ("database_url", "etcd_endpoints", "kafka_bootstrap")
_OWN = frozenset({"api_key", "api_url", "api_timeout", "cache_dir", "data_dir", "name"})
"""Settings that are the command line's or are given to each process."""


@dataclass(frozen=True)
class Plan:
    """What is to run.

    Attributes:
        schedulers: how many.
        workers: how many.
        external: whether servers that others run are used.
        api_url: with `external`, the connection of tickrail_api; None: made with the owner's.
        engine_url: the same for tickrail_engine.
        watchdog: whether a watchdog runs beside them.
    """

    schedulers: int
    workers: int
    external: bool = False
    api_url: str | None = None
    engine_url: str | None = None
    watchdog: bool = True


@dataclass
class _Servers:
    """The servers' addresses, and the database's connections by role."""

    urls: Urls
    etcd: str
    kafka: str
    shown: Mapping[str, str] = field(default_factory=dict)


class Installation:
    """Holds the data folder from `start` to `stop`."""

    def __init__(self, settings: Settings, plan: Plan, clock: Clock) -> None:
        self._settings = settings
        self._plan = plan
        self._clock = clock
        self.folder = settings.data_dir.expanduser().resolve()
        self._stack: LocalStack | None = None
        self._lock: FolderLock | None = None
        self._guard = Guard()
        self._services: list[Service] = []
        self._servers: _Servers | None = None
        self._port = 0
        self.supervisor = Supervisor([], clock)
        _check(settings, plan)

    @property
    def api(self) -> str:
        """Where the API is."""
        return f"http://{self._settings.api_host}:{self._port}"

    def start(self, progress: Progress) -> None:
        """Start the servers, make the database, start the processes; does not wait for these.

        Raises:
            TickrailError: says what is in the way.
        """
        stack = self._hold(progress)
        servers = self._servers = self._prepare(stack, progress)
        self._port = self._api_port()
        color = self._settings.log_format == "color" or (
            self._settings.log_format == "auto" and sys.stderr.isatty()
        )
        lines = Lines(color=color, clock=self._clock)
        self._guard.start()
        names = ["api"]
        names += [f"scheduler-{n + 1}" for n in range(self._plan.schedulers)]
        names += [f"worker-{n + 1}" for n in range(self._plan.workers)]
        names += ["watchdog"] if self._plan.watchdog else []
        self._services = [
            Service(
                name,
                [name.partition("-")[0]],
                self._environment(name, servers),
                sink=lines,
                guard=self._guard,
                changed=lambda: children.note(self.folder, self._services),
            )
            for name in names
        ]
        kept: list[Child] = [*self._services]
        if stack is not None:
            kept += [ServerChild(server) for server in stack.servers]
        self.supervisor = Supervisor(kept, self._clock)
        self.supervisor.start()

    def missing(self) -> dict[str, str]:
        """What is not ready yet, by process."""
        found = {service.name: service.ready() for service in self._services}
        return {name: what for name, what in found.items() if what is not None}

    def key(self) -> str:
        """The key of the tenant `default`: the one that was kept if it is still good, else new.

        Raises:
            TickrailError: the database does not answer.
        """
        kept = home.read_client(self.folder)
        key = kept[1] if kept is not None and self._accepts(kept[1]) else self._new_key()
        if kept != (self.api, key):
            home.write_client(self.folder, api_url=self.api, api_key=key)
        return key

    def screen(self, missing: Mapping[str, str]) -> str:
        """The last screen."""
        return screen(
            api=self.api,
            key=self.key(),
            data_dir=self.folder,
            addresses=self._servers.shown if self._servers else {},
            missing=missing,
        )

    def stop(self, progress: Progress | None = None) -> None:
        """API, schedulers, workers and watchdog together, then the servers; bounded in time."""
        for service in self._services:
            service.ask_to_stop()
        until = self._clock.monotonic() + self._drain() + _STOP_SLACK
        for service in self._services:
            if not service.finish(until - self._clock.monotonic()):
                log.warning("killed, it did not stop in time", child=service.name)
        if self._services:
            children.forget(self.folder)
        self._services = []
        self._guard.close()
        if self._stack is not None:
            self._stack.stop(progress)
            self._stack = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _hold(self, progress: Progress) -> LocalStack | None:
        """Take the folder; the local servers, started, unless others' are used."""
        if not self._plan.external:
            stack = LocalStack(self.folder, cache_dir=self._settings.cache_dir, clock=self._clock)
            try:
                stack.start(progress)
            except LocalServersError as error:
                if "already in use" not in str(error).lower():
                    raise
                # Somebody took a port between our choice and the server's bind: choose again.
                stack.start(progress)
            self._stack = stack
        else:
            stack = None
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(self.folder, self._clock)
            lock.acquire()
            self._lock = lock
        children.stop_leftovers(self.folder, self._clock)
        return stack

    def _prepare(self, stack: LocalStack | None, progress: Progress) -> _Servers:
        """The database with its roles and its schema."""
        with step_of(progress, "preparing the database") as step:
            logging.getLogger("alembic").setLevel(logging.WARNING)
            servers = self._external() if stack is None else self._local(stack)
            applied = self._migrate(servers.urls.owner)
            self._suit_queue(servers.urls.owner)
            step.done(f"schema {applied[-1]}" if applied else "up to date")
        return servers

    def _suit_queue(self, url: str) -> None:
        """The default queue serves tasks where the workers have an app, and no more than they run.

        Servers that others run may have other workers too, so there nothing is taken away.
        """
        from tickrail.store.bootstrap import default_queue_serves  # noqa: PLC0415 - needed once

        add = [TASK] if self._settings.worker_app else []
        runs = {*self._targets(), *add}
        drop = [] if self._plan.external else [kind for kind in KINDS if kind not in runs]
        default_queue_serves(url, add=add, drop=drop)

    def _migrate(self, url: str) -> list[str]:
        """Bring the schema to this version; what was applied."""
        partitions, kafka = self._settings.partitions, self._settings.topic_partitions
        if kafka is None:
            with suppress(SetupError):  # migrate does what is missing, or says what is wrong
                read_installation(DatabaseSettings(url), partitions=partitions)
                return []
        from tickrail.store.migrate import migrate  # noqa: PLC0415 - alembic is slow to load

        return migrate(url, partitions=partitions, kafka_partitions=kafka)

    def _local(self, stack: LocalStack) -> _Servers:
        at = stack.addresses
        urls = provision(at.postgres_dsn, "tickrail", home.passwords(self.folder, ROLES))
        shown = {
            "Postgres": f"{at.postgres_host}:{at.postgres_port}",
            "etcd": at.etcd_endpoints,
            "Kafka": at.kafka_bootstrap,
        }
        return _Servers(urls, at.etcd_endpoints, at.kafka_bootstrap, shown)

    def _external(self) -> _Servers:
        given, plan = self._settings, self._plan
        etcd = ",".join(given.etcd_endpoints)
        if plan.api_url is not None and plan.engine_url is not None:
            urls = Urls(given.database_url, plan.api_url, plan.engine_url)
            return _Servers(urls, etcd, given.kafka_bootstrap)
        login = login_of(given.database_url)
        if not login.superuser:
            raise SettingsError(
                "The database's roles cannot be made with this connection.",
                [
                    Problem(
                        flag,
                        "is missing, and --database-url is no superuser's",
                        f"the connection of {role}, as `tickrail migrate` makes it",
                    )
                    for flag, role, there in (
                        ("--api-database-url", "tickrail_api", plan.api_url),
                        ("--engine-database-url", "tickrail_engine", plan.engine_url),
                    )
                    if there is None
                ],
            )
        database = "tickrail" if login.database in _MAINTENANCE else login.database
        made = provision(given.database_url, database, home.passwords(self.folder, ROLES))
        return _Servers(made, etcd, given.kafka_bootstrap)

    def _api_port(self) -> int:
        """The port that was asked for, else the last one, else 8080, else any free one.

        Raises:
            SettingsError: the one that was asked for is taken.
        """
        settings = self._settings
        if "api_port" in settings.model_fields_set and settings.api_port:
            if not ports.is_free(settings.api_port):
                raise SettingsError(
                    "The API cannot listen.",
                    [
                        Problem(
                            "--port (api_port)",
                            f"{settings.api_port} is in use on this machine",
                            "a free port; left out, one is chosen",
                        )
                    ],
                )
            return settings.api_port
        before = home.read_kept(self.folder).get("api_port")
        wishes = [before if isinstance(before, int) else 0, USUAL_API_PORT]
        chosen = next((p for p in wishes if p and ports.is_free(p)), 0) or ports.any_free()
        if chosen != before:
            home.keep(self.folder, api_port=chosen)
        return chosen

    def _drain(self) -> float:
        given = self._settings
        return given.drain_grace if "drain_grace" in given.model_fields_set else DRAIN

    def _environment(self, name: str, servers: _Servers) -> dict[str, str]:
        """All variables of a process: nothing but these settings reaches it."""
        settings = self._settings
        ours = {k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")}
        chosen = {
            variable: value
            for variable, value in settings.variables().items()
            if self._passed_on(variable.removeprefix("TICKRAIL_").lower())
        }
        return {
            **ours,
            **chosen,
            "TICKRAIL_CONFIG": os.devnull,
            "TICKRAIL_NAME": name,
            "TICKRAIL_DATABASE_URL": servers.urls.api if name == "api" else servers.urls.engine,
            "TICKRAIL_ETCD_ENDPOINTS": servers.etcd,
            "TICKRAIL_KAFKA_BOOTSTRAP": servers.kafka,
            "TICKRAIL_API_PORT": str(self._port),
            "TICKRAIL_STATUS_PORT": "0",
            "TICKRAIL_LOG_FORMAT": "json",
            "TICKRAIL_EGRESS_ALLOW": ",".join(dict.fromkeys((*settings.egress_allow, *LOOPBACK))),
            "TICKRAIL_WORKER_TARGETS": ",".join(self._targets()),
            "TICKRAIL_DRAIN_GRACE": f"{self._drain():g}",
            "TICKRAIL_SECRET_KEYS": ",".join(
                settings.secret_keys or home.secret_keys(self.folder, make=True)
            ),
        }

    def _targets(self) -> Sequence[str]:
        """The kinds of target that the workers run besides tasks."""
        given = self._settings
        return given.worker_targets if "worker_targets" in given.model_fields_set else TARGETS

    def _passed_on(self, name: str) -> bool:
        """Whether a setting of `up` is one of its processes too; local servers speak plainly."""
        local = not self._plan.external and name.startswith(("etcd_", "kafka_s", "kafka_c"))
        return name not in _OWN and not local

    def _accepts(self, key: str) -> bool:
        """Whether the API takes this key; true where that cannot be asked."""
        try:
            with Client(self.api, key, 5.0) as client:
                client.request("GET", "/v1/jobs", params={"limit": 1})
        except ApiError as error:
            return error.code not in ("unauthenticated", "forbidden")
        except UnreachableError:
            return True
        return True

    def _new_key(self) -> str:
        if self._servers is None:
            raise SettingsError("The installation has not been started.")
        from tickrail.store.bootstrap import bootstrap  # noqa: PLC0415 - needed once

        return bootstrap(
            self._servers.urls.owner,
            self._clock,
            tenant=TENANT,
            allow=self._targets(),
            pepper=self._settings.key_pepper,
            name="up",
        ).token


def _check(settings: Settings, plan: Plan) -> None:
    """The servers are either named, with --external, or not; the workers' app can be loaded."""
    if settings.worker_app:
        load_app(settings.worker_app)
    given = settings.model_fields_set
    if plan.external:
        problems = [
            Problem(f"--{name.replace('_', '-')}", "is missing", "where the server is")
            for name in _LOCAL_ONLY
            if name not in given
        ]
        if problems:
            raise SettingsError("--external needs the servers' addresses.", problems)
    else:
        named = [f"--{name.replace('_', '-')}" for name in _LOCAL_ONLY if name in given]
        if named:
            log.warning("not used: up starts servers of its own unless --external", settings=named)


def run_up(settings: Settings, plan: Plan, clock: Clock) -> int:
    """Start, wait for a signal, stop; the exit code.

    Raises:
        TickrailError: it cannot start; nothing is left running.
    """
    installation = Installation(settings, plan, clock)
    with StopSignals() as signals:
        signals.interrupts = True
        try:
            with best_progress(sys.stderr) as progress:
                installation.start(progress)
            missing = _wait_ready(installation, clock)
            text = installation.screen(missing)
        except StopRequested:
            signals.interrupts = False
            _stop(installation)
            return 0
        except BaseException:
            signals.interrupts = False
            _stop(installation)
            raise
        signals.interrupts = False
        with suppress(OSError):  # nobody may be there to read it
            print(text, flush=True)
        while not signals.wait(installation.supervisor.run_once()):
            pass
        _stop(installation)
    return 0


def _stop(installation: Installation) -> None:
    with best_progress(sys.stderr) as progress:
        installation.stop(progress)


def _wait_ready(installation: Installation, clock: Clock) -> Mapping[str, str]:
    """Wait until everything works; what does not after a minute."""
    until = clock.monotonic() + READY_WITHIN
    moment = threading.Event()
    while True:
        installation.supervisor.run_once()
        missing = installation.missing()
        if not missing or clock.monotonic() >= until:
            return missing
        moment.wait(0.1)

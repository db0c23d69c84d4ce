"""PostgreSQL, etcd and Kafka together, in one data folder, for `tickrail up` and for the tests."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tickrail.core.clock import Clock, SystemClock
from tickrail.local import guard, jars, ports, procs, state, users
from tickrail.local.errors import LocalServersError
from tickrail.local.etcd import Etcd
from tickrail.local.kafka import Kafka
from tickrail.local.lockfile import FolderLock, Holder, holder_of
from tickrail.local.postgres import SUPERUSER, Postgres
from tickrail.local.progress import Progress, SilentProgress, step_of
from tickrail.local.server import Place, Server

MINIMUM_FREE_BYTES = 1_000_000_000
"""What a start wants to find on the disk: WAL and log segments grow in steps of up to 128 MB."""


@dataclass(frozen=True)
class StackAddresses:
    """Where the running servers are. The DSN is the superuser's and holds its password."""

    postgres_dsn: str
    postgres_host: str
    postgres_port: int
    postgres_user: str
    postgres_password: str
    etcd_endpoints: str
    kafka_bootstrap: str


class LocalStack:
    """The three servers of one data folder, held by this process from `start` to `stop`.

    Args:
        data_dir: made if missing; keeps data, ports, the password and logs across restarts.
        fast: for tests: nothing is flushed to disk (see `Place.fast`).
        demanded_ports: ports that must be these, by the names of `ports.Ports`; else they are
            chosen.
        usual_ports: prefer 5432, 2379 and 9092 where nothing was chosen before.
        cache_dir: where Kafka's jars are kept; `jars.cache_dir()` unless given.
        etcd_program: the etcd to run; the newest at hand unless given.
        kafka_forwarded: see `Kafka`.
        clock: measures waiting, and dates the lock.
    """

    postgres: Postgres
    etcd: Etcd
    kafka: Kafka

    def __init__(
        self,
        data_dir: Path,
        *,
        fast: bool = False,
        demanded_ports: Mapping[str, int] | None = None,
        usual_ports: bool = True,
        cache_dir: Path | None = None,
        etcd_program: Path | None = None,
        kafka_forwarded: Mapping[int, int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._kafka_forwarded = kafka_forwarded
        self.data_dir = data_dir.expanduser().resolve()
        self._fast = fast
        self._demanded = dict(demanded_ports or {})
        self._usual_ports = usual_ports
        self._cache_dir = cache_dir
        self._etcd_program = etcd_program
        self._clock = clock or SystemClock()
        self._lock = FolderLock(self.data_dir, self._clock)
        self._holder: Holder | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._writing = threading.Lock()
        self._cancelled = threading.Event()
        self._servers: list[Server] = []
        self._addresses: StackAddresses | None = None

    def start(self, progress: Progress | None = None) -> StackAddresses:
        """Start all three and wait until they answer.

        Raises:
            LocalServersError: says what is in the way; nothing is left running.
        """
        progress = progress or SilentProgress()
        _check_platform()
        self._make_folder()
        self._holder = self._lock.acquire()
        try:
            self._clean(progress)
            self._build(progress)
            self._guard = guard.spawn(self.data_dir, self._holder.identity)
            self._start_all(progress)
        except BaseException:
            self.stop()
            raise
        return self.addresses

    def stop(self, progress: Progress | None = None) -> None:
        """Stop Kafka, etcd and PostgreSQL in this order and let go of the folder. Never hangs."""
        progress = progress or SilentProgress()
        for server in self._servers:
            if server.alive:
                with step_of(progress, f"stopping {server.name}") as step:
                    server.stop()
                    step.done("stopped")
        if self._holder is not None:
            state.remove(self.data_dir)
        self._release_guard()
        self._servers = []
        self._addresses = None
        self._holder = None
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def addresses(self) -> StackAddresses:
        """Where the servers are.

        Raises:
            LocalServersError: they have not been started.
        """
        if self._addresses is None:
            raise LocalServersError(f"the servers of {self.data_dir} have not been started")
        return self._addresses

    @property
    def servers(self) -> list[Server]:
        """The three, in the order of stopping."""
        return list(self._servers)

    @property
    def server_versions(self) -> dict[str, str]:
        """The versions of the programs, by name."""
        return {
            "PostgreSQL": self.postgres.version,
            "etcd": self.etcd.version,
            "Kafka": self.kafka.version,
        }

    def ended(self) -> list[Server]:
        """The servers that have ended by themselves; a supervisor restarts them."""
        return [server for server in self._servers if not server.alive]

    def destroy(self) -> None:
        """Stop, then delete the data folder and what root keeps for it elsewhere."""
        self.stop()
        outside = self.data_dir / "postgres"
        if outside.is_symlink():
            shutil.rmtree(outside.resolve(), ignore_errors=True)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _make_folder(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            for name in ("etcd", "kafka", "logs"):
                (self.data_dir / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise LocalServersError(
                f"the data folder {self.data_dir} cannot be made: {error}; choose another one"
            ) from error
        if not os.access(self.data_dir, os.W_OK | os.X_OK):
            raise LocalServersError(
                f"the data folder {self.data_dir} cannot be written by this user;"
                " choose another one"
            )
        free = shutil.disk_usage(self.data_dir).free
        if free < MINIMUM_FREE_BYTES:
            raise LocalServersError(
                f"the disk of {self.data_dir} has {free / 1e6:.0f} MB free;"
                f" the servers need at least {MINIMUM_FREE_BYTES / 1e6:.0f} MB"
            )

    def _clean(self, progress: Progress) -> None:
        """Stop what a killed holder left."""
        left = state.read(self.data_dir)
        if left is None:
            return
        with step_of(progress, "stopping what an earlier run left") as step:
            stopped = state.stop_leftovers(left, self._clock)
            step.done(", ".join(stopped) or "all had ended")

    def _build(self, progress: Progress) -> None:
        """Find the programs, choose the ports, make the three servers."""
        self._cancelled = threading.Event()
        classpath = jars.classpath(self._cache_dir or jars.cache_dir(), progress)
        chosen = ports.choose(
            self.data_dir / "ports.json", self._demanded, prefer_usual=self._usual_ports
        )
        wanted = self.data_dir / "postgres"
        user = users.server_user(wanted / "data")
        postgres_folder = users.folder_for(user, wanted)
        self.postgres = Postgres(
            self._place("postgres", postgres_folder),
            chosen.postgres,
            self.data_dir / "postgres-password",
            user,
        )
        self.etcd = Etcd(self._place("etcd"), chosen.etcd, chosen.etcd_peer, self._etcd_program)
        self.kafka = Kafka(
            self._place("kafka"),
            chosen.kafka,
            chosen.kafka_controller,
            classpath,
            self._kafka_forwarded,
        )
        self._servers = [self.kafka, self.etcd, self.postgres]
        self._write_state()

    def _place(self, name: str, folder: Path | None = None) -> Place:
        return Place(
            folder=folder or self.data_dir / name,
            log=self.data_dir / "logs" / f"{name}.log",
            clock=self._clock,
            fast=self._fast,
            cancelled=self._cancelled,
            changed=self._write_state,
        )

    def _start_all(self, progress: Progress) -> None:
        """All three at once: Java takes the longest, the others start meanwhile."""
        pool = ThreadPoolExecutor(len(self._servers))
        try:
            started = [pool.submit(_start_one, server, progress) for server in self._servers]
            for future in wait(started, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:  # an interrupt too: no thread may start a server after the stop
            self._cancelled.set()
            raise
        finally:
            pool.shutdown()
        self._addresses = StackAddresses(
            postgres_dsn=self.postgres.dsn,
            postgres_host=ports.LOOPBACK,
            postgres_port=self.postgres.port,
            postgres_user=SUPERUSER,
            postgres_password=self.postgres.password,
            etcd_endpoints=f"{ports.LOOPBACK}:{self.etcd.port}",
            kafka_bootstrap=f"{ports.LOOPBACK}:{self.kafka.port}",
        )
        self._write_state()

    def _write_state(self) -> None:
        """Note what runs now. Called by the servers, from whatever thread starts or stops them."""
        with self._writing:
            if self._holder is None:
                return
            running = [
                state.Running(server.name, server.program_name, server.identity)
                for server in self._servers
                if server.identity is not None
            ]
            known = self._addresses
            state.write(
                self.data_dir,
                state.RunState(
                    holder=self._holder.identity,
                    servers=running,
                    addresses={k: str(v) for k, v in asdict(known).items()} if known else {},
                    folders=[str(server.place.folder) for server in self._servers],
                ),
            )

    def _release_guard(self) -> None:
        if self._guard is None:
            return
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(10.0)
        self._guard = None


def running(data_dir: Path) -> StackAddresses | None:
    """The addresses of the servers that another process runs in this folder; None if none does."""
    folder = data_dir.expanduser().resolve()
    found = state.read(folder)
    if found is None or not found.addresses or not found.holder.alive():
        return None
    stored = dict(found.addresses)
    port = int(stored.pop("postgres_port"))
    return StackAddresses(postgres_port=port, **stored)


def stop_running(data_dir: Path, *, clock: Clock | None = None, seconds: float = 90.0) -> bool:
    """Stop the process that holds this folder (SIGTERM), or what a killed one left.

    Returns whether there was anything to stop.

    Raises:
        LocalServersError: the holder did not end in time.
    """
    clock = clock or SystemClock()
    folder = data_dir.expanduser().resolve()
    holder = holder_of(folder)
    if holder is not None and holder.pid != os.getpid():
        process = holder.identity.process()
        if process is not None:
            process.terminate()
        if not procs.wait_until(lambda: not holder.identity.alive(), seconds, clock):
            raise LocalServersError(f"{holder} was asked to stop and still runs; end it by hand")
        _stop_left(folder, clock)
        return True
    return _stop_left(folder, clock)


def _stop_left(folder: Path, clock: Clock) -> bool:
    left = state.read(folder)
    if left is None or left.holder.alive():
        return False
    stopped = state.stop_leftovers(left, clock)
    state.remove(folder)
    return bool(stopped)


def _start_one(server: Server, progress: Progress) -> None:
    with step_of(progress, f"starting {server.name}") as step:
        server.start()
        server.wait_ready()
        step.done(f"{server.version}, port {server.port}")


def _check_platform() -> None:
    if sys.platform not in ("linux", "darwin"):
        raise LocalServersError(
            f"the local servers run on Linux and macOS, this is {platform.system()};"
            " use your own servers with --external, or docker-compose.yml"
        )

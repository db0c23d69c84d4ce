"""What the faults of loadtest/alerts.py are made with: an installation, and an operator's shell."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo, errors
from tests.support.etcd_program import etcd
from tests.support.processes import CLOCK, Installation, Service
from tests.support.prometheus import Prometheus, promtool
from tests.support.until import until

from tickrail.core.ids import JobId
from tickrail.store.keys import make_key

EVERY_SECOND = {"schedule": {"every": "1s"}, "overlap": "allow", "misfire": {"policy": "skip"}}
READY_WITHIN = 120.0
COMMAND_WITHIN = 60.0
ROOT = Path(__file__).parents[1]


class Shifted(Service):
    """A scheduler or watchdog whose clock is moved."""

    def start(self, failpoints: str = "") -> None:
        """Start it; there are no failpoints in it."""
        del failpoints
        with self.log.open("ab") as log:
            self._begun = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.shifted_scheduler", self.kind],
                env={**self.environment, "TICKRAIL_NAME": self.name},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def move(self, seconds: float) -> None:
        """Move its wall clock."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(f"wall {seconds}\n".encode())
            self.process.stdin.flush()


@dataclass(frozen=True)
class Ran:
    """A command line of an operator: its exit code and what it said."""

    line: str
    code: int
    said: str


class Bed:
    """What runs, and what the faults are made with."""

    def __init__(self, found: Installation, prometheus: Prometheus, folder: Path) -> None:
        self.found, self.prometheus, self.folder = found, prometheus, folder
        self.jobs: list[JobId] = []
        self.named: dict[str, str] = {}
        """What the present fault is about, as the runbooks' commands name it (`JOB`, `LAUNCH`)."""
        self.over_at = 0.0
        """When the present fault was over, seconds since 1970; 0 until then."""
        self._usual: dict[str, str] = {}
        self._api = ""
        self._operator = ""
        self._sizes: dict[Path, int] = {}

    def now(self) -> float:
        """A monotonic reading."""
        return CLOCK.monotonic()

    def begin(self) -> None:
        """Jobs of every second; and no alert fires."""
        self.jobs = self.found.add_jobs(20, {**EVERY_SECOND, "target": {"noop": {}}})
        until(lambda: self.prometheus.value("sum(tickrail_start_lag_seconds_count)") > 100, 60)
        until(lambda: not self.prometheus.firing(), 120, every=1.0)
        self._operator = self._key()
        self.about(self.jobs[0])
        self._usual = self.named

    def of(self, kind: str) -> list[Service]:
        """The services of a kind."""
        return [s for s in self.found.services.values() if s.kind == kind]

    def scrape(self) -> None:
        """Scrape what serves now."""
        self.prometheus.scrape(
            {
                name: service.status_url.removeprefix("http://")
                for name, service in self.found.services.items()
                if service.alive and service.status_url
            }
        )

    def start(self, service: Service) -> None:
        """Start a service, and scrape it when it serves."""
        self.found.services[service.name] = service
        service.start()
        until(service.ready, READY_WITHIN, every=0.2)
        self.scrape()

    def whole(self, alerts: frozenset[str]) -> None:
        """Wait until everything that should run does, and none of these alerts fires."""
        for service in self.found.services.values():
            if not service.alive:
                service.start()
        until(lambda: all(s.ready() for s in self.found.services.values()), READY_WITHIN, every=0.2)
        self.scrape()
        try:
            until(lambda: not alerts & self.prometheus.firing(), 150, every=1.0)
        except AssertionError:
            still = sorted(alerts & self.prometheus.firing())
            print(f"still firing: {', '.join(still)}", flush=True)
        self._sizes = {s.log: s.log.stat().st_size for s in self.found.services.values()}

    def over(self, *alerts: str) -> None:
        """The fault is over by what the runbook says: wait until these alerts fire no more."""
        self.over_at = self.over_at or CLOCK.now().timestamp()
        names = {f"Tickrail{alert}" for alert in alerts}
        until(lambda: not names & self.prometheus.firing(), 150, every=0.5)

    def run(self, sql: str, *values: object) -> None:
        """A statement as the database's superuser; once more where it met another's locks."""
        with psycopg.connect(self.found.admin, autocommit=True) as conn:
            for _ in range(5):
                try:
                    conn.execute(sql.encode(), values)
                except errors.DeadlockDetected:
                    continue
                return
        raise RuntimeError(f"a deadlock each time: {sql}")

    def about(self, job: JobId, **more: str) -> None:
        """Tell the operator's shell which job a fault is about."""
        ((name, tenant),) = self.found.query(
            "select j.name, t.name from jobs j join tenants t on t.id = j.tenant_id"
            " where j.id = %s", job,
        )  # fmt: skip
        self.named = {"JOB": name, "JOB_ID": str(job), "TENANT": tenant, **more}

    # --- an operator's shell ----------------------------------------------------------------------

    def shell(self, line: str, instance: str = "") -> Ran:
        """Run a line of a runbook, with the variables that docs/alerts.md tells of.

        Args:
            line: what is typed.
            instance: the process that the alert names; any that serves otherwise.
        """
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                env=self._variables(instance),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_WITHIN,
                check=False,
                cwd=self.folder,
            )
        except subprocess.TimeoutExpired:
            return Ran(line, -1, f"it ran for {COMMAND_WITHIN:g} s and was ended")
        return Ran(line, done.returncode, done.stdout.decode(errors="replace").strip())

    def _variables(self, instance: str) -> Mapping[str, str]:
        services = self.found.services
        shown = services.get(instance) or next(s for s in services.values() if s.alive)
        process = shown.process
        programs = [Path(sys.executable).parent, Path(etcd().path).parent, Path(promtool()).parent]
        return {
            "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
            "HOME": str(self.folder),
            "TICKRAIL_API_URL": self._address(),
            "TICKRAIL_API_KEY": self._operator,
            "TICKRAIL_ETCD_ENDPOINTS": str(shown.environment["TICKRAIL_ETCD_ENDPOINTS"]),
            "DATABASE": self.found.admin,
            "PROMETHEUS": self.prometheus.url,
            "STATUS": shown.status_url,
            "PROCESS": str(0 if process is None else process.pid),
            "LOGS": " ".join(self._lately()),
            **{
                f"{kind}s".upper(): " ".join(
                    s.status_url for s in self.of(kind) if s.alive and s.status_url
                )
                for kind in ("scheduler", "worker", "watchdog")
            },
            "CERTIFICATE": str(self.folder / "authority.pem"),
            **self._usual,
            **self.named,
        }

    def _key(self) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("tickrail")), "bootstrap", "--output", "json"],
            env={**os.environ, "TICKRAIL_DATABASE_URL": self.found.admin},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return str(json.loads(done.stdout)["key"])

    def _lately(self) -> Sequence[str]:
        """The logs of the processes, as from the present fault on."""
        paths = []
        for service in self.found.services.values():
            with service.log.open("rb") as log:
                log.seek(self._sizes.get(service.log, 0))
                copy = self.folder / f"{service.name}.now"
                copy.write_bytes(log.read())
            paths.append(str(copy))
        return paths

    def _address(self) -> str:
        said = [str(line["api"]) for s in self.of("api") for line in s.said("serving")]
        return said[-1] if said else self._api

    # --- those who use it -------------------------------------------------------------------------

    def visit(self) -> None:
        """One request to the API, with a key that is not there: it has to look for it."""
        address = self._address()
        if not address:
            return
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
        try:
            key = make_key(b"").token
            connection.request("GET", "/v1/jobs", headers={"Authorization": f"Bearer {key}"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass  # the API is what a fault ended
        finally:
            connection.close()

    @contextmanager
    def visitors(self) -> Iterator[None]:
        """Requests, several at a time, until the block ends."""
        ended = threading.Event()

        def visit() -> None:
            while not ended.wait(0.5):
                self.visit()

        threads = [threading.Thread(target=visit, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(30)


def add_services(bed: Bed) -> None:
    """An API and a watchdog beside the schedulers and the worker."""
    usual = bed.of("scheduler")[0].environment
    word = secrets.token_hex(8)
    bed.run(f"alter role tickrail_api password '{word}'")
    url = conninfo.make_conninfo(
        str(usual["TICKRAIL_DATABASE_URL"]), user="tickrail_api", password=word
    )
    own = {"api": {"TICKRAIL_DATABASE_URL": url, "TICKRAIL_API_PORT": "0"}, "watchdog": {}}
    for kind, more in own.items():
        name = f"{kind}-1"
        log = bed.folder / f"{name}.log"
        bed.found.services[name] = Service(kind, name, {**usual, **more}, log)
        bed.found.services[name].start()


Mend = Callable[[], Any]


@dataclass(frozen=True)
class Fault:
    """A fault: what is done, in words for a runbook; the alerts that must fire; how it is made.

    `make` answers what mends it, beyond what the runbooks' own commands do.
    """

    name: str
    what: str
    alerts: frozenset[str]
    make: Callable[[Bed], Mend]


def named_fault(make: Callable[[Bed], Mend], name: str, what: str, *alerts: str) -> Fault:
    """A fault and the alerts that must fire, each without what all their names begin with."""
    return Fault(name, what, frozenset(f"Tickrail{alert}" for alert in alerts), make)

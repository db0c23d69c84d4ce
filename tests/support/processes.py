"""Schedulers and workers as real processes on servers of their own, to be killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import conninfo
from tests.support.cpu import cpu_seconds
from tests.support.etcd_program import etcd
from tests.support.proxy import TcpProxy
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId, uuid7
from tickrail.core.plan import first_due
from tickrail.core.sharding import partition_of
from tickrail.local.ports import any_free
from tickrail.local.stack import LocalStack, StackAddresses
from tickrail.store.migrate import migrate
from tickrail.store.provision import ROLES, provision

CLOCK = SystemClock()
_running: list[Installation] = []


def last_words() -> str:
    """What the processes of all installations that run logged last: shown beside a failure."""
    return "\n".join(
        f"{service.name}: {json.dumps(line, ensure_ascii=False)}"
        for found in _running
        for service in found.services.values()
        for line in service.last_words()
    )


@dataclass
class Service:
    """One process of the installation."""

    kind: str
    name: str
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    _begun: int = 0
    """Where in the log the lines of this process begin."""

    def start(self, failpoints: str = "") -> None:
        """Start it; with failpoints for this process only."""
        with self.log.open("ab") as log:
            self._begun = log.tell()
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("tickrail")), self.kind],
                env={
                    **self.environment,
                    "TICKRAIL_NAME": self.name,
                    **({"TICKRAIL_FAILPOINTS": failpoints} if failpoints else {}),
                },
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """As a crash of the machine would: nothing is said, nothing is finished."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def last_words(self, count: int = 30) -> list[dict[str, Any]]:
        """What it logged last, debug lines left out."""
        return [line for line in self.lines() if line.get("level") != "debug"][-count:]

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, nothing is said; it is stopped on return."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: self.frozen, 10)

    def thaw(self) -> None:
        """SIGCONT, whether `freeze` or the process itself stopped it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def frozen(self) -> bool:
        """Whether it is stopped now, by whomever."""
        if not self.alive:
            return False
        assert self.process is not None
        return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    @property
    def alive(self) -> bool:
        """Whether the process is there; it may be frozen."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by this signal); None while it runs."""
        assert self.process is not None
        return self.process.poll()

    @property
    def status_url(self) -> str:
        """Where the process that runs now serves its status; empty until it says so.

        It takes any free port, so that no two services can want the same.
        """
        lines = self.lines_since(self._begun)
        said = [line["status"] for line in lines if line.get("event") == "serving"]
        return str(said[-1]) if said else ""

    def status(self, path: str = "/readyz") -> tuple[int, str]:
        """The answer of its status server: HTTP status and text; (0, why) where there is none."""
        url = self.status_url
        if not url:
            return 0, "not serving yet"
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether it says that nothing is missing."""
        return self.status()[0] == http.client.OK

    def problems(self) -> dict[str, str]:
        """What it says is missing: name of a loop or server -> in words."""
        code, text = self.status()
        if code == 0:
            return {"status": text}
        return dict(json.loads(text).get("problems", {}))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples (`tickrail_<name>`) that carry these labels; 0 if none."""
        total = 0.0
        for line in self.status("/metrics")[1].splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == f"tickrail_{name}":
                given = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
                if labels.items() <= given.items():
                    total += float(found[3])
        return total

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        assert self.process is not None
        return cpu_seconds(self.process.pid)

    def lines(self) -> list[dict[str, Any]]:
        """Its log lines that are JSON."""
        return self.lines_since(0)

    def lines_since(self, offset: int) -> list[dict[str, Any]]:
        """Those from an offset of the log file on."""
        with self.log.open("rb") as log:
            log.seek(offset)
            text = log.read().decode(errors="replace")
        whole = text[: text.rfind("\n") + 1]  # the last line may be in the middle of its writing
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def said(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of this event with these fields that the process that runs now has logged."""
        return [
            line
            for line in self.lines_since(self._begun)
            if line.get("event") == event and fields.items() <= line.items()
        ]

    def reached(self, point: str) -> datetime | None:
        """When the process that runs now (or ran last) came to this failpoint and acted on it."""
        lines = self.said("failpoint", point=point)
        return datetime.fromisoformat(lines[-1]["time"]) if lines else None


@dataclass
class Installation:
    """Servers and services that run, and the database as its superuser sees it."""

    stack: LocalStack
    admin: str
    partitions: int
    services: dict[str, Service]
    proxies: dict[tuple[str, str], TcpProxy] = field(default_factory=dict)

    def proxy(self, service: str, server: str) -> TcpProxy:
        """The proxy between a service and a server, asked for by `proxied` of `installation`."""
        return self.proxies[service, server]

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.admin, connect_timeout=5, autocommit=True) as conn:
            return conn.execute(sql, values).fetchall()

    def add_jobs(
        self, count: int, document: Mapping[str, Any], ids: Sequence[JobId] | None = None
    ) -> list[JobId]:
        """Jobs of one tenant, straight into the tables, with these ids or new ones."""
        now = CLOCK.now()
        tenant = uuid7(CLOCK)
        ids = list(ids or [JobId(uuid7(CLOCK)) for _ in range(count)])
        with psycopg.connect(self.admin) as conn:
            conn.execute("insert into tenants (id, name) values (%s, %s)", [tenant, tenant.hex])
            for n, job in enumerate(ids):
                doc = {**document, "name": f"job-{n}-{tenant.hex[:12]}"}
                one = parse_definition(doc, job=job, now=now)
                conn.execute(
                    "insert into jobs (id, tenant_id, name, partition, state, next_run_at, plan)"
                    " values (%s, %s, %s, %s, 'active', %s, %s)",
                    [job, tenant, one.name, partition_of(job, self.partitions),
                     first_due(one.plan, job, now), json.dumps(one.plan_document())],
                )  # fmt: skip
                conn.execute(
                    "insert into job_versions (job_id, version, tenant_id, definition)"
                    " values (%s, 1, %s, %s)",
                    [job, tenant, json.dumps(one.document())],
                )
            conn.execute("select pg_notify('tickrail_wake', '')")
        return ids

    def pause_jobs(self) -> None:
        """No slot is due any more."""
        with psycopg.connect(self.admin) as conn:
            conn.execute("update jobs set state = 'paused' where state = 'active'")

    def ended(self, jobs: Sequence[object], last: datetime) -> bool:
        """Whether every slot of these jobs up to this one has a record, and all of them ended.

        Not so while the database is away.
        """
        try:
            waiting = self.query(
                "select 1 from jobs where id = any(%s::uuid[]) and state = 'active'"
                " and next_run_at <= %s limit 1", [str(job) for job in jobs], last,
            )  # fmt: skip
            opened = self.query(
                "select 1 from launches where job_id = any(%s::uuid[]) and phase < 3"
                " and scheduled_at <= %s limit 1", [str(job) for job in jobs], last,
            )  # fmt: skip
        except psycopg.OperationalError:
            return False
        return not waiting and not opened

    def metric(self, kind: str, name: str, **labels: str) -> float:
        """A metric of all services of a kind together."""
        return sum(s.metric(name, **labels) for s in self.services.values() if s.kind == kind)

    def owners(self) -> int:
        """How many schedulers hold partitions, by the fence rows."""
        return len(self.query("select distinct owner from partitions where epoch > 0"))


@contextmanager
def installation(
    *,
    schedulers: int = 2,
    workers: int = 2,
    partitions: int = 16,
    environment: Mapping[str, str] | None = None,
    per_service: Callable[[str, Mapping[str, str]], Mapping[str, str]] | None = None,
    prepare: Callable[[Installation], None] | None = None,
    proxied: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Installation]:
    """Servers of its own, migrated; schedulers and workers that run `noop`; all ended after.

    Args:
        schedulers: how many run, as `scheduler-1` and so on.
        workers: how many run.
        partitions: schedule partitions.
        environment: settings of every service that replace the usual ones.
        per_service: given a service's name and its environment, what to set besides for it alone
            (the address of a proxy in place of a server's, a failpoint).
        prepare: called when the servers run and are migrated, before the first service starts.
        proxied: by a service's name, the servers (`postgres`, `etcd`, `kafka`) that it reaches
            through a proxy of its own, see `Installation.proxy`.
    """
    folder = Path(tempfile.mkdtemp(prefix="tickrail-fault-"))
    folder.chmod(0o755)
    services: dict[str, Service] = {}
    with ExitStack() as rest:
        proxies, forwarded = _kafka_proxies(proxied or {})
        rest.callback(_close_all, proxies)
        stack = LocalStack(
            folder,
            fast=True,
            usual_ports=False,
            kafka_forwarded=forwarded,
            etcd_program=etcd().path,
        )
        rest.callback(stack.destroy)
        found = stack.start()
        for service, servers in (proxied or {}).items():
            for server in set(servers) - {"kafka"}:
                proxies[service, server] = TcpProxy("127.0.0.1", _port_of(found, server))
        urls = provision(found.postgres_dsn, "fault", {r: secrets.token_hex(8) for r in ROLES})
        migrate(urls.owner, partitions=partitions)
        admin = conninfo.make_conninfo(found.postgres_dsn, dbname="fault")
        usual = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")},
            "TICKRAIL_DATABASE_URL": urls.engine,
            "TICKRAIL_ETCD_ENDPOINTS": found.etcd_endpoints,
            "TICKRAIL_KAFKA_BOOTSTRAP": found.kafka_bootstrap,
            "TICKRAIL_WORKER_TARGETS": "noop,webhook,kafka",
            "TICKRAIL_LEASE_TTL": "5",
            "TICKRAIL_RENEW_EVERY": "1.5",
            "TICKRAIL_LOG_FORMAT": "json",
            **(environment or {}),
        }
        made = Installation(stack, admin, partitions, services, proxies)
        if prepare is not None:
            prepare(made)
        rest.callback(_kill_all, services)
        for kind, count in (("scheduler", schedulers), ("worker", workers)):
            for n in range(1, count + 1):
                name = f"{kind}-{n}"
                own = {**usual, **_through(usual, name, proxies)}
                if per_service is not None:
                    own.update(per_service(name, own))
                services[name] = Service(kind, name, own, folder / f"{name}.log")
                services[name].start()
        _running.append(made)
        rest.callback(_running.remove, made)
        yield made


Proxies = dict[tuple[str, str], TcpProxy]


def _close_all(proxies: Proxies) -> None:
    for proxy in proxies.values():
        proxy.close()


def _kill_all(services: Mapping[str, Service]) -> None:
    for service in services.values():
        if service.alive:
            service.kill()


def _kafka_proxies(proxied: Mapping[str, Sequence[str]]) -> tuple[Proxies, dict[int, int]]:
    """Proxies to Kafka, and what Kafka must know of them.

    A broker tells its clients where to come, so those of a proxy have a listener of their own.
    """
    proxies: Proxies = {}
    forwarded: dict[int, int] = {}
    for service, servers in proxied.items():
        if "kafka" in servers:
            port = any_free(set(forwarded))
            proxies[service, "kafka"] = proxy = TcpProxy("127.0.0.1", port)
            forwarded[port] = proxy.port
    return proxies, forwarded


def _port_of(addresses: StackAddresses, server: str) -> int:
    if server == "postgres":
        return addresses.postgres_port
    return int(addresses.etcd_endpoints.rpartition(":")[2])


def _through(usual: Mapping[str, str], service: str, proxies: Proxies) -> dict[str, str]:
    """The addresses of this service's proxies in place of the servers'."""
    found = {}
    if proxy := proxies.get((service, "postgres")):
        url = usual["TICKRAIL_DATABASE_URL"]
        found["TICKRAIL_DATABASE_URL"] = conninfo.make_conninfo(
            url, host="127.0.0.1", port=proxy.port
        )
    if proxy := proxies.get((service, "etcd")):
        found["TICKRAIL_ETCD_ENDPOINTS"] = proxy.address
    if proxy := proxies.get((service, "kafka")):
        found["TICKRAIL_KAFKA_BOOTSTRAP"] = proxy.address
    return found


def slots_of(first: datetime, last: datetime, every: timedelta) -> list[datetime]:
    """The slots from `first` to `last`."""
    return [first + n * every for n in range((last - first) // every + 1)]

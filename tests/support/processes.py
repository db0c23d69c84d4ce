"""Schedulers and workers as real processes on servers of their own, to be killed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import conninfo

from tickrail.core.clock import SystemClock
from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId, uuid7
from tickrail.core.plan import first_due
from tickrail.core.sharding import partition_of
from tickrail.local.stack import LocalStack
from tickrail.store.migrate import migrate
from tickrail.store.provision import ROLES, provision

CLOCK = SystemClock()


@dataclass
class Service:
    """One process of the installation."""

    kind: str
    name: str
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("tickrail")), self.kind],
                env={**self.environment, "TICKRAIL_NAME": self.name},
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

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def lines(self) -> list[dict[str, Any]]:
        """Its log lines that are JSON."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@dataclass
class Installation:
    """Servers and services that run, and the database as its superuser sees it."""

    stack: LocalStack
    admin: str
    partitions: int
    services: dict[str, Service]

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.admin, connect_timeout=5, autocommit=True) as conn:
            return conn.execute(sql, values).fetchall()

    def add_jobs(self, count: int, document: Mapping[str, Any]) -> list[JobId]:
        """Jobs of one tenant, straight into the tables; `{n}` in the name is its number."""
        now = CLOCK.now()
        tenant = uuid7(CLOCK)
        ids = [JobId(uuid7(CLOCK)) for _ in range(count)]
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

    def owners(self) -> int:
        """How many schedulers hold partitions, by the fence rows."""
        return len(self.query("select distinct owner from partitions where epoch > 0"))


@contextmanager
def installation(
    *,
    schedulers: int = 2,
    workers: int = 2,
    partitions: int = 8,
    environment: Mapping[str, str] | None = None,
    per_service: Callable[[str, Mapping[str, str]], Mapping[str, str]] | None = None,
    prepare: Callable[[Installation], None] | None = None,
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
    """
    folder = Path(tempfile.mkdtemp(prefix="tickrail-fault-"))
    folder.chmod(0o755)
    stack = LocalStack(folder, fast=True, usual_ports=False)
    services: dict[str, Service] = {}
    try:
        found = stack.start()
        urls = provision(found.postgres_dsn, "fault", {r: secrets.token_hex(8) for r in ROLES})
        migrate(urls.owner, partitions=partitions)
        admin = conninfo.make_conninfo(found.postgres_dsn, dbname="fault")
        usual = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")},
            "TICKRAIL_DATABASE_URL": urls.engine,
            "TICKRAIL_ETCD_ENDPOINTS": found.etcd_endpoints,
            "TICKRAIL_KAFKA_BOOTSTRAP": found.kafka_bootstrap,
            "TICKRAIL_WORKER_TARGETS": "noop",
            "TICKRAIL_LEASE_TTL": "5",
            "TICKRAIL_RENEW_EVERY": "1.5",
            "TICKRAIL_LOG_FORMAT": "json",
            **(environment or {}),
        }
        made = Installation(stack, admin, partitions, services)
        if prepare is not None:
            prepare(made)
        for kind, count in (("scheduler", schedulers), ("worker", workers)):
            for n in range(1, count + 1):
                name = f"{kind}-{n}"
                own = per_service(name, usual) if per_service is not None else {}
                log = folder / f"{name}.log"
                services[name] = Service(kind, name, {**usual, **own}, log)
                services[name].start()
        yield made
    finally:
        for service in services.values():
            if service.alive:
                service.kill()
        stack.destroy()


def slots_of(first: datetime, last: datetime, every: timedelta) -> list[datetime]:
    """The slots from `first` to `last`."""
    return [first + n * every for n in range((last - first) // every + 1)]

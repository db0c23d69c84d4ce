"""Servers and services of a load test: started, seeded with jobs, measured, stopped."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from psycopg import conninfo

from tickrail.core.clock import SystemClock
from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId, uuid7
from tickrail.core.sharding import partition_of
from tickrail.local.progress import PlainProgress
from tickrail.local.stack import LocalStack
from tickrail.store.migrate import migrate
from tickrail.store.provision import ROLES, Urls, provision

CLOCK = SystemClock()


@dataclass(frozen=True)
class Process:
    """A process whose CPU time is counted, its children included."""

    name: str
    pid: int


@dataclass
class Bed:
    """Servers that run, and services that are started on them.

    `admin` is a superuser's connection to the database: what is measured is read past all row
    security.
    """

    admin: str
    urls: Urls
    folder: Path
    environment: Mapping[str, str]
    profile: bool
    versions: Mapping[str, str]
    processes: list[Process] = field(default_factory=list)
    services: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, kind: str, count: int = 1, *, first: int = 1, **more: str) -> None:
        """Start services of a kind (`scheduler`, `worker`, `api`), numbered from `first`."""
        url = self.urls.api if kind == "api" else self.urls.engine
        program = str(Path(sys.executable).with_name("tickrail"))
        for n in range(count):
            command = [program, kind]
            if self.profile and n == 0:
                where = str(self.folder / f"{kind}.prof")
                command = [sys.executable, "-m", "cProfile", "-o", where, program, kind]
                print(f"profile of {kind}: {where}", file=sys.stderr)
            name = f"{kind}-{first + n}"
            own = {"TICKRAIL_DATABASE_URL": url, "TICKRAIL_NAME": name, **more}
            service = subprocess.Popen(command, env={**self.environment, **own})
            self.services[name] = service
            self.processes.append(Process(name, service.pid))

    def stop(self, kind: str = "") -> None:
        """Stop the services of a kind, or all, and wait for their end."""
        ending = {name: s for name, s in self.services.items() if name.startswith(kind)}
        for service in ending.values():
            service.terminate()
        for name, service in ending.items():
            service.wait(60)
            del self.services[name]


@contextmanager
def bed(args: argparse.Namespace) -> Iterator[Bed]:
    """Start the servers and migrate; stop all at the end.

    Of the arguments: data, partitions, targets, concurrency, outstanding, log_level, profile; and
    `migrate`, where it is there: what is called with the owner's URL in place of this version's.
    """
    folder = Path(args.data or tempfile.mkdtemp(prefix="tickrail-load-"))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    stack = LocalStack(folder, usual_ports=False)
    addresses = stack.start(PlainProgress(sys.stderr))
    running: Bed | None = None
    try:
        urls = provision(
            addresses.postgres_dsn, "load", {role: secrets.token_hex(16) for role in ROLES}
        )
        if "migrate" in args:
            args.migrate(urls.owner)
        else:
            migrate(urls.owner, partitions=args.partitions)
        with psycopg.connect(urls.owner) as conn:
            conn.execute("update queues set kinds = array['webhook', 'command', 'noop']")
        environment = {
            **os.environ,
            "TICKRAIL_ETCD_ENDPOINTS": addresses.etcd_endpoints,
            "TICKRAIL_KAFKA_BOOTSTRAP": addresses.kafka_bootstrap,
            "TICKRAIL_WORKER_TARGETS": "noop,command,webhook",
            "TICKRAIL_WORKER_CONCURRENCY": str(args.concurrency),
            "TICKRAIL_RELAY_OUTSTANDING": str(args.outstanding),
            "TICKRAIL_LOG_LEVEL": args.log_level,
        }
        running = Bed(
            conninfo.make_conninfo(addresses.postgres_dsn, dbname="load"),
            urls,
            folder,
            environment,
            args.profile,
            stack.server_versions,
            [
                Process("postgres", stack.postgres.pid or 0),
                Process("kafka", stack.kafka.pid or 0),
                Process("etcd", stack.etcd.pid or 0),
            ],
        )
        yield running
    finally:
        if running is not None:
            running.stop()
        if args.data:
            stack.stop()
        else:
            stack.destroy()


def bed_options(parser: argparse.ArgumentParser, *, concurrency: int, outstanding: int) -> None:
    """The options of every load test."""
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--concurrency", type=int, default=concurrency, help="runs a worker holds open"
    )
    parser.add_argument(
        "--outstanding", type=int, default=outstanding, help="queued launches of a queue"
    )
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="a folder to keep the servers' data in")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--profile", action="store_true", help="profile one process of each kind")


def wait_for_owners(url: str, partitions: int, settle: float = 4.0) -> None:
    """Until every partition has an owner, and a little longer for the workers' group."""
    for _ in range(300):
        with psycopg.connect(url) as conn:
            row = conn.execute("select count(*) from partitions where epoch > 0").fetchone()
        if row and row[0] == partitions:
            pause(settle)
            return
        pause(0.2)
    raise SystemExit("no owner within a minute: see the log lines above")


def pause(seconds: float) -> None:
    """Wait."""
    threading.Event().wait(max(0.0, seconds))


@dataclass(frozen=True)
class Seed:
    """A job to insert: its schedule and what else its document says, and its first due instant."""

    schedule: Mapping[str, Any]
    at: datetime
    more: Mapping[str, Any] = field(default_factory=dict)


def make_tenant(url: str) -> UUID:
    """A tenant."""
    tenant = uuid7(CLOCK)
    with psycopg.connect(url) as conn:
        conn.execute("insert into tenants (id, name) values (%s, %s)", [tenant, tenant.hex])
    return tenant


def insert_jobs(
    url: str,
    tenant: UUID,
    seeds: Sequence[Seed],
    partitions: int,
    state: str = "paused",
    *,
    settled: bool = True,
) -> list[UUID]:
    """Jobs straight into the tables; their ids. A document is parsed once for all jobs like it.

    `settled` False: more jobs follow, and `settle` is called after the last of them.
    """
    now = CLOCK.now()
    read: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    ids = [uuid7(CLOCK) for _ in seeds]
    for s in seeds:
        key = json.dumps(s.more)
        if key not in read:
            one = parse_definition(
                {"name": "load", "schedule": s.schedule, "target": {"noop": {}},
                 "overlap": "allow", **s.more},
                job=JobId(tenant), now=now,
            )  # fmt: skip
            read[key] = one.plan_document(), one.document()
    with psycopg.connect(url) as conn, conn.cursor() as cursor:
        with cursor.copy(
            "copy jobs (id, tenant_id, name, partition, state, next_run_at, plan) from stdin"
        ) as copy:
            for job, s in zip(ids, seeds, strict=True):
                plan = {**read[json.dumps(s.more)][0], "schedule": s.schedule}
                copy.write_row(
                    (
                        job,
                        tenant,
                        f"load-{job}",
                        partition_of(job, partitions),
                        state,
                        s.at,
                        json.dumps(plan),
                    )
                )
        with cursor.copy(
            "copy job_versions (job_id, version, tenant_id, definition) from stdin"
        ) as copy:
            for job, s in zip(ids, seeds, strict=True):
                document = {**read[json.dumps(s.more)][1], "schedule": s.schedule}
                copy.write_row((job, 1, tenant, json.dumps(document)))
    if settled:
        settle(url)
    return ids


def settle(url: str) -> None:
    """Statistics as they would be, and nothing left to write: so that none of it is measured."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("vacuum analyze jobs, job_versions")
        conn.execute("checkpoint")


def insert_one_offs(url: str, instants: Sequence[datetime], partitions: int) -> None:
    """One-off jobs of a new tenant at these instants, paused."""
    seeds = [Seed({"at": at.isoformat()}, at) for at in instants]
    insert_jobs(url, make_tenant(url), seeds, partitions)


def cpu_seconds(processes: Sequence[Process]) -> dict[str, float]:
    """CPU seconds of each process and its children so far."""
    used: dict[str, float] = {}
    for p in processes:
        total = 0.0
        try:
            root = psutil.Process(p.pid)
            for one in [root, *root.children(recursive=True)]:
                times = one.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
        used[p.name] = total
    return used


def percentiles(values: Sequence[float]) -> tuple[float, float, float, float]:
    """p50, p95, p99 and the largest."""
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[94], cuts[98], values[-1]


def report_cpu(
    before: Mapping[str, float], after: Mapping[str, float], launches: int, seconds: float
) -> None:
    """CPU seconds by process for 1,000 launches, and the share of a core."""
    print(f"{'process':<14}{'CPU s / 1,000 launches':>24}{'of a core':>12}")
    for name, used in after.items():
        spent = used - before.get(name, 0.0)
        print(f"{name:<14}{spent / launches * 1000:>24.3f}{spent / seconds:>11.0%}")

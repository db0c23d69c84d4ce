"""Drives launches through the whole path, on real servers of its own, and measures it.

    python loadtest/pipeline.py drain  [--launches 50000]
    python loadtest/pipeline.py steady [--rate 578.7] [--seconds 60] [--whole-seconds]

`drain`: N one-off jobs are due at one moment; how fast they go through Kafka to `succeeded`.
`steady`: one-off jobs at random due instants at a rate; the latencies from due to the record, the
start and the finish. The target is `noop`. Exits 1 when a launch is lost or doubled, did not
succeed at its first attempt, or a bound given by --min-rate or --max-p99 (ms) is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

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
from tickrail.store.provision import ROLES, provision

CLOCK = SystemClock()


@dataclass(frozen=True)
class Process:
    """A process whose CPU time is counted, its children included."""

    name: str
    pid: int


@dataclass(frozen=True)
class Bed:
    """Servers and services that run."""

    admin: str
    processes: Sequence[Process]


@contextmanager
def bed(args: argparse.Namespace) -> Iterator[Bed]:
    """Start the servers, migrate, start the services; stop all at the end."""
    folder = Path(args.data or tempfile.mkdtemp(prefix="tickrail-load-"))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    stack = LocalStack(folder, usual_ports=False)
    addresses = stack.start(PlainProgress(sys.stderr))
    services: list[subprocess.Popen[bytes]] = []
    try:
        urls = provision(
            addresses.postgres_dsn, "load", {role: secrets.token_hex(16) for role in ROLES}
        )
        migrate(urls.owner, partitions=args.partitions)
        with psycopg.connect(urls.owner) as conn:
            conn.execute("update queues set kinds = kinds || array['noop']")
        environment = {
            **os.environ,
            "TICKRAIL_DATABASE_URL": urls.engine,
            "TICKRAIL_ETCD_ENDPOINTS": addresses.etcd_endpoints,
            "TICKRAIL_KAFKA_BOOTSTRAP": addresses.kafka_bootstrap,
            "TICKRAIL_WORKER_TARGETS": "noop",
            "TICKRAIL_WORKER_CONCURRENCY": str(args.concurrency),
            "TICKRAIL_RELAY_OUTSTANDING": str(args.outstanding),
            "TICKRAIL_LOG_LEVEL": args.log_level,
        }
        processes = [
            Process("postgres", stack.postgres.pid or 0),
            Process("kafka", stack.kafka.pid or 0),
            Process("etcd", stack.etcd.pid or 0),
        ]
        for kind, count in (("scheduler", args.schedulers), ("worker", args.workers)):
            for n in range(count):
                program = str(Path(sys.executable).with_name("tickrail"))
                command = [program, kind]
                if args.profile and n == 0:
                    where = str(folder / f"{kind}.prof")
                    command = [sys.executable, "-m", "cProfile", "-o", where, program, kind]
                    print(f"profile of {kind}: {where}", file=sys.stderr)
                name = f"{kind}-{n + 1}"
                service = subprocess.Popen(command, env={**environment, "TICKRAIL_NAME": name})
                services.append(service)
                processes.append(Process(name, service.pid))
        wait_for_owners(urls.owner, args.partitions)
        yield Bed(conninfo.make_conninfo(addresses.postgres_dsn, dbname="load"), processes)
    finally:
        for service in services:
            service.terminate()
        for service in services:
            service.wait(60)
        if args.data:
            stack.stop()
        else:
            stack.destroy()


def wait_for_owners(url: str, partitions: int) -> None:
    """Until every partition has an owner, and a little longer for the workers' group."""
    for _ in range(300):
        with psycopg.connect(url) as conn:
            row = conn.execute("select count(*) from partitions where epoch > 0").fetchone()
        if row and row[0] == partitions:
            pause(4.0)
            return
        pause(0.2)
    raise SystemExit("no owner within a minute: see the log lines above")


def pause(seconds: float) -> None:
    """Wait."""
    threading.Event().wait(seconds)


def insert_jobs(url: str, instants: Sequence[datetime], partitions: int) -> None:
    """One-off jobs at these instants, paused, straight into the tables."""
    now = CLOCK.now()
    tenant = uuid7(CLOCK)
    one = parse_definition(
        {"name": "load", "schedule": {"at": now.isoformat()}, "target": {"noop": {}},
         "overlap": "allow"},
        job=JobId(tenant), now=now,
    )  # fmt: skip
    plan, document = one.plan_document(), one.document()
    with psycopg.connect(url) as conn, conn.cursor() as cursor:
        cursor.execute("insert into tenants (id, name) values (%s, %s)", [tenant, tenant.hex])
        ids = [uuid7(CLOCK) for _ in instants]
        with cursor.copy(
            "copy jobs (id, tenant_id, name, partition, state, next_run_at, plan) from stdin"
        ) as copy:
            for job, at in zip(ids, instants, strict=True):
                plan["schedule"] = {"at": at.isoformat()}
                copy.write_row(
                    (
                        job,
                        tenant,
                        f"load-{job}",
                        partition_of(job, partitions),
                        "paused",
                        at,
                        json.dumps(plan),
                    )
                )
        with cursor.copy(
            "copy job_versions (job_id, version, tenant_id, definition) from stdin"
        ) as copy:
            for job, at in zip(ids, instants, strict=True):
                document["schedule"] = {"at": at.isoformat()}
                copy.write_row((job, 1, tenant, json.dumps(document)))
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("vacuum analyze jobs, job_versions")
        conn.execute("checkpoint")


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


def release(url: str) -> datetime:
    """Make the jobs active, and say so; the database's instant at which that was done."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("update jobs set state = 'active'")
        conn.execute("select pg_notify('tickrail_wake', '')")
        row = conn.execute("select clock_timestamp()").fetchone()
    return row[0] if row else CLOCK.now()


def wait_until_done(url: str, total: int, seconds: float) -> None:
    """Until as many launches are terminal, or the time is over."""
    until = CLOCK.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as conn:
        while CLOCK.monotonic() < until:
            row = conn.execute("select count(*) from launches where phase = 3").fetchone()
            if row and row[0] >= total:
                return
            pause(0.25)


def check(url: str, total: int) -> list[str]:
    """What is wrong: lost, doubled, not succeeded."""
    with psycopg.connect(url) as conn:
        row = conn.execute(
            "select count(*), count(distinct job_id), count(*) filter (where state = 'succeeded'),"
            " count(*) filter (where attempt > 1), coalesce(max(publications), 0) from launches"
        ).fetchone()
    assert row is not None
    records, jobs, succeeded, again, publications = row
    found = {
        "records lost": total - jobs, "records doubled": records - jobs,
        "not succeeded": records - succeeded, "run again": again,
    }  # fmt: skip
    print(
        f"checked: {records} records of {total} jobs, {succeeded} succeeded,"
        f" {again} run again, published at most {publications} times"
    )
    return [f"{count} {what}" for what, count in found.items() if count]


def lags(url: str) -> Mapping[str, Sequence[float]]:
    """Milliseconds from due to the record, the start and the finish."""
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "select extract(epoch from created_at - due_at)::float8 * 1000,"
            " extract(epoch from started_at - due_at)::float8 * 1000,"
            " extract(epoch from finished_at - due_at)::float8 * 1000"
            " from launches where state = 'succeeded'"
        ).fetchall()
    names = ("due -> record", "due -> start", "due -> finish")
    return {name: sorted(r[i] for r in rows) for i, name in enumerate(names)}


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


def drain(args: argparse.Namespace) -> list[str]:
    """N launches that are due at once."""
    with bed(args) as found:
        due = CLOCK.now() - timedelta(seconds=1)
        insert_jobs(found.admin, [due] * args.launches, args.partitions)
        pause(2.0)
        before = cpu_seconds(found.processes)
        began = release(found.admin)
        wait_until_done(found.admin, args.launches, args.timeout)
        after = cpu_seconds(found.processes)
        with psycopg.connect(found.admin) as conn:
            row = conn.execute("select max(finished_at), max(created_at) from launches").fetchone()
        assert row is not None
        problems = check(found.admin, args.launches)
    if row[0] is None:
        return ["nothing finished"]
    seconds = (row[0] - began).total_seconds()
    rate = args.launches / seconds
    records = args.launches / max(0.001, (row[1] - began).total_seconds())
    print(
        f"drain of {args.launches}: {seconds:.2f} s, {rate:,.0f} launches/s to succeeded"
        f" ({records:,.0f} records/s)"
    )
    report_cpu(before, after, args.launches, seconds)
    if args.min_rate and rate < args.min_rate:
        problems.append(f"{rate:,.0f} launches/s is below {args.min_rate:,.0f}")
    return problems


def steady(args: argparse.Namespace) -> list[str]:
    """Random due instants at a rate."""
    rng = random.Random(args.seed)
    with bed(args) as found:
        count = round(args.rate * args.seconds)
        start = CLOCK.now() + timedelta(seconds=5 + count / 20_000)
        instants = [start + timedelta(seconds=rng.uniform(0, args.seconds)) for _ in range(count)]
        if args.whole_seconds:
            instants = [t.replace(microsecond=0) + timedelta(seconds=1) for t in instants]
        insert_jobs(found.admin, instants, args.partitions)
        release(found.admin)
        pause(max(0.0, (start - CLOCK.now()).total_seconds()))
        before = cpu_seconds(found.processes)
        wait_until_done(found.admin, count, args.seconds + args.timeout)
        after = cpu_seconds(found.processes)
        problems = check(found.admin, count)
        measured = lags(found.admin)
    print(f"steady {args.rate:g}/s for {args.seconds} s, {count} launches")
    print(f"{'ms':<16}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}")
    for name, values in measured.items():
        if len(values) > 1:
            p50, p95, p99, most = percentiles(values)
            print(f"{name:<16}{p50:>8.1f}{p95:>8.1f}{p99:>8.1f}{most:>8.1f}")
    report_cpu(before, after, count, args.seconds)
    started = measured["due -> start"]
    if args.max_p99 and (len(started) < 2 or percentiles(started)[2] > args.max_p99):
        problems.append(f"due -> start p99 is above {args.max_p99:g} ms")
    return problems


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=["drain", "steady"])
    parser.add_argument("--launches", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=578.7)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--whole-seconds", action="store_true", help="due instants as cron has them"
    )
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=2000, help="runs a worker holds open")
    parser.add_argument("--outstanding", type=int, default=4000, help="queued launches of a queue")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--min-rate", type=float, default=0.0)
    parser.add_argument("--max-p99", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="a folder to keep the servers' data in")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--profile", action="store_true", help="profile one process of each kind")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    problems = drain(args) if args.mode == "drain" else steady(args)
    for problem in problems:
        print(f"BROKEN: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

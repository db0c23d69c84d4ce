"""One tenant enqueues a crowd of launches; how another's few fare meanwhile, on real servers.

    python loadtest/fairness.py [--launches 100000] [--rate 10] [--weight 1]

A crowd of one-off jobs of one tenant is due at one moment; another tenant has `--rate` one-off jobs
a second for as long as the crowd drains. Shown are the other's latencies from due to start while
the crowd drained, and how fast that went; `--alone` leaves the others out, to compare. The target
is `noop`. Exits 1 when a launch is lost or doubled, when the others' p99 is above --max-p99
(1000 ms), or when too few of them were due during the drain to say so.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import psycopg

from bed import (
    CLOCK,
    Seed,
    bed,
    bed_options,
    cpu_seconds,
    insert_jobs,
    make_tenant,
    pause,
    percentiles,
    report_cpu,
    wait_for_owners,
)

LEAST = 50
"""So many launches of the other tenant are needed for a p99 that says something."""


def one_offs(instants: Sequence[datetime]) -> list[Seed]:
    """One-off jobs at these instants."""
    return [Seed({"at": at.isoformat()}, at) for at in instants]


def drained(url: str, tenant: UUID, total: int, seconds: float) -> None:
    """Wait until so many launches of a tenant have ended, or the time is over."""
    until = CLOCK.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as conn:
        while CLOCK.monotonic() < until:
            row = conn.execute(
                "select count(*) from launches where tenant_id = %s and phase = 3", [tenant]
            ).fetchone()
            if row and row[0] >= total:
                return
            pause(0.5)


def release(url: str, tenant: UUID) -> datetime:
    """Make the crowd active; the database's instant at which that was done."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("update jobs set state = 'active' where tenant_id = %s", [tenant])
        conn.execute("select pg_notify('tickrail_wake', '')")
        row = conn.execute("select clock_timestamp()").fetchone()
    return row[0] if row else CLOCK.now()


def judge(
    url: str, crowd: UUID, others: UUID, began: datetime, args: argparse.Namespace
) -> list[str]:
    """Print what was measured; what is broken."""
    with psycopg.connect(url) as conn:
        row = conn.execute(
            "select count(*), count(distinct job_id), count(*) filter (where state = 'succeeded'),"
            " max(finished_at) from launches where tenant_id = %s",
            [crowd],
        ).fetchone()
        assert row is not None
        records, jobs, succeeded, ended = row
        lags = conn.execute(
            "select coalesce(extract(epoch from started_at - due_at)::float8 * 1000, 'infinity'),"
            " extract(epoch from created_at - due_at)::float8 * 1000"
            " from launches where tenant_id = %s and due_at between %s and %s order by 1",
            [others, began, ended],
        ).fetchall()
        missed = conn.execute(
            "select count(*) from jobs where tenant_id = %s and state = 'active'"
            " and next_run_at between %s and %s",
            [others, began, ended],
        ).fetchone()
    problems = [
        f"{count} launches of the crowd {what}"
        for what, count in (
            ("lost", args.launches - jobs),
            ("doubled", records - jobs),
            ("not succeeded", records - succeeded),
        )
        if count
    ]
    if ended is None:
        return [*problems, "nothing of the crowd has ended"]
    seconds = (ended - began).total_seconds()
    print(
        f"drain of {args.launches}: {seconds:.2f} s, {args.launches / seconds:,.0f} launches/s,"
        f" {len(lags)} launches of the other tenant meanwhile"
    )
    if args.alone:
        return problems
    if missed and missed[0]:
        problems.append(f"{missed[0]} jobs of the other tenant were not launched in the drain")
    if len(lags) < LEAST:
        return [*problems, f"only {len(lags)} launches of the other tenant: a crowd too small"]
    p50, p95, p99, most = percentiles([row[0] for row in lags])
    print(
        f"the other's due -> start: p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f}, max {most:.0f} ms"
    )
    record = percentiles(sorted(row[1] for row in lags))
    print(
        f"of that due -> record: p50 {record[0]:.0f}, p95 {record[1]:.0f}, p99 {record[2]:.0f} ms"
    )
    if p99 > args.max_p99:
        problems.append(f"the other's due -> start p99 {p99:.0f} ms is above {args.max_p99:g} ms")
    return problems


def run(args: argparse.Namespace) -> list[str]:
    """The crowd and the others."""
    with bed(args) as found:
        found.start("scheduler", args.schedulers)
        found.start("worker", args.workers)
        wait_for_owners(found.admin, args.partitions)
        crowd, others = make_tenant(found.admin), make_tenant(found.admin)
        with psycopg.connect(found.admin) as conn:
            conn.execute("update tenants set weight = %s where id = %s", [args.weight, others])
        due = CLOCK.now() - timedelta(seconds=1)
        insert_jobs(found.admin, crowd, one_offs([due] * args.launches), args.partitions)
        if not args.alone:
            first = CLOCK.now() + timedelta(seconds=5)
            count = round(args.rate * (args.timeout + 5))
            instants = [first + timedelta(seconds=n / args.rate) for n in range(count)]
            insert_jobs(found.admin, others, one_offs(instants), args.partitions, "active")
            pause((first - CLOCK.now()).total_seconds())
        pause(2.0)
        before = cpu_seconds(found.processes)
        began = release(found.admin, crowd)
        drained(found.admin, crowd, args.launches, args.timeout)
        after = cpu_seconds(found.processes)
        problems = judge(found.admin, crowd, others, began, args)
        report_cpu(before, after, args.launches, (CLOCK.now() - began).total_seconds())
    return problems


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--launches", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=10.0, help="launches a second of the other")
    parser.add_argument("--weight", type=int, default=1, help="the other tenant's")
    parser.add_argument("--alone", action="store_true", help="without the other tenant")
    parser.add_argument("--max-p99", type=float, default=1000.0)
    bed_options(parser, concurrency=2000, outstanding=1000)
    parser.set_defaults(timeout=240.0)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    problems = run(args)
    for problem in problems:
        print(f"BROKEN: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

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
import random
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import psycopg

from bed import (
    CLOCK,
    Bed,
    bed,
    bed_options,
    cpu_seconds,
    insert_one_offs,
    pause,
    percentiles,
    report_cpu,
    wait_for_owners,
)


@contextmanager
def running(args: argparse.Namespace) -> Iterator[Bed]:
    """The servers with schedulers and workers, and every partition owned."""
    with bed(args) as found:
        found.start("scheduler", args.schedulers)
        found.start("worker", args.workers)
        wait_for_owners(found.admin, args.partitions)
        yield found


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


def drain(args: argparse.Namespace) -> list[str]:
    """N launches that are due at once."""
    with running(args) as found:
        due = CLOCK.now() - timedelta(seconds=1)
        insert_one_offs(found.admin, [due] * args.launches, args.partitions)
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
    with running(args) as found:
        count = round(args.rate * args.seconds)
        start = CLOCK.now() + timedelta(seconds=5 + count / 20_000)
        instants = [start + timedelta(seconds=rng.uniform(0, args.seconds)) for _ in range(count)]
        if args.whole_seconds:
            instants = [t.replace(microsecond=0) + timedelta(seconds=1) for t in instants]
        insert_one_offs(found.admin, instants, args.partitions)
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
    parser.add_argument("--min-rate", type=float, default=0.0)
    parser.add_argument("--max-p99", type=float, default=0.0)
    bed_options(parser, concurrency=2000, outstanding=4000)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    problems = drain(args) if args.mode == "drain" else steady(args)
    for problem in problems:
        print(f"BROKEN: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

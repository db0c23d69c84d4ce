"""The catch-up after an outage, on real servers: every slot has its record, and others are on time.

    python loadtest/catchup.py [--policy fire_once skip fire_all] [--jobs 10000] [--real]

A crowd of jobs with `* * * * *` and a grace of one second has missed ten slots when the scheduler
starts, five seconds after a full minute. Other jobs of the same tenant and of a second one are due
every second and every five seconds, have missed as much, and go on; some are due once, at random
instants from the start on. What is checked:

- each missed slot of the crowd is launched or inside a skip record, once, and so many as the
  policy says; the API's ledger says the same;
- the others' slots from the first tick on have their launch, recorded and started within
  --max-late seconds; those that they missed are launched or skipped, once;
- all launches succeed at their first attempt; the crowd's next full minute is measured as well.

The outage is made by inserting the crowd with a next run ten minutes back; --real runs the
scheduler, stops it and waits. `fire_all` inserts all its records at once; `per_minute` of its
policy spreads when they are due: at the default of 60 the launches of one job are a second apart,
at 6,000 all three are due within 20 ms. Exits 1 when something is broken.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from bed import (
    CLOCK,
    Bed,
    Seed,
    bed,
    bed_options,
    cpu_seconds,
    insert_jobs,
    pause,
    percentiles,
    report_cpu,
    wait_for_owners,
)
from tickrail.local.ports import any_free
from tickrail.sdk.client import Client
from tickrail.store.bootstrap import bootstrap

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MAX_COUNT = 3


@dataclass(frozen=True)
class Crowd:
    """The jobs that were missed: their ids, and the first and last slot that they missed."""

    tenant: UUID
    ids: Sequence[UUID]
    first: datetime
    last: datetime

    @property
    def slots(self) -> int:
        """Missed slots of each job."""
        return (self.last - self.first) // MINUTE + 1


@dataclass(frozen=True)
class Others:
    """The other jobs, each with its slots up to the end of the test."""

    slots: Mapping[UUID, Sequence[datetime]]
    end: datetime


def full_minute(at: datetime) -> datetime:
    """The full minute at or before an instant."""
    return at.replace(second=0, microsecond=0)


def until(at: datetime) -> None:
    """Wait for an instant."""
    pause((at - CLOCK.now()).total_seconds())


def seed_crowd(args: argparse.Namespace, policy: str, first: datetime) -> list[Seed]:
    """The crowd's jobs, waiting for their first slot."""
    more = {
        "target": target(args),
        "overlap": args.overlap,
        "misfire": {
            "policy": policy,
            "grace": "1s",
            "max_count": MAX_COUNT,
            "per_minute": args.per_minute,
        },
    }
    return [Seed({"cron": "* * * * *"}, first, more)] * args.jobs


def target(args: argparse.Namespace) -> dict[str, Any]:
    """What the launches run."""
    return {"noop": {}} if args.target == "noop" else {"command": {"argv": ["true"]}}


def seed_others(
    args: argparse.Namespace, since: datetime, begin: datetime, end: datetime, rng: random.Random
) -> tuple[list[Seed], list[list[datetime]]]:
    """Other jobs and their slots: recurring ones from `since` on, one-off ones from `begin` on."""
    seeds: list[Seed] = []
    slots: list[list[datetime]] = []
    more = {"target": target(args), "overlap": "allow", "misfire": {"grace": "5s"}}
    for seconds, count in ((1, args.every_second), (5, args.every_five)):
        for _ in range(count):
            first = since + SECOND * rng.randrange(seconds)
            period = SECOND * seconds
            seeds.append(Seed({"every": f"{seconds}s", "anchor": first.isoformat()}, first, more))
            slots.append([first + period * n for n in range(-((first - end) // period))])
    for _ in range(args.one_offs):
        at = begin + SECOND * rng.randrange((end - begin) // SECOND)
        seeds.append(Seed({"at": at.isoformat()}, at, more))
        slots.append([at])
    return seeds, slots


def run(args: argparse.Namespace, policy: str) -> list[str]:
    """One outage with one policy; what is broken."""
    with bed(args) as found:
        tenants = [bootstrap(found.urls.owner, CLOCK, tenant=f"tenant-{n}") for n in range(2)]
        client = start_api(found, tenants[0].token)
        ids = [t.tenant or UUID(int=0) for t in tenants]
        crowd, others = outage(found, args, policy, ids)
        until(crowd.last + SECOND * 5)
        before = cpu_seconds(found.processes)
        found.start("scheduler", args.schedulers)
        until(crowd.last + MINUTE - SECOND)
        after = cpu_seconds(found.processes)
        until(others.end + SECOND)
        settle(found.admin, args.timeout)
        print(f"\n== {policy}, overlap {args.overlap}: {args.jobs} jobs")
        problems = check_crowd(found.admin, crowd, policy)
        problems += check_others(found.admin, others, args.max_late, crowd)
        problems += check_ledger(client, crowd, policy)
        problems += next_minute(found.admin, crowd)
        total = ask(
            found.admin,
            "select count(*) from launches where scheduled_at between %s and %s",
            [crowd.first, crowd.last + MINUTE - SECOND],
        )[0]
        report_cpu(before, after, max(1, total), 54.0)
        return [f"{policy}: {p}" for p in problems]


def start_api(found: Bed, token: str) -> Client:
    """Start the API; a client of it."""
    port = any_free()
    found.start("api", TICKRAIL_API_PORT=str(port))
    return Client(f"http://127.0.0.1:{port}", token)


def outage(
    found: Bed, args: argparse.Namespace, policy: str, tenants: Sequence[UUID]
) -> tuple[Crowd, Others]:
    """All jobs, with slots that they missed up to a full minute that comes in five seconds."""
    found.start("scheduler", args.schedulers)
    wait_for_owners(found.admin, args.partitions, 1.0)  # it has owned everything before
    found.start("worker", args.workers)
    if args.real:
        first = full_minute(CLOCK.now()) + 2 * MINUTE
        last = first + args.minutes * MINUTE
    else:
        found.stop("scheduler")
        last = full_minute(CLOCK.now() + SECOND * 30) + MINUTE
        first = last - (args.minutes - 1) * MINUTE
    rng = random.Random(args.seed)
    begin, end = last + SECOND * 4, last + MINUTE + SECOND * 15
    slots: dict[UUID, Sequence[datetime]] = {}
    for tenant in tenants:
        seeds, own = seed_others(args, first - SECOND * 30, begin, end, rng)
        ids = insert_jobs(found.admin, tenant, seeds, args.partitions, "active")
        slots |= dict(zip(ids, own, strict=True))
    crowd = insert_jobs(
        found.admin, tenants[0], seed_crowd(args, policy, first), args.partitions, "active"
    )
    if args.real:
        until(first + SECOND * 30)
        found.stop("scheduler")
        print(f"stopped; waiting until {last:%H:%M:%S}", file=sys.stderr)
        first += MINUTE
    until(last - SECOND * 5)
    return Crowd(tenants[0], crowd, first, last), Others(slots, end)


def settle(url: str, seconds: float) -> None:
    """Until no launch is open, or the time is over."""
    deadline = CLOCK.monotonic() + seconds
    while CLOCK.monotonic() < deadline:
        if ask(url, "select count(*) from launches where phase < 3 and due_at < now()")[0] == 0:
            return
        pause(0.5)


def ask(url: str, statement: str, values: Sequence[object] = ()) -> Any:  # noqa: ANN401 - a row of any shape
    """One row."""
    with psycopg.connect(url) as conn:
        return conn.execute(statement, list(values)).fetchone()  # type: ignore[arg-type]


def rows(url: str, statement: str, values: Sequence[object] = ()) -> list[Any]:
    """All rows."""
    with psycopg.connect(url) as conn:
        return conn.execute(statement, list(values)).fetchall()  # type: ignore[arg-type]


def expected(policy: str, slots: int) -> dict[str, int]:
    """What becomes of the missed slots of one job, whatever its overlap policy."""
    launched = {"skip": 0, "fire_once": 1, "fire_all": min(MAX_COUNT, slots)}[policy]
    found = {"launched": launched, "misfire": slots - launched}
    return {k: n for k, n in found.items() if n}


def check_crowd(url: str, crowd: Crowd, policy: str) -> list[str]:
    """Launches and skips of the missed slots: how many, and each slot once."""
    span = [list(crowd.ids), crowd.first, crowd.last]
    launched = ask(url, "select count(*), count(*) filter (where state = 'succeeded'),"
                   " count(*) filter (where attempt > 1), coalesce(max(publications), 0),"
                   " min(created_at), max(created_at), max(started_at), max(finished_at)"
                   " from launches where job_id = any(%s)"
                   " and scheduled_at between %s and %s", span)  # fmt: skip
    skipped = rows(url, "select reason, sum(count)::int, count(*), min(created_at),"
                   " max(created_at) from skips where job_id = any(%s)"
                   " and scheduled_at between %s and %s group by 1", span)  # fmt: skip
    wrong = ask(url, """
        with w as (select unnest(%s::uuid[]) as id),
        l as (select job_id, count(*) as n from launches
              where scheduled_at between %s and %s group by 1),
        s as (select job_id, sum(count) as n from skips
              where scheduled_at between %s and %s and last_at <= %s group by 1),
        twice as (select l.job_id, count(*) as n from launches l
              join skips k on k.job_id = l.job_id
                and l.scheduled_at between k.scheduled_at and k.last_at
              where l.scheduled_at between %s and %s group by 1)
        select count(*) filter (where coalesce(l.n, 0) + coalesce(s.n, 0) <> %s),
               coalesce(sum(twice.n), 0)
        from w left join l on l.job_id = w.id left join s on s.job_id = w.id
        left join twice on twice.job_id = w.id
        """, [list(crowd.ids), crowd.first, crowd.last, crowd.first, crowd.last, crowd.last,
              crowd.first, crowd.last, crowd.slots])  # fmt: skip
    want = {k: n * len(crowd.ids) for k, n in expected(policy, crowd.slots).items()}
    got = {"launched": launched[0]} | {r[0]: r[1] for r in skipped}
    got = {k: n for k, n in got.items() if n}
    print(f"missed slots: {crowd.slots * len(crowd.ids)} = {got} in"
          f" {sum(r[2] for r in skipped)} skip records")  # fmt: skip
    first = min(x for x in [launched[4], *(r[3] for r in skipped)] if x is not None)
    planned = max(x for x in [launched[5], *(r[4] for r in skipped)] if x is not None)
    times = {"planned": planned, "started": launched[6], "finished": launched[7]}
    spans = ", ".join(f"{k} {(v - first).total_seconds():.2f} s" for k, v in times.items() if v)
    print(f"first tick {(first - crowd.last).total_seconds():.2f} s after the full minute;"
          f" from there all {spans}")  # fmt: skip
    found = {
        f"missed slots are {got}, not {want}": got != want,
        f"{wrong[0]} jobs with slots not accounted for": wrong[0],
        f"{wrong[1]} slots both launched and skipped": wrong[1],
        f"{launched[0] - launched[1]} launches did not succeed": launched[0] != launched[1],
        f"{launched[2]} launches ran again": launched[2],
        f"a launch was published {launched[3]} times": launched[3] > 1,
    }
    return [text for text, broken in found.items() if broken]


def check_others(url: str, others: Others, most: float, crowd: Crowd) -> list[str]:
    """Slots of the other jobs: each launched or skipped, once; from the first tick on, not late."""
    ids = list(others.slots)
    begin = ask(
        url,
        "select min(created_at) from skips where job_id = any(%s) and reason = 'misfire'"
        " and last_at >= %s",
        [ids, crowd.last - MINUTE],
    )[0]
    found = rows(
        url,
        "select job_id, scheduled_at, created_at, queued_at, started_at from launches"
        " where job_id = any(%s) and scheduled_at < %s",
        [ids, others.end],
    )
    skipped = dict(
        rows(
            url,
            "select job_id, sum(count)::int from skips where job_id = any(%s) and last_at < %s"
            " group by 1",
            [ids, others.end],
        )
    )
    launched = {(r[0], r[1]) for r in found}
    problems: list[str] = []
    wanted = {(job, at) for job, slots in others.slots.items() for at in slots if at >= begin}
    live = sum(at < crowd.last + MINUTE for _, at in wanted)
    print(
        f"others: {len(ids)} jobs, {sum(map(len, others.slots.values()))} slots:"
        f" {len(found)} launched, {sum(skipped.values())} skipped; {live} from the first tick to"
        " the next full minute"
    )
    if lost := len(wanted - launched):
        problems.append(f"{lost} slots of other jobs have no launch")
    counts: dict[UUID, int] = dict(skipped)
    for job, _ in launched:
        counts[job] = counts.get(job, 0) + 1
    if wrong := sum(counts.get(job, 0) != len(slots) for job, slots in others.slots.items()):
        problems.append(f"{wrong} other jobs with slots not accounted for")
    if len(found) != len(launched):
        problems.append(f"{len(found) - len(launched)} slots of other jobs are launched twice")
    spans = (
        ("catch-up", begin, crowd.last + MINUTE),
        ("minute after", crowd.last + MINUTE, others.end),
    )
    print(f"{'late by, ms':<28}{'p50':>8}{'p95':>8}{'p99':>8}{'max':>8}")
    for span, since, to in spans:
        for i, name in ((2, "record"), (3, "queued"), (4, "start")):
            lates = sorted(
                (r[i] - r[1]).total_seconds() * 1000
                for r in found
                if since <= r[1] < to and r[i] is not None
            )
            if len(lates) < 2:
                continue
            p50, p95, p99, top = percentiles(lates)
            print(f"{span + ', ' + name:<28}{p50:>8.0f}{p95:>8.0f}{p99:>8.0f}{top:>8.0f}")
            if top > most * 1000 and span == "catch-up":
                problems.append(f"a {name} of another job is {top:.0f} ms late")
    return problems


def check_ledger(client: Client, crowd: Crowd, policy: str) -> list[str]:
    """The API's ledger of some jobs of the crowd."""
    span = {
        "from": crowd.first.isoformat(),
        "to": (crowd.last + SECOND).isoformat(),
        "limit": 200,
    }
    want = expected(policy, crowd.slots)
    problems = []
    with client:
        for job in (crowd.ids[0], crowd.ids[len(crowd.ids) // 2], crowd.ids[-1]):
            got: dict[str, int] = {}
            for row in client.pages(f"/v1/jobs/{job}/slots", span):
                kind = "launched" if row["state"] == "launched" else str(row["reason"])
                got[kind] = got.get(kind, 0) + row["count"]
            if got != want:
                problems.append(f"the ledger of {job} says {got}, not {want}")
    print(f"ledger of three jobs: {problems or want}")
    return problems


def next_minute(url: str, crowd: Crowd) -> list[str]:
    """The first full minute after the catch-up: all of the crowd on time, or misfires by now."""
    at = crowd.last + MINUTE
    found = rows(url, "select created_at, started_at from launches where job_id = any(%s)"
                 " and scheduled_at = %s", [list(crowd.ids), at])  # fmt: skip
    skipped = ask(url, "select coalesce(sum(count), 0) from skips where scheduled_at = %s"
                  " and job_id = any(%s)", [at, list(crowd.ids)])[0]  # fmt: skip
    total = len(found) + skipped
    late = sorted((r[0] - at).total_seconds() * 1000 for r in found)
    start = sorted((r[1] - at).total_seconds() * 1000 for r in found if r[1])
    if late and start:
        print(f"next full minute: {len(found)} launched, {skipped} skipped; records within"
              f" {late[-1]:.0f} ms, starts within {start[-1]:.0f} ms")  # fmt: skip
    return [] if total == len(crowd.ids) else [f"{total} slots of the next minute accounted for"]


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    policies = ["fire_once", "skip", "fire_all"]
    parser.add_argument("--policy", nargs="+", choices=policies, default=policies)
    parser.add_argument("--overlap", choices=["allow", "skip"], default="allow")
    parser.add_argument("--target", choices=["noop", "command"], default="noop")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=10, help="slots that each job missed")
    parser.add_argument("--per-minute", type=int, default=60, help="of fire_all's policy")
    parser.add_argument("--every-second", type=int, default=50, help="other jobs of a tenant")
    parser.add_argument("--every-five", type=int, default=50)
    parser.add_argument("--one-offs", type=int, default=500)
    parser.add_argument("--max-late", type=float, default=1.0, help="seconds")
    parser.add_argument("--real", action="store_true", help="wait the outage out")
    bed_options(parser, concurrency=256, outstanding=1000)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    problems = [p for policy in args.policy for p in run(args, policy)]
    for problem in problems:
        print(f"BROKEN: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

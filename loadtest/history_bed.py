"""Two databases of one server, one with a history and one without, and the work that is timed."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg import conninfo, sql
from sqlalchemy import Engine

from bed import CLOCK, Seed, insert_jobs, make_tenant
from tickrail.core.ids import Epoch, JobId, Partition, TenantId
from tickrail.core.job_filter import JobFilter
from tickrail.core.ports import Publication
from tickrail.core.ports_api import LaunchFilter
from tickrail.core.ports_metrics import NullMetrics
from tickrail.core.ports_worker import ClaimRequest, Finish
from tickrail.core.records import PageRequest, Position
from tickrail.core.verdict import success_verdict
from tickrail.engine.tick import Tick
from tickrail.local.progress import PlainProgress
from tickrail.local.stack import LocalStack
from tickrail.store.engine import make_engine
from tickrail.store.jobs import JobTable
from tickrail.store.launches import LaunchTable
from tickrail.store.migrate import migrate
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.provision import ROLES, Urls, provision
from tickrail.store.session import DatabaseSettings
from tickrail.store.tenancy import Caller, tenant_transaction
from tickrail.store.worker import PostgresWorkerStore

T = TypeVar("T")
PARTITIONS = 64
EPOCH = Epoch(7)
OWNED = {Partition(p): EPOCH for p in range(PARTITIONS)}
WHO = Caller("key:load")
PAGE = 50
LATER = timedelta(hours=3)
CLAIMED = 500
"""Launches that a worker claims at once."""
TABLES = ("launches", "attempts", "skips", "launch_logs")

FILL = """
insert into {launches} (id, scheduled_at, tenant_id, job_id, job_version, partition, queue,
  priority, origin, state, phase, attempt, failures, max_attempts, rerun, visibility, due_at,
  created_at, queued_at, publications, claim, worker, started_at, finished_at, epoch, result,
  dead_at)
select (lpad(to_hex((extract(epoch from s.at) * 1000)::int8), 12, '0') || '8' || substr(s.h, 1, 3)
        || 'a' || substr(s.h, 4, 15))::uuid,
       s.at, j.tenant_id, j.id, 1, j.partition, 'default', 1, 'schedule',
       case when n %% 1000 = 0 then 'dead' else 'succeeded' end, 3,
       1 + (n %% 100 = 0)::int, (n %% 100 = 0)::int, 5, true, 30, s.at, s.at,
       s.at + interval '50 ms', 1, n + 1, 'worker-1', s.at + interval '80 ms',
       s.at + interval '1 s', 7, '{{"outcome": "exit_0", "code": 0, "message": "exit 0"}}',
       case when n %% 1000 = 0 then s.at + interval '1 s' end
from generate_series(0::int8, %(count)s - 1) n
cross join lateral (select
  %(day)s::timestamptz + floor(n * 86400.0 / %(count)s) * interval '1 s' as at,
  md5(%(day)s::text || n) as h) s
join some_jobs j on j.place = (n * 7919) %% %(jobs)s
where s.at < now() - interval '1 minute'
"""
FAILED = """
insert into {attempts} (launch_id, scheduled_at, tenant_id, attempt, claim, worker, started_at,
  finished_at, outcome, certain, code, message)
select id, scheduled_at, tenant_id, 1, claim, worker, started_at, finished_at, 'exit_1', true, 1,
       'exit 1'
from {launches} where failures > 0
"""
SKIPPED = """
insert into {skips} (job_id, scheduled_at, last_at, tenant_id, count, reason)
select id, %(day)s::timestamptz + interval '1 h', %(day)s::timestamptz + interval '2 h', tenant_id,
       60, 'paused'
from some_jobs where place %% 50 = 0
"""


@dataclass
class Times:
    """Seconds that each kind of work took."""

    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def of(self, what: str, work: Callable[[], T]) -> T:
        """Do it and note how long it took."""
        began = CLOCK.monotonic()
        try:
            return work()
        finally:
            self.taken[what].append(CLOCK.monotonic() - began)


class Side:
    """One database and everything that works on it, by the real stores."""

    def __init__(self, name: str, admin: str, urls: Urls, jobs: dict[UUID, list[UUID]]) -> None:
        self.name = name
        self.admin = admin
        self.urls = urls
        self.tenants = list(jobs)
        self.jobs = [(t, job) for t, ids in jobs.items() for job in ids]
        self.settings = DatabaseSettings(urls.engine, name="history")
        self.owner = PostgresOwnerStore(self.settings, CLOCK)
        self.worker = PostgresWorkerStore(self.settings, CLOCK)
        self.engine: Engine = make_engine(DatabaseSettings(urls.api, name="history"))
        self.tick = Tick(self.owner, NullMetrics())
        self._conn = psycopg.connect(admin, autocommit=True)

    def twin(self) -> Side:
        """The same with connections of its own, for another thread."""
        found: dict[UUID, list[UUID]] = {}
        for tenant, job in self.jobs:
            found.setdefault(tenant, []).append(job)
        return Side(self.name, self.admin, self.urls, found)

    def close(self) -> None:
        """Give the connections back."""
        self.owner.close()
        self.worker.close()
        self.engine.dispose()
        self._conn.close()

    def launch(self, times: Times, jobs: Sequence[UUID]) -> int:
        """Make these jobs due and bring them all the way; how many launches there were."""
        # The tick plans the present minute, once; afterwards nothing of them is due for hours.
        due = "update jobs set next_run_at = date_trunc('minute', now()) where id = any(%s)"
        self._conn.execute(due, [list(jobs)])
        ticked = times.of("tick", lambda: self.tick.run_once(OWNED))
        later = "update jobs set next_run_at = now() + %s where id = any(%s)"
        self._conn.execute(later, [LATER, list(jobs)])
        times.of("backlog", lambda: self.owner.backlog(OWNED, len(jobs)))
        return self.carry(times, ticked.inserted)

    def carry(self, times: Times, made: Sequence[Publication]) -> int:
        """Mark launches as published, claim them, and let them succeed; how many did."""
        if not made:
            return 0
        times.of("mark", lambda: self.owner.mark_queued(OWNED, made))
        done = 0
        for n in range(0, len(made), CLAIMED):
            asked = [ClaimRequest(p.id, p.scheduled_at, 1) for p in made[n : n + CLAIMED]]
            answer = times.of("claim", lambda asked=asked: self.worker.claim(asked, "history"))  # type: ignore[misc]
            ends = [
                Finish(
                    c.id, c.scheduled_at, c.claim, c.attempt,
                    success_verdict(c.attempt, c.failures), "exit_0", True, 0, "exit 0", "",
                    '{"outcome": "exit_0", "code": 0, "message": "exit 0"}',
                )
                for c in answer.granted
            ]  # fmt: skip
            if ends:
                times.of("finish", lambda ends=ends: self.worker.finish(ends))  # type: ignore[misc]
            done += len(ends)
        return done

    def look(self, times: Times, rng: random.Random, days: int) -> None:
        """The pages that users look at, of one tenant and one of its jobs."""
        tenant, job = rng.choice(self.jobs)
        newest = PageRequest("scheduled_at", ascending=False, limit=PAGE)
        at = CLOCK.now() - timedelta(seconds=rng.uniform(0, days * 86400.0))
        deep = PageRequest("scheduled_at", False, PAGE, Position(at, str(uuid4())))
        with tenant_transaction(self.engine, TenantId(tenant), WHO) as tx:
            jobs, launches = JobTable(tx), LaunchTable(tx)
            first = PageRequest("created_at", ascending=False, limit=PAGE)
            page = times.of("jobs, first page", lambda: jobs.page(JobFilter(), first))
            if page.after is not None:
                second = PageRequest("created_at", False, PAGE, page.after)
                times.of("jobs, next page", lambda: jobs.page(JobFilter(), second))
            times.of("history, newest page", lambda: launches.page(LaunchFilter(), newest))
            found = times.of("history, page at depth", lambda: launches.page(LaunchFilter(), deep))
            mine = LaunchFilter(job=JobId(job))
            times.of("history of a job, newest page", lambda: launches.page(mine, newest))
            times.of("history of a job, page at depth", lambda: launches.page(mine, deep))
            dead = LaunchFilter(states=("dead",), since=CLOCK.now() - timedelta(days=1))
            times.of("history of a day, one state", lambda: launches.page(dead, newest))
            if found.items:
                one = rng.choice(found.items)
                times.of("one launch", lambda: launches.find(one.id))


@contextmanager
def sides(args: argparse.Namespace) -> Iterator[tuple[Side, Side]]:
    """The two databases, the one without a history first; all is gone at the end."""
    folder = Path(args.data or tempfile.mkdtemp(prefix="tickrail-history-"))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    stack = LocalStack(folder, usual_ports=False)
    addresses = stack.start(PlainProgress(sys.stderr))
    found: list[Side] = []
    try:
        for server in (stack.kafka, stack.etcd):  # only PostgreSQL is measured
            server.stop()
        passwords = {role: secrets.token_hex(16) for role in ROLES}
        for name in ("empty", "full"):
            urls = provision(addresses.postgres_dsn, name, passwords)
            migrate(urls.owner, partitions=PARTITIONS, days_behind=args.days - 1)
            admin = conninfo.make_conninfo(addresses.postgres_dsn, dbname=name)
            found.append(Side(name, admin, urls, seed(admin, args)))
        fill(found[1], args)
        yield found[0], found[1]
    finally:
        for side in found:
            side.close()
        stack.destroy()


def seed(admin: str, args: argparse.Namespace) -> dict[UUID, list[UUID]]:
    """Tenants and their jobs, none of them due for hours."""
    with psycopg.connect(admin) as conn:
        conn.execute("update queues set kinds = kinds || array['noop']")
        conn.execute("update partitions set epoch = %s", [EPOCH])
    at = CLOCK.now() + LATER
    seeds = [Seed({"cron": "* * * * *"}, at)] * (args.jobs // args.tenants)
    return {
        tenant: insert_jobs(admin, tenant, seeds, PARTITIONS, "active")
        for tenant in (make_tenant(admin) for _ in range(args.tenants))
    }


def fill(side: Side, args: argparse.Namespace) -> None:
    """Launches of so many days, in the tables' own days, by a connection for each core."""
    today = CLOCK.now().astimezone(UTC).date()
    days = [today - timedelta(days=n) for n in range(args.days)]
    began = CLOCK.monotonic()
    with ThreadPoolExecutor(args.fillers) as pool:
        parts = [days[n :: args.fillers] for n in range(args.fillers)]
        list(pool.map(lambda part: fill_days(side.admin, part, args), parts))
    with psycopg.connect(side.admin, autocommit=True) as conn:
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
        row = conn.execute(
            "select count(*), sum(pg_total_relation_size(inhrelid)) from pg_inherits"
            " where inhparent = 'launches'::regclass"
        ).fetchone()
        count = conn.execute("select count(*) from launches").fetchone()
    if row is None or count is None:
        raise SystemExit("nothing was filled")
    print(
        f"{count[0]:,} launches in {row[0]} days, {int(row[1]) / 1e9:.2f} GB with indexes,"
        f" filled in {CLOCK.monotonic() - began:.0f} s"
    )


def fill_days(admin: str, days: Sequence[date], args: argparse.Namespace) -> None:
    """The launches, failed attempts and skips of some days."""
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("set synchronous_commit = off")
        conn.execute(
            "create temp table some_jobs as select row_number() over (order by id) - 1 as place,"
            " id, tenant_id, partition from jobs"
        )
        conn.execute("create index on some_jobs (place)")
        conn.execute("analyze some_jobs")
        for day in days:
            names = {t: sql.Identifier(f"{t}_{day:%Y%m%d}") for t in TABLES}
            given = {
                "day": datetime.combine(day, datetime.min.time(), UTC),
                "count": args.launches // args.days,
                "jobs": args.jobs // args.tenants * args.tenants,
            }
            for statement in (FILL, FAILED, SKIPPED):
                conn.execute(sql.SQL(statement).format(**names), given)

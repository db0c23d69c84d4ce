"""What planning costs: the next instant, previews, what was missed, and a tick among many jobs.

    python loadtest/planner.py [--jobs 1000,100000,300000] [--no-tick]

- The next instant of expressions found in the wild, beside croniter's own `get_next` in the same
  run, each alone and in turns; the median of the ratios must be at most 2 (aimed at: 0.1).
- The worst legal expression must have its next instant within 100 ms, caches empty.
- `upcoming(10)` and `missed` over a year of `* * * * * *` within 100 ms.
- A tick that finds 100 jobs due, on a real PostgreSQL: what it costs must not follow how many jobs
  there are.

Exits 1 when a threshold is broken.
"""

from __future__ import annotations

import argparse
import csv
import json
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import structlog
from croniter import CroniterError, croniter

from tickrail.core import cron, recurrence, zones
from tickrail.core.clock import SystemClock
from tickrail.core.cron import CronError, CronExpression
from tickrail.core.definition import parse_definition
from tickrail.core.ids import Epoch, JobId, Partition, uuid7
from tickrail.core.schedule import Cron, missed, next_after, upcoming
from tickrail.core.sharding import partition_of
from tickrail.engine.tick import Tick
from tickrail.local.progress import PlainProgress
from tickrail.local.stack import LocalStack
from tickrail.store.migrate import migrate
from tickrail.store.owner import PostgresOwnerStore
from tickrail.store.provision import ROLES, provision
from tickrail.store.session import DatabaseSettings

CLOCK = SystemClock()
CORPUS = Path(__file__).parents[1] / "tests/data/cron_corpus.csv"
START = datetime(2026, 3, 1, tzinfo=UTC)
DIALECTS = {"unix5", "k8s", "github-actions", "spring6", "robfig6", "at-name"}
NEXT = 50
ROUNDS = 5
LIMIT = 0.1
MAX_RATIO = 2.0
PARTITIONS = 64
EPOCH = Epoch(7)
DUE = 100
TICKS = 20
GROWTH = 2.0
SLACK = 0.010
WORST = (
    "0 0 */28 2 1#5",
    "59 59 23 */28 2 6#5 2152-2199",
    "0 0 29 2 1#5",
    "0 0 29 2 *",
    "0 0 L-28 2 *",
    "0 0 0 31W 12 ? *",
    "0 0 0 1 1 ? 2199",
    "0 0 29W 2 *",
)
"""Legal, with the longest searches."""


class Metrics:
    """Counts nothing."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Leave it."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Leave it."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Leave it."""


@dataclass
class Checks:
    """The thresholds, and whether each held."""

    broken: int = 0

    def hold(self, what: str, value: float, limit: float, unit: str = "") -> None:
        """Print a figure beside its threshold."""
        good = value <= limit
        self.broken += not good
        print(f"{what}: {value:.4g}{unit} (at most {limit:g}{unit}){'' if good else '  BROKEN'}")


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = CLOCK.monotonic()
    call()
    return CLOCK.monotonic() - began


def forget() -> None:
    """Empty every cache of the planner."""
    cron._parse.cache_clear()  # noqa: SLF001 - the worst case is the one without caches
    recurrence.walker_of.cache_clear()
    zones.zone.cache_clear()


def next_instants(checks: Checks) -> None:
    """Ours beside croniter's, expression by expression."""
    with CORPUS.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["dialect"] in DIALECTS]
    print(f"next instant, {NEXT} in a row, best of {ROUNDS}; median over the corpus")
    for name in ("UTC", "Europe/Berlin", "America/New_York"):
        ratios: list[float] = []
        ours: list[float] = []
        theirs: list[float] = []
        for text in sorted({row["expression"] for row in rows}):
            s, start = Cron(text, name), START.astimezone(ZoneInfo(name))
            try:
                CronExpression.parse(text)
                other = croniter(text, start, second_at_beginning=True)
            except (CronError, CroniterError):
                continue

            def walk(s: Cron = s) -> None:
                at: datetime | None = START
                for _ in range(NEXT):
                    if at is not None:
                        at = next_after(s, at)

            def step(other: croniter = other, start: datetime = start) -> None:
                other.set_current(start)
                for _ in range(NEXT):
                    other.get_next(datetime)

            walk()
            step()
            mine = min(timed(walk) for _ in range(ROUNDS)) / NEXT
            his = min(timed(step) for _ in range(ROUNDS)) / NEXT
            ours.append(mine)
            theirs.append(his)
            ratios.append(mine / his)
        print(
            f"  {name}: {len(ratios)} expressions, {statistics.median(ours) * 1e6:.1f} us, "
            f"croniter {statistics.median(theirs) * 1e6:.1f} us, worst ratio {max(ratios):.2f}"
        )
        checks.hold(f"  {name}: ratio to croniter", statistics.median(ratios), MAX_RATIO)


def worst(checks: Checks) -> None:
    """The longest searches and walks."""
    slowest = 0.0
    for text in WORST:
        for name in ("UTC", "America/New_York", "Africa/Casablanca"):
            forget()
            s = Cron(text, name)
            slowest = max(slowest, timed(lambda s=s: next_after(s, START)))  # type: ignore[misc]
    checks.hold("worst legal expression, caches empty", slowest * 1e3, LIMIT * 1e3, " ms")
    seconds = Cron("* * * * * *", "Europe/Berlin")
    forget()
    checks.hold(
        "upcoming(10)", timed(lambda: upcoming(seconds, START, 10)) * 1e3, LIMIT * 1e3, " ms"
    )
    year = START - timedelta(days=365)
    for limit in (1, 1000):
        cost = timed(lambda limit=limit: missed(seconds, year, START, limit))  # type: ignore[misc]
        checks.hold(
            f"missed over a year of every second, {limit} named", cost * 1e3, LIMIT * 1e3, " ms"
        )


@contextmanager
def database() -> Iterator[tuple[str, str]]:
    """A real PostgreSQL with the schema: the superuser's and the engine's connection."""
    folder = Path(tempfile.mkdtemp(prefix="tickrail-planner-"))
    folder.chmod(0o755)
    stack = LocalStack(folder, usual_ports=False)
    addresses = stack.start(PlainProgress(sys.stderr))
    try:
        passwords = {role: secrets.token_hex(16) for role in ROLES}
        urls = provision(addresses.postgres_dsn, "planner", passwords)
        migrate(urls.owner, partitions=PARTITIONS)
        admin = psycopg.conninfo.make_conninfo(addresses.postgres_dsn, dbname="planner")
        with psycopg.connect(admin) as conn:
            conn.execute("update queues set kinds = kinds || array['noop']")
            conn.execute("update partitions set epoch = %s", [EPOCH])
        yield admin, urls.engine
    finally:
        stack.destroy()


def insert_jobs(conn: psycopg.Connection[Any], count: int) -> None:
    """Jobs that are due in the hours to come, in one tenant."""
    tenant, now = uuid7(CLOCK), CLOCK.now()
    conn.execute("insert into tenants (id, name) values (%s, %s)", [tenant, tenant.hex])
    one = parse_definition(
        {
            "name": "planner",
            "schedule": {"cron": "* * * * *", "time_zone": "Europe/Berlin"},
            "overlap": "allow",
            "target": {"noop": {}},
        },
        job=JobId(tenant),
        now=now,
    )
    plan, document = json.dumps(one.plan_document()), json.dumps(one.document())
    ids = [uuid7(CLOCK) for _ in range(count)]
    with conn.cursor() as cursor:
        columns = "(id, tenant_id, name, partition, state, next_run_at, plan)"
        with cursor.copy(f"copy jobs {columns} from stdin") as copy:
            for n, job in enumerate(ids):
                due = now + timedelta(hours=2, seconds=n % 80_000)
                partition = partition_of(job, PARTITIONS)
                copy.write_row((job, tenant, f"p-{job}", partition, "active", due, plan))
        columns = "(job_id, version, tenant_id, definition)"
        with cursor.copy(f"copy job_versions {columns} from stdin") as copy:
            for job in ids:
                copy.write_row((job, 1, tenant, document))
    conn.commit()


def tick_cost(conn: psycopg.Connection[Any], engine: str) -> tuple[float, float]:
    """Seconds of a tick with 100 jobs due, and of one that finds nothing; the least of some."""
    store = PostgresOwnerStore(DatabaseSettings(engine, name="planner"), CLOCK)
    store.make_days(2)
    owned = {Partition(p): EPOCH for p in range(PARTITIONS)}
    tick = Tick(store, Metrics())
    found = conn.execute("select id from jobs order by id desc limit %s", [DUE]).fetchall()
    jobs = [row[0] for row in found]
    busy, idle = [], []
    for _ in range(TICKS):
        conn.execute("delete from launches")
        conn.execute(
            "update jobs set next_run_at = date_trunc('minute', now()) where id = any(%s)", [jobs]
        )
        conn.commit()
        began = CLOCK.monotonic()
        ticked = tick.run_once(owned)
        busy.append(CLOCK.monotonic() - began)
        if ticked.jobs != DUE or len(ticked.inserted) != DUE:
            raise SystemExit(
                f"the tick planned {ticked.jobs} jobs, {len(ticked.inserted)} launches"
            )
        idle.append(timed(lambda: tick.run_once(owned)))
    store.close()
    later = "update jobs set next_run_at = now() + interval '3 hours' where id = any(%s)"
    conn.execute(later, [jobs])
    conn.commit()
    return min(busy), min(idle)


def ticks(checks: Checks, sizes: Sequence[int]) -> None:
    """The cost of a tick at each number of jobs."""
    first: float | None = None
    there = 0
    with database() as (admin, engine), psycopg.connect(admin) as conn:
        for size in sizes:
            insert_jobs(conn, size - there)
            there = size
            conn.commit()
            conn.autocommit = True
            conn.execute("vacuum analyze jobs, job_versions")
            conn.execute("checkpoint")
            conn.autocommit = False
            busy, idle = tick_cost(conn, engine)
            what = f"tick of {DUE} due among {size:,} jobs (idle: {idle * 1e3:.1f} ms)"
            first = busy if first is None else first
            checks.hold(what, busy * 1e3, (first * GROWTH + SLACK) * 1e3, " ms")


def main() -> int:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default="1000,100000,300000", help="numbers of jobs, ascending")
    parser.add_argument("--no-tick", action="store_true", help="without the database")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    checks = Checks()
    next_instants(checks)
    worst(checks)
    if not args.no_tick:
        ticks(checks, [int(n) for n in args.jobs.split(",")])
    return 1 if checks.broken else 0


if __name__ == "__main__":
    sys.exit(main())

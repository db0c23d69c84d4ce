"""The API at size, on real servers of its own: lists at any depth, creates, batches.

    python loadtest/api.py [lists create batch absent] [--jobs 100000] [--tenants 200]

One tenant has a tenth of the jobs. `lists` walks every list of jobs, launches and the audit log
with each sort and filter; `create` makes jobs over 16 connections, each on an API process per core;
`batch` makes them a thousand at a time; `absent` asks in turn for what is another tenant's and for
what is not there. Prints what it measured and exits 1 when a bound is broken: the p99 of a page
(--max-p99, 50 ms), creates a second (--min-create, 500), jobs a second by batches (--min-batch,
5000), the difference of the two medians (--max-difference, 5 %).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg

from bed import CLOCK, Bed, bed, bed_options, cpu_seconds, pause, percentiles
from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId, uuid7
from tickrail.store.bootstrap import bootstrap

PARTS = ("lists", "create", "batch", "absent")
TARGET = {"webhook": {"url": "http://127.0.0.1:9099/hook"}}
"""An address and no name: no name server is measured."""
CONNECTIONS = 16
LARGE_PART = 0.1
"""Of all jobs, those of the one large tenant."""
_SPREAD = 97


@dataclass
class Caller:
    """One connection to one API process, with one tenant's key."""

    port: int
    token: str
    _conn: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One request; the status and the body of its answer."""
        if self._conn is None:
            self._conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self._conn.connect()
            self._conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self._conn.request(method, path, body, headers)
        answer = self._conn.getresponse()
        return answer.status, answer.read()

    def get(self, path: str, **params: object) -> tuple[Any, float]:
        """The document of an answer, and the seconds it took."""
        query = urlencode({k: v for k, v in params.items() if v is not None}, doseq=True)
        began = CLOCK.monotonic()
        status, body = self.call("GET", f"{path}?{query}")
        seconds = CLOCK.monotonic() - began
        if status != http.client.OK:
            raise SystemExit(f"{path}?{query} answered {status}: {body[:500].decode()}")
        return json.loads(body), seconds

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            self._conn.close()


@dataclass
class Large:
    """The installation with its tenants; the first of them is the large one."""

    running: Bed
    ports: Sequence[int]
    tenants: Sequence[UUID]
    tokens: Sequence[str]
    broken: list[str] = field(default_factory=list)

    def caller(self, tenant: int = 0, process: int = 0) -> Caller:
        """A connection for a tenant."""
        return Caller(self.ports[process % len(self.ports)], self.tokens[tenant])

    def require(self, kept: bool, what: str) -> None:
        """Remember a bound that is broken."""
        if not kept:
            self.broken.append(what)


SEED = """
insert into jobs (id, tenant_id, name, partition, state, plan, created_at, updated_at, deleted_at)
select overlay(gen_random_uuid()::text placing '7' from 15)::uuid, %(tenant)s,
       'job-' || lpad((n * 7919 %% 1000003)::text, 7, '0'), n %% %(parts)s, s.state,
       %(plan)s::jsonb || jsonb_build_object('queue',
         case when n %% 5 = 0 then 'mail' else 'default' end),
       now() - (n / 50) * interval '1 minute', now() - (n %% 1000) * interval '1 minute',
       case when s.state = 'deleted' then now() - (n %% 29) * interval '1 day' end
from generate_series(1, %(count)s) n
cross join lateral (select case when n %% 20 = 0 then 'paused' when n %% 33 = 0 then 'deleted'
  when n %% 50 = 0 then 'finished' else 'active' end as state) s
"""
REST = (
    """
insert into job_versions (job_id, version, tenant_id, definition)
select id, 1, tenant_id, %(document)s::jsonb || jsonb_build_object('name', name) from jobs
""",
    """
insert into job_tags (job_id, tenant_id, key, value)
select id, tenant_id, 'team', 'team-' || abs(hashtext(id::text)) %% 10 from jobs
""",
    """
insert into launches (id, scheduled_at, tenant_id, job_id, job_version, partition, queue, priority,
  origin, state, phase, max_attempts, rerun, visibility, due_at, epoch, finished_at, dead_at)
select gen_random_uuid(), at, tenant_id, id, 1, partition, plan ->> 'queue', 1, 'schedule',
       case when dead then 'dead' else 'succeeded' end, 3, 5, true, 30, at, 1, at,
       case when dead then at end
from jobs
cross join generate_series(0, 1) day
cross join lateral (select
  date_trunc('second', now() - day * interval '1 day'
    - abs(hashtext(id::text)) %% 3600 * interval '1 s') as at,
  abs(hashtext(id::text || day)) %% 20 = 0 as dead) x
""",
    """
insert into audit_log (id, tenant_id, at, actor, action, subject, after, request_id, address)
select overlay(gen_random_uuid()::text placing '7' from 15)::uuid, tenant_id, created_at,
       'key:' || abs(hashtext(id::text)) %% 7,
       case abs(hashtext(name)) %% 3 when 0 then 'job.create' when 1 then 'job.change'
         else 'job.pause' end, 'job:' || id, plan, 'r-' || id, '192.0.2.7'
from jobs
""",
)


def seed(running: Bed, args: argparse.Namespace) -> tuple[list[UUID], list[str]]:
    """Tenants with keys, and their jobs with versions, tags, launches and audit entries."""
    one = parse_definition(
        {"name": "job", "schedule": {"cron": "0 2 * * *"}, "target": TARGET},
        job=JobId(uuid7(CLOCK)),
        now=CLOCK.now(),
    )
    given = {"plan": json.dumps(one.plan_document()), "document": json.dumps(one.document())}
    tenants, tokens = [], []
    for n in range(args.tenants):
        made = bootstrap(running.urls.owner, CLOCK, tenant=f"tenant-{n}")
        tenants.append(UUID(str(made.tenant)))
        tokens.append(made.token)
    large = int(args.jobs * LARGE_PART)
    others = (args.jobs - large) // (args.tenants - 1)
    with psycopg.connect(running.admin, autocommit=True) as conn:
        conn.execute("insert into queues (name, kinds) values ('mail', array['webhook'])")
        conn.execute(
            "select make_day((now() - n * interval '1 d')::date) from generate_series(-1, 29) n"
        )
        for n, tenant in enumerate(tenants):
            count = large if n == 0 else others
            conn.execute(
                SEED, {**given, "tenant": tenant, "count": count, "parts": args.partitions}
            )
        for statement in REST:
            conn.execute(statement, given)
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
    return tenants, tokens


@contextmanager
def large(args: argparse.Namespace) -> Iterator[Large]:
    """Servers, jobs, and an API process per core."""
    with bed(args) as running:
        tenants, tokens = seed(running, args)
        ports = [free_port() for _ in range(args.processes)]
        for n, port in enumerate(ports):
            more = {
                "TICKRAIL_API_PORT": str(port),
                "TICKRAIL_STATUS_PORT": "0",
                "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
            }
            running.start("api", first=n + 1, **more)
        found = Large(running, ports, tenants, tokens)
        for n in range(len(ports)):
            wait_for(found.caller(process=n))
        yield found


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for(caller: Caller, seconds: float = 60.0) -> None:
    """Until a process answers."""
    until = CLOCK.monotonic() + seconds
    while CLOCK.monotonic() < until:
        try:
            caller.get("/v1/jobs", limit=1)
        except OSError:
            caller.close()
            pause(0.2)
        else:
            return
    raise SystemExit("an API process does not answer: see the log lines above")


def lists(found: Large, args: argparse.Namespace) -> None:
    """The time of each page of each list, all the way down."""
    ways: dict[str, tuple[str, Mapping[str, object]]] = {}
    for sort in ("created_at", "-created_at", "name", "-name"):
        for label, filters in {
            "": {},
            "state=paused": {"state": "paused"},
            "state=deleted": {"state": "deleted"},
            "state=active,deleted": {"state": ["active", "deleted"]},
            "tag": {"tag": "team:team-3"},
            "name_prefix": {"name_prefix": "job-01"},
            "queue": {"queue": "mail"},
            "from": {"from": at(days=-1)},
            "updated_from": {"updated_from": at(hours=-1)},
        }.items():
            ways[f"jobs {sort} {label}"] = "/v1/jobs", {"sort": sort, **filters}
    for sort in ("scheduled_at", "-scheduled_at"):
        for label, filters in {
            "": {},
            "state=dead": {"state": "dead"},
            "tag": {"tag": "team:team-3"},
            "queue": {"queue": "mail"},
            "from": {"from": at(hours=-2)},
        }.items():
            ways[f"launches {sort} {label}"] = "/v1/launches", {"sort": sort, **filters}
    ways["dead letters"] = "/v1/dead-letters", {}
    for sort in ("at", "-at"):
        for label, filters in {
            "": {},
            "action": {"action": "job.pause"},
            "actor": {"actor": "key:3"},
            "subject": {"subject": "job:nothing"},
            "from": {"from": at(hours=-2)},
        }.items():
            ways[f"audit {sort} {label}"] = "/v1/audit-log", {"sort": sort, **filters}
    print(f"{'list':<40}{'pages':>7}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    everything: list[float] = []
    for name, (path, params) in ways.items():
        times = sorted(
            t for tenant in (0, 1) for t in walk(found.caller(tenant), path, params, args.pages)
        )
        everything += times
        p50, _, p99, most = percentiles([*times, *times]) if len(times) == 1 else percentiles(times)
        p99 = min(p99, most)
        print(f"{name:<40}{len(times):>7}{p50 * 1e3:>9.1f}{p99 * 1e3:>9.1f}{most * 1e3:>9.1f}")
    p50, _, p99, most = percentiles(sorted(everything))
    print(f"{'all':<40}{len(everything):>7}{p50 * 1e3:>9.1f}{p99 * 1e3:>9.1f}{most * 1e3:>9.1f}")
    found.require(p99 * 1e3 <= args.max_p99, f"the p99 of a page is {p99 * 1e3:.1f} ms")


def walk(caller: Caller, path: str, params: Mapping[str, object], most: int) -> list[float]:
    """The seconds of each page down to the end of a list, or so many of them."""
    times: list[float] = []
    cursor = None
    while len(times) < most:
        page, seconds = caller.get(path, **params, cursor=cursor)
        times.append(seconds)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    caller.close()
    return times


def at(*, days: int = 0, hours: int = 0) -> str:
    """An instant so far from now."""
    return (CLOCK.now() + timedelta(days=days, hours=hours)).isoformat()


def document(name: str, n: int) -> dict[str, Any]:
    """A job's document as people write them."""
    return {
        "name": name,
        "description": "Closes the day's invoices",
        "tags": {"team": f"team-{n % 10}"},
        "schedule": {"cron": f"{n % 60} {n % 24} * * *", "time_zone": "Europe/Berlin"},
        "target": TARGET,
        "payload": {"n": n},
    }


def create(found: Large, args: argparse.Namespace) -> None:
    """Jobs a second, one by one, over 16 connections."""
    until = CLOCK.monotonic() + args.seconds

    def make(one: int) -> list[float]:
        caller, times = found.caller(1 + one % (len(found.tenants) - 1), one), []
        while CLOCK.monotonic() < until:
            body = json.dumps(document(f"new-{one}-{len(times)}", len(times))).encode()
            began = CLOCK.monotonic()
            expect(caller.call("POST", "/v1/jobs", body), http.client.CREATED)
            times.append(CLOCK.monotonic() - began)
        caller.close()
        return times

    times, seconds, cpu = at_once(found, make, CONNECTIONS)
    p50, _, p99, _ = percentiles(sorted(times))
    rate = len(times) / seconds
    print(f"create: {rate:.0f} jobs/s, p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms; {cpu}")
    found.require(rate >= args.min_create, f"{rate:.0f} creates a second")


def batch(found: Large, args: argparse.Namespace) -> None:
    """Jobs a second, a thousand by a request."""
    bodies = [
        json.dumps(
            {"jobs": [document(f"batch-{one}-{n}-{k}", k) for k in range(args.batch_size)]}
        ).encode()
        for one in range(args.processes * 2)
        for n in range(args.batches)
    ]

    def make(one: int) -> list[float]:
        caller, times = found.caller(1 + one % (len(found.tenants) - 1), one), []
        for body in bodies[one * args.batches : (one + 1) * args.batches]:
            began = CLOCK.monotonic()
            answer = expect(caller.call("POST", "/v1/jobs/batch", body), http.client.OK)
            times.append(CLOCK.monotonic() - began)
            if json.loads(answer)["created"] != args.batch_size:
                raise SystemExit(f"not all of a batch were created: {answer[:500].decode()}")
        caller.close()
        return times

    times, seconds, cpu = at_once(found, make, args.processes * 2)
    rate = len(times) * args.batch_size / seconds
    print(f"batch: {rate:.0f} jobs/s, {statistics.median(times) * 1e3:.0f} ms a request; {cpu}")
    found.require(rate >= args.min_batch, f"{rate:.0f} jobs a second by batches")


def absent(found: Large, args: argparse.Namespace) -> None:
    """Whether time tells another tenant's job from one that is not there."""
    with psycopg.connect(found.running.admin) as conn:
        rows = conn.execute(
            "select id from jobs where tenant_id = %s and state = 'active' limit 1000",
            [found.tenants[0]],
        ).fetchall()
    rng = random.Random(args.seed)
    caller = found.caller(1)
    times: dict[str, list[float]] = {"foreign": [], "absent": []}
    for n in range(args.calls + _SPREAD):
        kinds = ["foreign", "absent"]
        rng.shuffle(kinds)
        for kind in kinds:
            job = rng.choice(rows)[0] if kind == "foreign" else uuid7(CLOCK)
            began = CLOCK.monotonic()
            expect(caller.call("GET", f"/v1/jobs/{job}"), http.client.NOT_FOUND)
            if n >= _SPREAD:  # the first ones warm caches
                times[kind].append(CLOCK.monotonic() - began)
    caller.close()
    foreign, nothing = (statistics.median(times[kind]) for kind in ("foreign", "absent"))
    difference = abs(foreign - nothing) / nothing
    print(
        f"absent: medians of {args.calls} calls each: another tenant's {foreign * 1e3:.3f} ms,"
        f" not there {nothing * 1e3:.3f} ms, {difference:.1%} apart"
    )
    found.require(
        difference < args.max_difference / 100, f"foreign and absent differ by {difference:.1%}"
    )


def at_once(
    found: Large, work: Callable[[int], list[float]], threads: int
) -> tuple[list[float], float, str]:
    """Do it in so many threads; all their times, the seconds it took, and who used the CPU."""
    before, began = cpu_seconds(found.running.processes), CLOCK.monotonic()
    own = os.times()
    with ThreadPoolExecutor(threads) as pool:
        times = [t for part in pool.map(work, range(threads)) for t in part]
    seconds = CLOCK.monotonic() - began
    after, ours = cpu_seconds(found.running.processes), os.times()
    spent = {name: used - before.get(name, 0.0) for name, used in after.items()}
    spent["load"] = ours.user + ours.system - own.user - own.system
    shares = ", ".join(f"{n} {s / seconds:.0%}" for n, s in spent.items() if s / seconds > 0.01)
    return times, seconds, f"of a core: {shares}"


def expect(answer: tuple[int, bytes], status: int) -> bytes:
    """The body of an answer that has this status."""
    if answer[0] != status:
        raise SystemExit(f"answered {answer[0]}: {answer[1][:500].decode()}")
    return answer[1]


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--pages", type=int, default=250, help="of a list, at most")
    parser.add_argument("--seconds", type=float, default=20.0, help="of `create`")
    parser.add_argument("--batches", type=int, default=5, help="of each of its connections")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=2000, help="of `absent`, of each kind")
    parser.add_argument("--max-p99", type=float, default=50.0)
    parser.add_argument("--min-create", type=float, default=500.0)
    parser.add_argument("--min-batch", type=float, default=5000.0)
    parser.add_argument("--max-difference", type=float, default=5.0)
    bed_options(parser, concurrency=8, outstanding=1000)
    args = parser.parse_args()
    with large(args) as found:
        for name in args.parts or PARTS:
            {"lists": lists, "create": create, "batch": batch, "absent": absent}[name](found, args)
    for what in found.broken:
        print(f"BROKEN: {what}")
    return 1 if found.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())

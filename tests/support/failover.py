"""A fault under load, and how long it takes until the partitions that it hit launch again.

`bed(kind)` is an installation with one job of each second in every partition; each of its
`attempt()`s makes the fault once, waits until the installation is whole again and gives what
PostgreSQL saw: triggers record every write of a scheduler with its time, its writer and the fence
row as it then was.

What is measured here is time, so the triggers are lean: one for a statement, not one for a row, and
neither old values nor transactions are kept. Those of tests/fault/history.py keep all of that, for
the checker, and cost a line of JSON for each row; the times would be theirs.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from tests.support.etcd_cluster import EtcdCluster
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.until import pause, until

from tickrail.core.ids import JobId, Partition, uuid7
from tickrail.core.sharding import partition_of

JOB = {
    "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
    "target": {"noop": {}},
    "overlap": "allow",
    "misfire": {"policy": "fire_all", "grace": "1m", "max_count": 10000, "per_minute": 100000},
}
STRETCH = 3.0
"""Seconds without a fault before each fault, at least."""
QUIET = 2.2
"""Seconds without a hand-over after which none is to come: members are quiet for 2 s before one."""
NOTICED = 3.0
"""Seconds from a fault on, at least, for which the slots of other partitions are looked at."""
FROZEN = 30.0
"""Seconds between SIGSTOP and SIGCONT."""
_STARTING = threading.Lock()
"""Migrations run one after the other in a process: Alembic keeps its context in a global."""

WATCH = """
create unlogged table seen (
  at timestamptz not null, what text not null, writer text not null, partition int not null,
  epoch bigint, due timestamptz, fence bigint not null, owner text not null);
create function saw_launches() returns trigger language plpgsql security definer as $$ begin
  insert into public.seen
    select clock_timestamp(), 'launch', current_setting('application_name'), n.partition, n.epoch,
      n.scheduled_at, p.epoch, p.owner
    from new_rows n join public.partitions p on p.partition = n.partition;
  return null; end $$;
create function saw_updates() returns trigger language plpgsql security definer as $$ begin
  if current_setting('application_name') like 'scheduler-%' then
    insert into public.seen
      select clock_timestamp(), tg_table_name, current_setting('application_name'), n.partition,
        null, null, p.epoch, p.owner
      from new_rows n join public.partitions p on p.partition = n.partition;
  end if;
  return null; end $$;
create function saw_raises() returns trigger language plpgsql security definer as $$ begin
  insert into public.seen select clock_timestamp(), 'raise', current_setting('application_name'),
    n.partition, n.epoch, null, n.epoch, n.owner from new_rows n;
  return null; end $$;
create trigger seen after insert on launches referencing new table as new_rows
  for each statement execute function saw_launches();
create trigger seen_updates after update on launches referencing new table as new_rows
  for each statement execute function saw_updates();
create trigger seen after update on jobs referencing new table as new_rows
  for each statement execute function saw_updates();
create trigger seen after update on partitions referencing new table as new_rows
  for each statement execute function saw_raises();
"""

DEPOSED = """
select count(*) from seen where writer like 'scheduler-%%' and what <> 'raise'
  and (epoch <> fence or starts_with(owner, writer || '-') is false)
"""
"""Writes of an epoch, or of a process, that is not the one in the fence row."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault, with the lease under which it is tried.

    Attributes:
        name: its short name.
        title: in a table.
        bar: seconds within which all affected partitions launch again, in every try.
        members: schedulers.
        ttl: seconds of their lease.
        renew: seconds between its renewals.
        tries: how often it is made for the report.
    """

    name: str
    title: str
    bar: float
    members: int = 3
    ttl: int = 10
    renew: int = 3
    tries: int = 50


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill", "kill -9 of an owner", 12.0),
        Kind("stop", "SIGSTOP of an owner for 30 s", 12.0),
        Kind("term", "SIGTERM of one of two owners", 1.0, members=2),
        Kind("leader", "kill -9 of the leader of three etcd nodes", 12.0, tries=10),
        Kind("kill-6-2", "kill -9 of an owner", 8.0, ttl=6, renew=2, tries=10),
        Kind("kill-15-5", "kill -9 of an owner", 17.0, ttl=15, renew=5, tries=10),
        Kind("rolling", "restart of all three, one after the other", 2.0, tries=5),
    )
}


@dataclass
class Bed:
    """An installation under load, to make faults of one kind in."""

    kind: Kind
    found: Installation
    conn: psycopg.Connection[tuple[Any, ...]]
    jobs: list[JobId]
    cluster: EtcdCluster | None
    random: random.Random

    # -- what is there -------------------------------------------------------------------------

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.conn.execute(sql, values).fetchall()

    @property
    def schedulers(self) -> dict[str, Service]:
        return {n: s for n, s in self.found.services.items() if s.kind == "scheduler"}

    def owners(self) -> dict[int, tuple[str, int]]:
        """The owner's process and the epoch of each partition."""
        return {
            p: (owner.rpartition("-")[0], epoch)
            for p, owner, epoch in self.rows("select partition, owner, epoch from partitions")
        }

    def servers(self) -> dict[str, str]:
        """The versions of the servers."""
        versions = self.found.stack.server_versions
        return {**versions, "etcd": self.cluster.version} if self.cluster else versions

    def whole(self) -> None:
        """Wait until all members own partitions, none moves, and every one launches."""
        until(self._whole, 120, 0.25)

    def _whole(self) -> bool:
        owners, quiet = self.rows(
            "select count(distinct owner),"
            " max(taken_at) < now() - make_interval(secs => %s) from partitions", QUIET
        )[0]  # fmt: skip
        if owners != self.kind.members or not quiet:
            return False
        lately = "select count(distinct partition) from seen where what = 'launch' and at > %s"
        since = CLOCK.now() - timedelta(seconds=1.5)
        return self.rows(lately, since) == [(self.found.partitions,)]

    # -- one try -------------------------------------------------------------------------------

    def attempt(self) -> dict[str, Any]:
        """The fault once; what was seen, as JSON can hold it. All times are seconds."""
        self.whole()
        self.rows("with old as (delete from seen returning 1) select count(*) from old")
        began = CLOCK.now()
        pause(STRETCH + self.random.uniform(0, self.kind.renew))  # anywhere between two renewals
        load = os.getloadavg()[0]
        seen = MAKERS[self.kind.name.partition("-")[0]](self)
        self.whole()
        ended = CLOCK.now()
        everywhere = list(range(self.found.partitions))
        before = seen["fault"] - timedelta(seconds=1)  # what is due later may be recorded after it
        return {
            "kind": self.kind.name,
            "at": ended.isoformat(timespec="seconds"),
            "load": round(load, 2),
            "nice": os.nice(0),
            "partitions": self.found.partitions,
            "servers": self.servers(),
            **seen,
            "normal": self.delays(began, before, everywhere),
            "deposed": self.rows(DEPOSED)[0][0],
            "slowest": max(self.delays(before, ended, everywhere)),
            **self.account(began, ended),
            "fault": seen["fault"].isoformat(),
        }

    def delays(self, since: datetime, to: datetime, partitions: list[int]) -> list[float]:
        """Due -> record of the slots due in a stretch, each slot once."""
        rows = self.rows(
            "select extract(epoch from at - due) from seen where what = 'launch'"
            " and due > %s and due <= %s and partition = any(%s)", since, to, partitions,
        )  # fmt: skip
        return sorted(round(float(row[0]), 4) for row in rows)

    def account(self, began: datetime, ended: datetime) -> dict[str, int]:
        """Slots of the try without a launch, with more than one, and launches that did not end."""
        first = math.floor(began.timestamp()) + 1
        last = math.floor(ended.timestamp())
        span = (datetime.fromtimestamp(n, began.tzinfo) for n in (first, last))
        window = tuple(span)
        waiting = (
            "select 1 from jobs where next_run_at <= %s union all select 1 from launches"
            " where phase < 3 and scheduled_at between %s and %s limit 1"
        )
        until(lambda: not self.rows(waiting, window[1], *window), 60, 0.2)
        counts = {
            job: (n, slots, succeeded)
            for job, n, slots, succeeded in self.rows(
                "select job_id, count(*), count(distinct scheduled_at),"
                " count(*) filter (where state = 'succeeded')"
                " from launches where scheduled_at between %s and %s group by job_id",
                *window,
            )
        }
        slots = last - first + 1
        return {
            "launches": sum(n for n, _, _ in counts.values()),
            "lost": sum(slots - counts.get(job, (0, 0, 0))[1] for job in self.jobs),
            "doubled": sum(n - distinct for n, distinct, _ in counts.values()),
            "unfinished": sum(n - succeeded for n, _, succeeded in counts.values()),
        }

    def taken_over(self, hit: Mapping[int, int], fault: datetime) -> dict[int, float] | None:
        """Seconds to the first launch of each hit partition under a later epoch, once all have."""
        rows = self.rows(
            "select partition, epoch, extract(epoch from min(at) - %s) from seen"
            " where what = 'launch' and at > %s group by partition, epoch", fault, fault,
        )  # fmt: skip
        found: dict[int, float] = {}
        for partition, epoch, seconds in rows:
            if epoch > hit.get(partition, epoch):
                found[partition] = min(float(seconds), found.get(partition, math.inf))
        return found if len(found) == len(hit) else None

    def measured(
        self, fault: datetime, hit: Mapping[int, int], again: Mapping[int, float]
    ) -> dict[str, Any]:
        """What is told of a fault that ended when the last partition hit launched again."""
        over = fault + timedelta(seconds=max(NOTICED, *again.values()))
        others = [p for p in range(self.found.partitions) if p not in hit]
        raised = self.rows(
            "select extract(epoch from max(at) - %s) from seen where what = 'raise' and at > %s"
            " and at <= %s and partition = any(%s)", fault, fault, over, list(hit),
        )  # fmt: skip
        return {
            "fault": fault,
            "hit": len(hit),
            "last": round(max(again.values()), 4),
            "times": sorted(round(seconds, 4) for seconds in again.values()),
            "raised": round(float(raised[0][0]), 4) if raised[0][0] is not None else None,
            "neighbours": self.delays(fault, over, others),
        }

    def victim(self) -> tuple[Service, dict[int, int]]:
        """A scheduler, and the epochs of the partitions that it owns."""
        name = self.random.choice(sorted(self.schedulers))
        return self.schedulers[name], {p: e for p, (n, e) in self.owners().items() if n == name}

    def again(self, hit: Mapping[int, int], fault: datetime) -> dict[int, float]:
        """Wait until each hit partition launched under a later epoch; how long each took."""
        until(lambda: self.taken_over(hit, fault) is not None, 60, 0.1)
        return self.taken_over(hit, fault) or {}

    # -- the faults ----------------------------------------------------------------------------

    def kill(self) -> dict[str, Any]:
        service, hit = self.victim()
        fault = self.send(service, signal.SIGKILL)
        assert service.process is not None
        proof = service.process.wait(10)
        seen = self.measured(fault, hit, self.again(hit, fault))
        service.start()
        return {**seen, "proof": f"exit {proof}"}

    def stop(self) -> dict[str, Any]:
        """SIGSTOP, half of the times just after a slot: its transaction may be open then."""
        service, hit = self.victim()
        before = service.log.stat().st_size
        if self.random.random() < 0.5:
            self.wait_for_slot(self.random.uniform(0, 0.03))
        fault = self.send(service, signal.SIGSTOP)
        until(lambda: service.frozen, 5)
        opened = self.rows(
            "select count(*) from pg_stat_activity where application_name = %s"
            " and xact_start is not null", service.name,
        )[0][0]  # fmt: skip
        seen = self.measured(fault, hit, self.again(hit, fault))
        pause(FROZEN - (CLOCK.now() - fault).total_seconds())
        assert service.frozen
        service.thaw()
        until(lambda: lost_all(service, before), 30, 0.1)
        return {
            **seen,
            "open": opened,
            "proof": "state T for 30 s, then it said that it had lost its ownership",
        }

    def term(self) -> dict[str, Any]:
        """SIGTERM in the half second before a slot: no wait for the next slot is measured."""
        service, hit = self.victim()
        self.wait_for_slot(self.random.uniform(-0.5, 0))
        fault = self.send(service, signal.SIGTERM)
        assert service.process is not None
        proof = service.process.wait(60)
        again = self.again(hit, fault)
        pause(NOTICED - (CLOCK.now() - fault).total_seconds())
        seen = self.measured(fault, hit, again)
        service.start()
        return {**seen, "proof": f"exit {proof}"}

    def leader(self) -> dict[str, Any]:
        """Of all partitions the longest stretch without a launch within TTL + 5 s is measured."""
        assert self.cluster is not None
        before = self.owners()
        node = self.cluster.leader()
        fault = CLOCK.now()
        self.cluster.kill(node)
        until(lambda: self.cluster is not None and self.cluster.leader() != node, 30, 0.1)
        pause(self.kind.ttl + 5)
        rows = self.rows(
            "select partition, extract(epoch from min(at) - %s) from seen where what = 'launch'"
            " and at > %s group by partition", fault, fault,
        )  # fmt: skip
        moved = sum(before[p] != now for p, now in self.owners().items())
        self.cluster.start(node)
        seen = self.measured(fault, dict.fromkeys(before, 0), {p: float(s) for p, s in rows})
        return {**seen, "moved": moved, "proof": f"leader {node} killed"}

    def rolling(self) -> dict[str, Any]:
        """Each is ended and started; the next one's turn is as soon as it is ready."""
        fault = CLOCK.now()
        for service in self.schedulers.values():
            assert service.end() == 0
            service.start()
            until(service.ready, 60, 0.1)
        seconds = (CLOCK.now() - fault).total_seconds()
        return {"fault": fault, "hit": self.found.partitions, "seconds": round(seconds, 2)}

    def wait_for_slot(self, offset: float) -> None:
        """Until so many seconds after (or, negative, before) a whole second, one to come."""
        pause(2 - CLOCK.now().microsecond / 1e6 + offset)

    def send(self, service: Service, what: signal.Signals) -> datetime:
        """Send a signal to a process that runs; the instant before it was sent."""
        assert service.alive
        assert service.process is not None
        now = CLOCK.now()
        service.process.send_signal(what)
        return now


MAKERS: Mapping[str, Callable[[Bed], dict[str, Any]]] = {
    "kill": Bed.kill,
    "stop": Bed.stop,
    "term": Bed.term,
    "leader": Bed.leader,
    "rolling": Bed.rolling,
}


def lost_all(service: Service, since: int) -> bool:
    """Whether it said from an offset of its log on that it owns nothing any more."""
    return any(line["event"] == "ownership lost" for line in service.lines_since(since))


def one_in_each(partitions: int) -> list[JobId]:
    """Ids of jobs, one for each partition."""
    found: dict[Partition, JobId] = {}
    while len(found) < partitions:
        job = JobId(uuid7(CLOCK))
        found.setdefault(partition_of(job, partitions), job)
    return list(found.values())


@contextmanager
def bed(kind: Kind, *, partitions: int = 64, seed: int = 1) -> Iterator[Bed]:
    """Servers, schedulers, a worker, jobs, and the triggers that see what is written."""
    with TemporaryDirectory(prefix="tickrail-etcd-") as folder:
        if kind.name != "leader":
            with _bed(kind, partitions, seed, None) as made:
                yield made
            return
        with EtcdCluster(Path(folder)) as cluster, _bed(kind, partitions, seed, cluster) as made:
            yield made


@contextmanager
def _bed(kind: Kind, partitions: int, seed: int, cluster: EtcdCluster | None) -> Iterator[Bed]:
    lease = {"TICKRAIL_LEASE_TTL": str(kind.ttl), "TICKRAIL_RENEW_EVERY": str(kind.renew)}
    etcd = {"TICKRAIL_ETCD_ENDPOINTS": cluster.endpoints} if cluster else {}

    def watch(found: Installation) -> None:
        with psycopg.connect(found.admin) as conn:
            conn.execute(WATCH)

    with ExitStack() as stack:
        with _STARTING:
            found = stack.enter_context(
                installation(
                    schedulers=kind.members,
                    workers=1,
                    partitions=partitions,
                    environment={**lease, **etcd},
                    prepare=watch,
                )
            )
        conn = stack.enter_context(psycopg.connect(found.admin, autocommit=True))
        owned = "select 1 from partitions where epoch = 0"
        until(lambda: not conn.execute(owned).fetchall(), 60, 0.2)
        jobs = found.add_jobs(partitions, JOB, ids=one_in_each(partitions))
        yield Bed(kind, found, conn, jobs, cluster, random.Random(seed))


def broken(one: Mapping[str, Any]) -> list[str]:
    """The bars that a try broke, in words."""
    kind = KINDS[one["kind"]]
    found = [
        f"{one[name]} {what}"
        for name, what in (
            ("lost", "slots without a launch"),
            ("doubled", "slots with two launches"),
            ("unfinished", "launches that did not succeed"),
            ("deposed", "writes of a deposed epoch"),
        )
        if one[name]
    ]
    measured = one["slowest"] if kind.name == "rolling" else one["last"]
    if measured > kind.bar:
        found.append(f"{measured:.2f} s, and not {kind.bar:g} s at most")
    return found

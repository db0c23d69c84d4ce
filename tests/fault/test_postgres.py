"""PostgreSQL fails under traffic in every way that it can; nothing is lost, nothing doubled.

The tests share one installation and, while they run, its traffic goes on: jobs of every second
whose webhooks note their effects. Each fault has a proof that it happened, and the history of the
writes is judged after it (checker.py says by which rules). The failovers come last: a dead primary
does not come back.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
import pytest
from tests.fault.checker import LOSES_TRANSACTIONS
from tests.fault.history import Effects, install
from tests.fault.traffic import DOCUMENT, Traffic
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.replica import Replica, with_standbys
from tests.support.until import pause, until

from tickrail.core.ports_ownership import DropReason
from tickrail.local.ports import any_free
from tickrail.local.postgres import Postgres

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EPOCHS = "select partition, owner, epoch from partitions order by 1"
RECORDS = "select id, scheduled_at from launches where job_id = any(%s)"
CLAIMS = "select id, claim from launches where job_id = any(%s)"
FULL_AT = 8 << 20
"""The size in bytes at which the files of the full disk end: half of a segment of pg_wal."""
HALF_DONE = """
select count(*) from launches l join jobs j on j.id = l.job_id
where (l.state = 'due' and l.due_at is null)
   or (l.origin = 'schedule' and l.scheduled_at >= j.next_run_at)
"""
"""Launches without a due time, and records whose job was not moved on with them (G-15)."""


@dataclass
class Bed:
    """The installation, where its PostgreSQL is now, and what hears the effects."""

    found: Installation
    effects: Effects
    ports: list[int]
    folder: Path
    primary: Postgres
    replicas: ExitStack = field(default_factory=ExitStack)

    def replica(self, *, synchronous: bool) -> Replica:
        port = self.ports.pop(0)
        made = Replica(self.primary, synchronous=synchronous, port=port, database="fault")
        return self.replicas.enter_context(made)

    def traffic(self, name: str) -> Traffic:
        """Traffic; a fourth of the jobs that have effects must not run twice."""
        made = Traffic(self.found, self.effects, self.folder, name, webhooks=12, noops=12)
        careful = {**DOCUMENT, "target": self.effects.target(), "if_uncertain": "skip"}
        made.jobs += made.history.add_jobs(4, careful)
        pause(0.5)
        return made

    def wait_for_owners(self, seconds: float = 60) -> None:
        """Both schedulers own partitions, and say that nothing is missing."""
        until(lambda: self.owners() == {"scheduler-1", "scheduler-2"}, seconds, 0.1)
        until(lambda: all(s.ready() for s in self.found.services.values()), seconds, 0.1)

    def owners(self) -> set[str]:
        """The services that hold partitions, by the fence rows."""
        rows = self.found.query("select distinct owner from partitions")
        return {str(owner).rpartition("-")[0] for (owner,) in rows}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    ports = [any_free()]
    ports.append(any_free(set(ports)))
    everywhere = list(ports)

    def lead_everywhere(_: str, own: Any) -> dict[str, str]:
        url = own["TICKRAIL_DATABASE_URL"]
        return {"TICKRAIL_DATABASE_URL": with_standbys(url, *everywhere)}

    with (
        Effects() as effects,
        installation(
            environment={
                "TICKRAIL_WORKER_TARGETS": "noop,webhook,kafka",
                "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
                # A failover may lose a claim and keep the mark: then only this rule is left.
                "TICKRAIL_LOST_AFTER": "10",
            },
            prepare=install,
            per_service=lead_everywhere,
            partitions=16,  # fewer might all fall to one of two members
            proxied={"scheduler-1": ["postgres"], "worker-1": ["postgres"]},
        ) as found,
    ):
        found.admin = with_standbys(found.admin, *everywhere)
        made = Bed(
            found, effects, ports, tmp_path_factory.mktemp("histories"), found.stack.postgres
        )
        made.wait_for_owners(90)
        with made.replicas:
            yield made


def fill(bed: Bed) -> None:
    """Write until there is no more room."""
    with suppress(psycopg.Error), psycopg.connect(bed.found.admin, autocommit=True) as conn:
        for _ in range(20):
            conn.execute("select pg_logical_emit_message(false, 'fill', repeat('x', 1000000))")


class Watch:
    """Looks for half-done launches all the time; `seen` has what each look found."""

    def __init__(self, found: Installation) -> None:
        self.seen: list[int] = []
        self._admin = found.admin
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(20)

    def wait(self) -> None:
        """Until it has looked ten times more."""
        before = len(self.seen)
        until(lambda: len(self.seen) >= before + 10, 20)

    def _run(self) -> None:
        while not self._over.wait(0.02):
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(self._admin, connect_timeout=2, autocommit=True) as conn,
            ):
                while not self._over.wait(0.02):
                    self.seen += [row[0] for row in conn.execute(HALF_DONE)]


def stopped(process: psutil.Process) -> bool:
    """Whether it is frozen; one that has ended does nothing either."""
    try:
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return True


def test_a_postgres_frozen_for_12_s_costs_these_seconds_and_nothing_else(bed: Bed) -> None:
    traffic = bed.traffic("frozen")
    assert bed.primary.identity is not None
    everyone = bed.primary.identity.tree()
    bed.primary.freeze()
    try:
        until(lambda: all(stopped(process) for process in everyone))
        # Within the two seconds that a worker's readiness takes then, also with nothing to claim.
        assert "no answer" in bed.found.services["worker-1"].problems()["postgresql"]
        pause(10.0)
    finally:
        bed.primary.thaw()
    traffic.history.fault("postgres_frozen", "postgres", seconds=12)
    traffic.goes_on(20)
    bed.wait_for_owners()
    for name in ("scheduler-1", "scheduler-2"):
        assert traffic.said(name, "server away")
        assert traffic.said(name, "server back")
    assert traffic.judge().doubled == []


def test_g15_a_restart_and_a_crash_under_load_leave_no_launch_half_done(bed: Bed) -> None:
    traffic = bed.traffic("restart")
    with Watch(bed.found) as looks:
        for crash in (False, True):
            looks.wait()
            pid = bed.primary.pid
            if crash:
                bed.primary.kill()
            bed.primary.restart()
            assert bed.primary.pid != pid
            traffic.history.fault("postgres_restart", "postgres", crash=crash)
            traffic.goes_on(20)
        looks.wait()
    assert set(looks.seen) == {0}
    traffic.judge()


def test_a_scheduler_that_reaches_no_postgres_is_replaced_and_comes_back(bed: Bed) -> None:
    """Its connections stand and swallow everything: only its own bounds can tell it so."""
    traffic = bed.traffic("blackhole")
    victim = bed.found.services["scheduler-1"]
    partitions = traffic.history.owned_by("scheduler-1")
    assert partitions
    proxy = bed.found.proxy("scheduler-1", "postgres")
    proxy.blackhole()
    traffic.history.fault("blackhole", "scheduler-1", partitions=partitions)
    until(lambda: victim.problems().get("postgres") == "does not answer", 15, 0.1)
    until(lambda: bed.owners() == {"scheduler-2"}, 20, 0.1)
    traffic.goes_on(20)
    assert victim.said("no member until PostgreSQL and the clock are right again")
    assert victim.status("/healthz")[0] == 200
    proxy.heal()
    bed.wait_for_owners()
    judgement = traffic.judge()
    assert judgement.doubled == []


def test_a_bad_network_to_postgres_slows_one_scheduler_and_loses_nothing(bed: Bed) -> None:
    traffic = bed.traffic("network")
    proxy = bed.found.proxy("scheduler-1", "postgres")
    for fault in ("delay", "cut"):
        if fault == "delay":
            proxy.delay(0.3)
        else:
            proxy.cut()
        traffic.history.fault(fault, "scheduler-1", seconds=3)
        pause(3)
        proxy.heal()
        traffic.goes_on(20)
    bed.wait_for_owners()
    assert traffic.judge().doubled == []


@dataclass
class Shifted(Service):
    """A scheduler whose clock the test moves."""

    def start(self, failpoints: str = "") -> None:
        assert not failpoints
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.shifted_scheduler"],
                env={**self.environment, "TICKRAIL_NAME": self.name},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def move(self, what: str, seconds: float) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {seconds}\n".encode())
        self.process.stdin.flush()


def test_a_scheduler_with_a_wrong_clock_steps_down_says_so_and_comes_back(bed: Bed) -> None:
    """Steps forth and back against the database's clock, and a suspended machine."""
    usual = bed.found.services["scheduler-2"]
    third = Shifted("scheduler", "scheduler-3", usual.environment, usual.log.with_name("3.log"))
    bed.found.services[third.name] = third
    third.start()
    until(lambda: third.name in bed.owners(), 60, 0.1)
    traffic = bed.traffic("clock")
    for step, off in ((2.0, 2.0), (-4.0, -2.0)):
        third.move("wall", step)
        words = f"this machine's clock is {'+' if off > 0 else '-'}"
        until(lambda said=words: third.problems().get("clock", "").startswith(said), 15, 0.1)  # type: ignore[misc]
        assert third.metric("clock_skew_seconds") == pytest.approx(off, abs=0.5)
        until(lambda: third.name not in bed.owners(), 20, 0.1)
    third.move("wall", 2.0)
    until(lambda: third.name in bed.owners() and third.ready(), 30, 0.1)
    assert third.said("local clock is wrong")
    assert third.said("no member until PostgreSQL and the clock are right again")
    before = traffic.history.owned_by(third.name)
    third.move("suspend", 30)
    ended = "the trust window ended without a renewal"
    until(lambda: third.said("ownership lost", reason=ended), 15, 0.1)
    until(lambda: third.name in bed.owners() and third.ready(), 30, 0.1)
    traffic.history.fault("clock", third.name, partitions=before)
    traffic.goes_on(20)
    assert traffic.judge().doubled == []
    assert third.end() == 0
    assert third.process is not None
    assert third.process.stdin is not None
    third.process.stdin.close()
    del bed.found.services[third.name]
    bed.wait_for_owners()


def test_sessions_ended_in_the_middle_of_a_tick_cost_one_call_each(bed: Bed) -> None:
    traffic = bed.traffic("terminated")
    ended: list[str] = []

    def end_some() -> bool:
        rows = bed.found.query(
            "select application_name, pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like %s"
            " and xact_start is not null and query ilike any(%s)",
            "scheduler-%", ["%launches%", "%jobs%", "%partitions%"],
        )  # fmt: skip
        ended.extend(name for name, _ in rows)
        return len(ended) >= 6

    until(end_some, 30, 0.01)
    traffic.history.fault("terminated", "postgres", sessions=ended)
    traffic.goes_on(20)
    assert traffic.judge().doubled == []


def test_a_fence_row_held_by_somebody_for_5_s_delays_its_owner_alone(bed: Bed) -> None:
    traffic = bed.traffic("fence-row")
    before = bed.found.query(EPOCHS)
    mine = traffic.history.owned_by("scheduler-1")
    others = traffic.history.owned_by("scheduler-2")
    began = CLOCK.now()
    with psycopg.connect(bed.found.admin) as conn:
        conn.execute("select from partitions where partition = %s for update", [mine[0]])
        pause(5)
    traffic.history.fault("row_locked", "scheduler-1", seconds=5)
    traffic.goes_on(20)
    late = "select max(extract(epoch from created_at - scheduled_at)) from launches"
    where = " where partition = any(%s) and scheduled_at between %s and now() - interval '1 s'"
    assert bed.found.query(late + where, mine, began)[0][0] < 15
    assert bed.found.query(late + where, others, began)[0][0] < 3
    assert bed.found.query(EPOCHS) == before
    assert traffic.judge().doubled == []


def test_a_full_disk_ends_postgres_and_is_no_more_than_an_outage(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on the size of its files, as the end of the disk under pg_wal is one."""
    traffic = bed.traffic("disk-full")
    usual = bed.primary.command()
    with psycopg.connect(bed.found.admin, autocommit=True) as conn:
        conn.execute("select pg_switch_wal()")
    limited = ["/bin/sh", "-c", f'ulimit -f {FULL_AT // 512}; exec "$@"', "sh", *usual]
    with monkeypatch.context() as patch:
        patch.setattr(bed.primary, "command", lambda: limited)
        bed.primary.restart()
    try:
        fill(bed)
        until(lambda: not bed.primary.alive, 20, 0.05)
        assert "File too large" in bed.primary.place.log.read_text(errors="replace")
    finally:
        bed.primary.restart()
    traffic.history.fault("disk_full", "postgres")
    traffic.goes_on(20)
    bed.wait_for_owners()
    assert traffic.judge().doubled == []


def test_a_failover_to_a_synchronous_replica_loses_nothing(bed: Bed) -> None:
    victim = bed.found.services["scheduler-1"]
    assert all(s.said("no synchronous standby") for s in bed.found.services.values())
    assert victim.metric("synchronous_standby") == 0
    replica = bed.replica(synchronous=True)
    bed.found.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s",
        victim.name,
    )
    until(lambda: victim.metric("synchronous_standby") == 1, 20, 0.1)
    traffic = bed.traffic("synchronous")
    before = bed.found.query("select partition, epoch from partitions order by 1")
    kept = bed.found.query(RECORDS, traffic.jobs)
    replica.fail_over()
    bed.primary = replica.server
    traffic.history.fault("postgres_failover", "postgres")
    traffic.goes_on(20)
    until(lambda: victim.metric("synchronous_standby") == 0, 20, 0.1)
    bed.wait_for_owners()
    assert set(kept) <= set(bed.found.query(RECORDS, traffic.jobs))
    assert bed.found.query("select partition, epoch from partitions order by 1") == before
    judgement = traffic.judge()
    assert judgement.doubled == []


def test_a_failover_that_lost_the_last_transactions_repeats_them_under_the_same_names(
    bed: Bed,
) -> None:
    """Launches, claims and the raises of a take-over are lost (protocols.md 1 and 9)."""
    replica = bed.replica(synchronous=False)
    traffic = bed.traffic("asynchronous")
    leaver, stayer = bed.found.services["scheduler-1"], bed.found.services["scheduler-2"]
    before = bed.found.query(EPOCHS)
    replica.detach()
    assert leaver.end() == 0
    until(lambda: bed.owners() == {"scheduler-2"}, 15, 0.05)
    pause(1.5)
    raised = bed.found.query(EPOCHS)
    assert raised != before
    gone = set(bed.found.query(CLAIMS, traffic.jobs))
    at = CLOCK.now().isoformat()
    bed.primary.kill()
    kept = set(replica.query(CLAIMS, traffic.jobs))
    assert replica.query(EPOCHS) == before
    replica.promote()
    bed.primary = replica.server
    traffic.history.fault(LOSES_TRANSACTIONS, "postgres", at=at, until=CLOCK.now().isoformat())
    traffic.goes_on(20)

    # The raises that were lost are made again, with the same epochs.
    until(lambda: bed.found.query(EPOCHS) == raised, 15, 0.1)
    reasons = {line["reason"] for line in traffic.said(stayer.name, "partition fenced")}
    assert reasons == {DropReason.FENCE_LOWER}
    leaver.start()
    bed.wait_for_owners()
    judgement = traffic.judge()

    # So are the launches, under the same ids, and a later start has the higher claim.
    lost = dict(gone - kept)
    assert len(lost) > 20
    assert {launch for launch, _ in gone} - {launch for launch, _ in kept}
    now = dict(bed.found.query(CLAIMS, traffic.jobs))
    assert all(now[launch] > (claim or 0) for launch, claim in lost.items())
    tokens = [e["token"] for e in bed.effects.noted]
    assert len(tokens) == len(set(tokens)), "a claim number was given twice"
    assert all(e["accepted"] for e in bed.effects.noted)
    assert judgement.doubled
    assert all(d.why.startswith(LOSES_TRANSACTIONS) for d in judgement.doubled)

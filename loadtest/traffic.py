"""The traffic of a load test: servers and services, the day's jobs, Locust, the herd."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
from loadtest.bed import CLOCK, Bed, Seed, bed, insert_jobs, pause, settle, wait_for_owners
from loadtest.plans import Plan, herd_after
from loadtest.receiver import LOOPBACK, Manner, Receiver, receiver
from loadtest.shape import Shaped, corpus, midnight, short_day, split

from tickrail.local.ports import any_free
from tickrail.store.bootstrap import bootstrap

READY_WITHIN = 60.0
MAX_ATTEMPTS = 12
"""So many that none fails for good at a share of failures that a person would set."""


@dataclass
class Run:
    """One load test that goes on.

    Attributes:
        plan: what is done.
        running: servers and services.
        receiver: of the webhooks.
        folder: where everything is written down.
        rng: of the day.
        herd: the tenant of the herd, and its key.
        tokens: keys of the tenants, by their ids, the largest first.
        hosts: addresses of the API processes.
        start: the instant of the day's begin.
        herd_at: the second of the herd.
        expected: by job, the slots that are due, in Unix seconds.
        webhooks: the jobs that call the receiver.
        jobs: of each tenant.
    """

    plan: Plan
    running: Bed
    receiver: Receiver
    folder: Path
    rng: random.Random
    herd: tuple[UUID, str]
    tokens: dict[UUID, str] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    start: datetime = field(default_factory=CLOCK.now)
    herd_at: datetime = field(default_factory=CLOCK.now)
    expected: dict[str, set[int]] = field(default_factory=dict)
    webhooks: set[str] = field(default_factory=set)
    jobs: dict[UUID, list[str]] = field(default_factory=dict)

    @property
    def said(self) -> Path:
        """Where Locust's users write down what they were promised."""
        return self.folder / "said.jsonl"


@contextmanager
def running(plan: Plan, args: argparse.Namespace, folder: Path) -> Iterator[Run]:
    """Servers, services and the receiver, ready."""
    manner = Manner(args.latency, args.failures)
    with bed(args) as found, receiver(folder / "journal.txt", manner) as calls:
        made = bootstrap(found.urls.owner, CLOCK, tenant="herd")
        herd = UUID(str(made.tenant)), made.token
        run = Run(plan, found, calls, folder, random.Random(args.seed), herd)
        for n in range(plan.tenants):
            made = bootstrap(found.urls.owner, CLOCK, tenant=f"tenant-{n}")
            run.tokens[UUID(str(made.tenant))] = made.token
        egress = {"TICKRAIL_EGRESS_ALLOW": f"{LOOPBACK}/32"}
        found.start("scheduler", args.schedulers)
        found.start("worker", args.workers, first=1, **egress)
        for n in range(plan.apis):
            port = any_free(set())
            own = {"TICKRAIL_API_PORT": str(port), "TICKRAIL_STATUS_PORT": "0", **egress}
            found.start("api", 1, first=n + 1, **own)
            run.hosts.append(f"http://{LOOPBACK}:{port}")
        wait_for_owners(found.admin, args.partitions)
        for host in run.hosts:
            wait_for(host)
        yield run


def wait_for(host: str) -> None:
    """Until an API process answers."""
    until = CLOCK.monotonic() + READY_WITHIN
    while CLOCK.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{host}/healthz", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            pause(0.2)
    raise SystemExit("an API process does not answer: see the log lines above")


# -- the day ---------------------------------------------------------------------------------------


def make_day(run: Run, args: argparse.Namespace) -> list[Shaped]:
    """The jobs of the day, active, divided among the tenants; their slots are now expected."""
    run.start = CLOCK.now().replace(microsecond=0) + timedelta(seconds=6)
    run.herd_at = run.start + timedelta(seconds=herd_after(run.plan))
    patterns = corpus(midnight(args.date))
    jobs = short_day(patterns, run.plan.launches, run.plan.seconds, run.start, run.rng)
    run.rng.shuffle(jobs)
    shares = split(len(jobs), len(run.tokens))
    last = run.start + timedelta(seconds=run.plan.seconds - 1)
    base = int(run.start.timestamp())
    usual = {
        "starts_at": run.start.isoformat(),
        "ends_at": last.isoformat(),
        "misfire": {"policy": "fire_all", "max_count": 10_000, "per_minute": 100_000},
        "retry": {"max_attempts": MAX_ATTEMPTS, "initial": "1s", "max": "10s"},
    }
    at = 0
    for tenant, share in zip(run.tokens, shares, strict=True):
        mine, at = jobs[at : at + share], at + share
        seeds, calls = [], []
        for job in mine:
            calls.append(run.rng.random() < run.plan.webhooks)
            target = {"webhook": {"url": run.receiver.url}} if calls[-1] else {"noop": {}}
            first = run.start + timedelta(seconds=job.offsets[0])
            seeds.append(Seed(job.schedule, first, {**usual, "target": target}))
        ids = insert_jobs(
            run.running.admin, tenant, seeds, args.partitions, "active", settled=False
        )
        run.jobs[tenant] = [str(i) for i in ids]
        for job_id, job, call in zip(run.jobs[tenant], mine, calls, strict=True):
            run.expected[job_id] = {base + offset for offset in job.offsets}
            if call:
                run.webhooks.add(job_id)
    settle(run.running.admin)
    if CLOCK.now() >= run.start:
        raise SystemExit("the jobs were not made before the day began: a busy machine")
    return jobs


# -- Locust ----------------------------------------------------------------------------------------


def locust(run: Run, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Locust with its users, for the seconds of the plan from now on."""
    tenants = [
        {"token": token, "weight": 1 / n, "jobs": run.jobs[tenant]}
        for n, (tenant, token) in enumerate(run.tokens.items(), 1)
    ]
    given = {
        "tenants": tenants,
        "hosts": run.hosts,
        "herd_token": run.herd[1],
        "herd": run.plan.herd,
        "herd_at": run.herd_at.isoformat(),
        "batch": 1000,
        "wait": run.plan.wait,
        "seed": args.seed,
        "said": str(run.said),
    }
    file = run.folder / "given.json"
    file.write_text(json.dumps(given), "utf-8")
    file.chmod(0o600)
    run.said.touch()
    kinds = ["TenantUser", *(["HerdUser"] if run.plan.herd else [])]
    users = run.plan.users + (2 if run.plan.herd else 0)
    seconds = int((run.start - CLOCK.now()).total_seconds()) + run.plan.seconds
    command = [
        sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("users.py")), *kinds,
        "--headless", "--users", str(users), "--spawn-rate", str(users),
        "--run-time", f"{seconds}s", "--stop-timeout", "20", "--only-summary",
        "--html", str(run.folder / "locust.html"), "--csv", str(run.folder / "locust"),
        "--json-file", str(run.folder / "locust"), "--loglevel", "WARNING",
        "--exit-code-on-error", "0",
    ]  # fmt: skip
    with (run.folder / "locust.log").open("wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, "TICKRAIL_LOAD": str(file)}, stdout=log, stderr=log
        )


# -- herds ----------------------------------------------------------------------------------------


def make_herd(run: Run, args: argparse.Namespace) -> datetime:
    """A herd as large again, straight into the tables; returns when it is over: its second."""
    due = CLOCK.now().replace(microsecond=0) + timedelta(seconds=5 + run.plan.herd // 5000)
    seeds = [Seed({"at": due.isoformat()}, due)] * run.plan.herd
    ids = insert_jobs(run.running.admin, run.herd[0], seeds, args.partitions, "active")
    if CLOCK.now() >= due:
        raise SystemExit("the second herd was not made before it was due: a busy machine")
    run.expected |= {str(job): {int(due.timestamp())} for job in ids}
    pause((due - CLOCK.now()).total_seconds())
    wait_until_ended(run.running.admin, due, args.timeout)
    return due


def wait_until_ended(url: str, last: datetime, seconds: float) -> None:
    """Until every slot up to this instant has been decided on and every launch has ended."""
    until = CLOCK.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as conn:
        while CLOCK.monotonic() < until:
            waits = conn.execute(
                "select 1 from jobs where state = 'active' and next_run_at <= %s limit 1", [last]
            ).fetchone()
            opened = conn.execute(
                "select 1 from launches where phase < 3 and scheduled_at <= %s limit 1", [last]
            ).fetchone()
            if not waits and not opened:
                return
            pause(0.25)

"""Rehearses an upgrade under load, with processes in the order of the Helm chart.

    python loadtest/upgrade.py [--before REF] [--jobs 100] [--schedulers 2] [--workers 2]

An installation of an earlier version (a commit or tag; the one before the newest schema revision
came, unless --before says otherwise) launches every job each second and answers requests. Then, as
`helm upgrade --wait` does: the first half of the migrations; API processes, schedulers and workers
replaced at the same time, of each kind one by one: a new one is started, is ready, stays so for
--settle seconds, and an old one is asked to stop; the second half. Between the halves the earlier
version runs on the new schema, and one scheduler of it is stopped and starts again there.

Exits 1 when a slot has no record or two, is later than --max-late seconds (due -> record), a launch
did not succeed at its first attempt, or a request was refused.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import UUID

import psycopg

from bed import CLOCK, Bed, Seed, bed, bed_options, insert_jobs, pause, percentiles
from tickrail.local.ports import any_free
from tickrail.store.bootstrap import bootstrap
from tickrail.store.migrate import migrate

ROOT = Path(__file__).parents[1]
VERSIONS = "libs/tickrail/store/migrations/versions"
PROGRAM = str(Path(sys.executable).with_name("tickrail"))
DRAIN_DELAY = 3
READY_WITHIN = 60.0


def git(*arguments: str) -> str:
    """What git answers in the project."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def before_the_newest_schema() -> str:
    """The commit before the one that brought the newest schema revision."""
    newest = max(path.name for path in (ROOT / VERSIONS).glob("v*.py"))
    added = git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"{VERSIONS}/{newest}")
    if not added:
        raise SystemExit(f"{newest} is not committed: name the version before with --before")
    return git("rev-parse", f"{added}^")


@contextmanager
def sources(ref: str) -> Iterator[dict[str, str]]:
    """The environment in which `tickrail` is that of a commit, on the packages that are here."""
    with tempfile.TemporaryDirectory(prefix="tickrail-before-") as name:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", ref, "libs", "services"],
            capture_output=True,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", name], input=archive.stdout, check=True)
        yield {"PYTHONPATH": os.pathsep.join(f"{name}/{part}" for part in ("libs", "services"))}


@dataclass
class Fleet:
    """The processes of one kind, as a deployment has them."""

    bed: Bed
    kind: str
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each process that balancers may send to: its own port (of the API) and its status."""
    started: int = 0

    def start(self, **more: str) -> str:
        """Start one, and wait until it is ready; its name."""
        port = any_free()
        status = any_free({port})
        self.started += 1
        name = f"{self.kind}-{self.started}"
        own = {
            "TICKRAIL_STATUS_PORT": str(status),
            "TICKRAIL_API_PORT": str(port),
            "TICKRAIL_API_DRAIN_DELAY": str(DRAIN_DELAY),
        }
        self.bed.start(self.kind, first=self.started, **own, **more)
        until = CLOCK.monotonic() + READY_WITHIN
        while not ready(status):
            if CLOCK.monotonic() > until or self.bed.services[name].poll() is not None:
                raise SystemExit(f"{name} is not ready: see its log lines above")
            pause(0.1)
        self.ports[name] = (port, status)
        return name

    def stop(self, name: str) -> None:
        """Ask one to stop and wait for its end."""
        service = self.bed.services[name]
        service.terminate()
        service.wait(120)
        del self.bed.services[name], self.ports[name]

    def roll(self, settle: float) -> None:
        """Replace all that run by this version's, one by one."""
        for old in list(self.ports):
            self.start()
            pause(settle)
            self.stop(old)


def ready(status: int) -> bool:
    """Whether a process says that it is."""
    try:
        with urlopen(f"http://127.0.0.1:{status}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


class Requests:
    """A caller that goes round the API processes that were ready a moment ago."""

    def __init__(self, fleet: Fleet, key: str, job: UUID) -> None:
        self._fleet = fleet
        self._key = key
        self._paths = ("jobs?limit=5", f"jobs/{job}", f"launches?job={job}&limit=5")
        self._ending = threading.Event()
        self._ready: list[int] = []
        self.answers: Counter[str] = Counter()
        self._threads = [threading.Thread(target=t) for t in (self._look, self._ask)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._ending.is_set():
            known = list(self._fleet.ports.values())
            self._ready = [port for port, status in known if ready(status)]
            self._ending.wait(0.5)

    def _ask(self) -> None:
        turn = 0
        while not self._ending.wait(0.05):
            turn += 1
            if not (there := self._ready):
                continue
            path = self._paths[turn % len(self._paths)]
            request = Request(
                f"http://127.0.0.1:{there[turn % len(there)]}/v1/{path}",
                headers={"Authorization": f"Bearer {self._key}"},
            )
            try:
                with urlopen(request, timeout=10) as answer:
                    self.answers[str(answer.status)] += 1
            except (URLError, OSError) as error:
                self.answers[str(error)] += 1


def upgrade(fleets: dict[str, Fleet], owner: str, settle: float, old: dict[str, str]) -> None:
    """What `helm upgrade --wait` does, in its order; and one old scheduler that starts again."""
    steps = Steps()
    steps.done(f"migrate --half pre: {', '.join(migrate(owner, half='pre')) or 'nothing'}")
    restarted = next(iter(fleets["scheduler"].ports))
    fleets["scheduler"].stop(restarted)
    fleets["scheduler"].start(**old)
    steps.done("a scheduler of the earlier version started again on the new schema")
    with ThreadPoolExecutor(len(fleets)) as pool:
        rolled = {kind: pool.submit(fleet.roll, settle) for kind, fleet in fleets.items()}
        for kind, future in rolled.items():
            future.result()
            steps.done(f"every {kind} is new")
    steps.done(f"migrate --half post: {', '.join(migrate(owner, half='post')) or 'nothing'}")


class Steps:
    """Says when what was done."""

    def __init__(self) -> None:
        self._began = CLOCK.monotonic()

    def done(self, what: str) -> None:
        """Print a step and the seconds since the first."""
        print(f"{CLOCK.monotonic() - self._began:6.1f} s  {what}", flush=True)


def judge(url: str, jobs: int, first: datetime, last: datetime, max_late: float) -> list[str]:
    """What is wrong with the slots of these seconds."""
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "select extract(epoch from created_at - scheduled_at)::float8,"
            " extract(epoch from started_at - scheduled_at)::float8, state, attempt"
            " from launches where scheduled_at between %s and %s",
            [first, last],
        ).fetchall()
        row = conn.execute(
            "select coalesce(sum(count), 0), string_agg(distinct reason, ',') from skips"
            " where scheduled_at <= %s and last_at >= %s",
            [last, first],
        ).fetchone()
    assert row is not None
    wanted = jobs * (int((last - first).total_seconds()) + 1)
    late = sorted(r[0] for r in rows)
    starts = sorted(r[1] for r in rows if r[1] is not None)
    again = sum(1 for r in rows if r[3] > 1)
    unfinished = sum(1 for r in rows if r[2] != "succeeded")
    for name, values in (("due -> record", late), ("due -> start", starts)):
        print(f"{name}: p50 / p95 / p99 / max "
              + " / ".join(f"{v * 1000:.0f}" for v in percentiles(values)) + " ms")  # fmt: skip
    print(f"{len(rows)} records of {wanted} slots, {row[0]} skipped ({row[1]}), {again} run again")
    found = {
        f"{len(rows)} records of {wanted} slots": len(rows) != wanted,
        f"a slot is {late[-1]:.2f} s late": late[-1] > max_late,
        f"{again} launches were run again": again,
        f"{unfinished} launches did not succeed": unfinished,
    }
    return [what for what, wrong in found.items() if wrong]


def rehearse(args: argparse.Namespace) -> list[str]:
    """All of it; what is wrong."""
    ref = args.before or before_the_newest_schema()
    print(f"from {git('log', '-1', '--format=%h %s', ref)}")
    with sources(ref) as old:

        def earlier(owner: str) -> None:
            command = [PROGRAM, "migrate", "--database-url", owner]
            command += ["--partitions", str(args.partitions)]
            subprocess.run(command, env={**os.environ, **old}, check=True)

        args.migrate = earlier
        with bed(args) as found:
            fleets = {kind: Fleet(found, kind) for kind in ("api", "scheduler", "worker")}
            for kind, fleet in fleets.items():
                for _ in range({"scheduler": args.schedulers, "worker": args.workers}.get(kind, 2)):
                    fleet.start(**old)
            at = CLOCK.now().replace(microsecond=0) + timedelta(seconds=5)
            seeds = [Seed({"every": "1s", "anchor": at.isoformat()}, at)] * args.jobs
            key = bootstrap(found.urls.owner, CLOCK, tenant="upgrade")
            assert key.tenant is not None
            ids = insert_jobs(
                found.admin,
                key.tenant,
                seeds,
                args.partitions,
                "active",
            )
            with Requests(fleets["api"], key.token, ids[0]) as requests:
                pause(args.warm_up)
                first = CLOCK.now().replace(microsecond=0)
                upgrade(fleets, found.urls.owner, args.settle, old)
                pause(args.warm_up)
                last = CLOCK.now().replace(microsecond=0)
                pause(5.0)
            print(f"requests: {dict(requests.answers)}")
            refused = {a: n for a, n in requests.answers.items() if a != "200"}
            problems = [f"{n} requests: {answer}" for answer, n in refused.items()]
            problems += [] if requests.answers["200"] else ["no request was answered"]
            return problems + judge(found.admin, args.jobs, first, last, args.max_late)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    bed_options(parser, concurrency=256, outstanding=1000)
    parser.add_argument("--before", help="the version to upgrade from: a commit or a tag")
    parser.add_argument("--jobs", type=int, default=100, help="jobs, each due every second")
    parser.add_argument("--settle", type=float, default=5.0, help="minReadySeconds of the chart")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before and after")
    parser.add_argument("--max-late", type=float, default=2.0, help="seconds, due -> record")
    parser.set_defaults(schedulers=2, workers=2)
    problems = rehearse(parser.parse_args())
    for problem in problems:
        print(f"BROKEN: {problem}")
    print("broken" if problems else "held")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

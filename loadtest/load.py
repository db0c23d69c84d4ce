"""Load tests with Locust, on real servers of their own: bounds and invariants that fail the run.

    python -m loadtest.load short [api herd day | full]   [--out build/load] [--page docs]
                            [--seconds 360] [--plant lost]

Each run starts PostgreSQL, etcd and Kafka, schedulers, workers and API processes, and a receiver of
webhooks with a set latency and share of failures. Jobs as people write them are due through a day
that is made short (loadtest/shape.py), Locust's users work with the API meanwhile
(loadtest/users.py), and a herd is due at one second. Afterwards the database, the receiver's
journal and what the API had answered are held against each other (loadtest/verdict.py), and
PostgreSQL and Kafka are measured alone, on the same servers (loadtest/bounds.py).

Written to OUT/NAME: report.html, locust.html, result.json. With --page also the run's part of
docs/performance.md. Exits 1 when a bound or an invariant is broken; --plant breaks one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from loadtest import report
from loadtest.bed import CLOCK, bed_options, cpu_seconds
from loadtest.bounds import measure
from loadtest.evidence import (
    Drained,
    drained,
    during,
    ends,
    facts,
    figures,
    lags,
    quantile,
    routes,
    series,
)
from loadtest.machine import describe
from loadtest.plans import FULL, PLANS, Plan, herd_after, lasting
from loadtest.plant import JOURNAL, PLANTS, plant_launch, plant_start
from loadtest.receiver import Start
from loadtest.shape import LONGEST, busiest, midnight
from loadtest.traffic import Run, locust, make_day, make_herd, running, wait_until_ended
from loadtest.verdict import Facts, Launch, Threshold, judge

LEAST_OTHERS = 50
"""So many launches of others are needed while a herd drains, for a p99 that says something."""
LATE_BY = 90
"""Seconds after which Locust, told to end, is not waited for any longer."""


def perform(run: Run, args: argparse.Namespace) -> dict[str, Any]:
    """The traffic, then the judgement: the result as a document."""
    plan, admin = run.plan, run.running.admin
    machine = describe(run.running.versions)
    jobs = make_day(run, args)
    peak = busiest(jobs)
    slots = sum(len(job.offsets) for job in jobs)
    say(f"{len(jobs):,} jobs, {slots:,} slots in {plan.seconds} s, {peak[1]:,} at one second")
    users, before, began = locust(run, args), cpu_seconds(run.running.processes), CLOCK.monotonic()
    try:
        users.wait(plan.seconds + LATE_BY)
    finally:
        if users.poll() is None:
            users.kill()
            users.wait(10)
        (run.folder / "given.json").unlink()  # it holds keys
    seconds = CLOCK.monotonic() - began
    spent = {n: u - before.get(n, 0.0) for n, u in cpu_seconds(run.running.processes).items()}
    last = CLOCK.now().replace(microsecond=0) - timedelta(seconds=1)
    say("the traffic is over; waiting for what is open")
    wait_until_ended(admin, last, args.timeout)
    said = [json.loads(line) for line in run.said.read_text("utf-8").splitlines()]
    herd = [job for one in said if one["what"] == "herd" for job in one["jobs"]]
    run.expected |= {job: {int(run.herd_at.timestamp())} for job in herd}
    again = make_herd(run, args) if plan.alone else None
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("update jobs set state = 'paused' where state = 'active'")
    wait_until_ended(admin, CLOCK.now(), args.timeout)
    run.running.stop()
    found = left(run, args, said, int(last.timestamp()))
    verdict = judge(found)
    if users.returncode:
        verdict.breaches.append(f"Locust ended with {users.returncode}: {_tail(run.folder)}")
    day = {job for jobs in run.jobs.values() for job in jobs}
    of_day = [one for one in found.launches if one.job in day and one.origin == "schedule"]
    of_herd, names = [one for one in found.launches if one.job not in day], set(herd)
    first = drained([one for one in of_herd if one.job in names], run.herd_at)
    alone = None
    if again is not None:
        at = int(again.timestamp())
        those = [
            one for one in of_herd if one.job not in names and run.expected.get(one.job) == {at}
        ]
        alone = drained(those, again)
    api = routes(run.folder / "locust.json")
    say("measuring PostgreSQL and Kafka alone")
    bare = measure(admin, run.running.environment["TICKRAIL_KAFKA_BOOTSTRAP"], plan.bare)
    thresholds = bounds_of(plan, of_day, first, alone, api)
    return {
        "name": plan.name,
        "what": plan.what,
        "command": command_of(plan),
        "at": f"{run.start:%Y-%m-%d %H:%M} UTC",
        "machine": machine,
        "thresholds": [{"text": str(t), "kept": t.kept} for t in thresholds],
        "breaches": verdict.breaches,
        "counts": verdict.counts,
        "figures": {
            "jobs of the day": f"{len(jobs):,}",
            "due at its busiest second": f"{peak[1]:,}",
            "receiver": f"answers after {args.latency * 1000:g} ms on average,"
            f" refuses {args.failures:.0%} of the attempts; {len(found.starts):,} reached it",
            **figures(of_day, first if plan.herd else None, alone, spent, seconds),
        },
        "series": series(of_day, int(run.start.timestamp()), plan.seconds),
        "herd": ends(of_herd, first) if plan.herd else [],
        "api": api,
        "bounds": bare.document(),
    }


def left(run: Run, args: argparse.Namespace, said: Sequence[Mapping[str, Any]], last: int) -> Facts:
    """What the run left, once everything has stopped; with the fault that is to be planted."""
    starts: Sequence[Start] = run.receiver.end()
    admin = run.running.admin
    if args.plant in JOURNAL:
        starts = plant_start(starts, args.plant)
    elif args.plant:
        plant_launch(admin, args.plant, [job for jobs in run.jobs.values() for job in jobs])
    return facts(admin, run.expected, last, said, starts, run.webhooks)


def bounds_of(
    plan: Plan,
    of_day: Sequence[Launch],
    herd: Drained,
    alone: Drained | None,
    api: Sequence[Mapping[str, Any]],
) -> list[Threshold]:
    """The figures that must be kept, with their bounds."""
    whole = api[-1] if api else {"p99": float("inf"), "failed": 0, "requests": 0}
    p99, most = quantile(lags(of_day, "started"), 0.99), plan.max_lag_p99
    found = [
        Threshold("due -> start of the day's launches, p99", p99, most, "ms"),
        Threshold("requests that failed", whole["failed"], 0),
        Threshold("requests", whole["requests"], plan.seconds, least=True),
        Threshold("the API's answers, p99", whole["p99"], plan.max_api_p99, "ms"),
    ]
    if plan.herd:
        others = lags(during(of_day, herd), "started")
        late, count = quantile(others, 0.99), sum(others.values())
        found += [
            Threshold("launches of the herd", herd.launches, plan.herd, least=True),
            Threshold("others' due -> start while the herd drained, p99", late, most, "ms"),
        ]
        if plan.alone:
            least = LEAST_OTHERS
            found.append(Threshold("others' launches meanwhile", count, least, least=True))
    if alone is not None:
        share = herd.rate / alone.rate if alone.rate else 0.0
        what = "the herd's rate, of that of a drain alone"
        found.append(Threshold(what, share, plan.min_drain, least=True))
    return found


def command_of(plan: Plan) -> str:
    """How this run is made again."""
    if plan == PLANS["short"]:
        return "make load"
    given = "" if plan == PLANS[plan.name] else f" --seconds {plan.seconds}"
    return f"make load ARGS='{plan.name}{given}'"


def say(what: str) -> None:
    """Tell what goes on."""
    print(what, file=sys.stderr, flush=True)


def _tail(folder: Path) -> str:
    return (folder / "locust.log").read_text("utf-8", errors="replace")[-500:]


def run_one(plan: Plan, args: argparse.Namespace) -> int:
    """One load test; how many bounds and invariants were broken."""
    folder = args.out / plan.name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.*"):
        old.unlink()
    say(f"{plan.name}: {plan.what}")
    with running(plan, args, folder.resolve()) as run:
        result = perform(run, args)
    (folder / "result.json").write_text(json.dumps(result, indent=1), "utf-8")
    report.write(folder, result, args.page)
    broken = [t["text"] for t in result["thresholds"] if not t["kept"]] + result["breaches"]
    print(f"{plan.name}: {report.summary(result)}")
    for what in broken:
        print(f"BROKEN: {what}")
    print(f"{'broken' if broken else 'held'}; see {folder}/report.html")
    return len(broken)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known = f"{', '.join(PLANS)}, or full: {', '.join(FULL)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{known}; default: short")
    parser.add_argument("--out", type=Path, default=Path("build/load"), help="where reports go")
    parser.add_argument("--page", type=Path, help="write into performance.md of this folder")
    parser.add_argument("--latency", type=float, default=0.02, help="of the receiver, seconds")
    parser.add_argument("--failures", type=float, default=0.05, help="share of its answers")
    parser.add_argument("--date", default="2026-01-07", help="the day that the corpus is due on")
    parser.add_argument(
        "--seconds", type=int, help="of traffic, instead of the plan's; as many slots in each"
    )
    parser.add_argument("--plant", choices=PLANTS, help="a fault that the run must then fail of")
    bed_options(parser, concurrency=512, outstanding=1000)
    # The receiver's refusals are warnings of the workers, thousands of them.
    parser.set_defaults(timeout=240.0, log_level="error")
    args = parser.parse_args()
    names = [n for name in args.names or ["short"] for n in (FULL if name == "full" else [name])]
    if unknown := sorted(set(names) - set(PLANS)):
        parser.error(f"no load test is called {unknown[0]}; there are {', '.join(PLANS)} and full")
    plans = [lasting(PLANS[name], args.seconds or PLANS[name].seconds) for name in names]
    for plan in plans:
        if not herd_after(plan) < plan.seconds <= LONGEST:
            parser.error(
                f"--seconds {plan.seconds}: {plan.name} takes more than {herd_after(plan)}"
                f" and at most {LONGEST}"
            )
    if not 0 <= args.failures < 1 or args.latency < 0:
        parser.error("--failures is a share from 0 to below 1, --latency no less than 0")
    try:
        midnight(args.date)
    except ValueError:
        parser.error(f"--date {args.date} is no date; one such as 2026-01-07")
    try:  # now, and not after an hour
        for name in names if args.page else ():
            report.put((args.page / report.PAGE).read_text("utf-8"), name, "")
    except (OSError, ValueError) as e:
        parser.error(f"--page: {e}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    return 1 if sum([run_one(plan, args) for plan in plans]) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs seeds and shows what fails.

    python -m tests.simulation.run --seed 7              one seed, its history with it
    python -m tests.simulation.run --seeds 100000        many, on every core; --from N: from there
    python -m tests.simulation.run --history FILE        a history that was kept
    python -m tests.simulation.run --list                the mistakes that can be planted: --bug N
    python -m tests.simulation.run --bugs                which seed and rule finds each of them

A seed that fails is shortened: events are left out while it still fails. What is left is printed,
and written to a file with --keep. The exit code is 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.simulation.bugs import planted
from tests.simulation.counterexamples import BUGS
from tests.simulation.finding import table
from tests.simulation.plan import History, history
from tests.simulation.world import Result, World

_CHUNK = 200
_LINES = 40


def run(made: History, *, trace: bool = False) -> Result:
    """A history from its beginning to its end."""
    return World(made, trace=trace).run()


def shrink(made: History, rule: str) -> History:
    """Leave out what is not needed for the same rule to be broken."""

    def fails(tried: History) -> bool:
        broken = run(tried).violation
        return broken is not None and broken.rule == rule

    for change in ({"noise": 0.0}, {"workers": 1}, {"schedulers": 2}):
        tried = _known(replace(made, **change))
        if fails(tried):
            made = tried
    going = True
    while going:
        going = False
        for n in reversed(range(len(made.events))):
            tried = replace(made, events=made.events[:n] + made.events[n + 1 :])
            if fails(tried):
                made, going = tried, True
        for n in reversed(range(len(made.jobs))):
            tried = _without_job(made, n)
            if len(made.jobs) > 1 and fails(tried):
                made, going = tried, True
    return made


def _known(made: History) -> History:
    """Without the events of processes that are not there."""
    there = {f"s{n}" for n in range(made.schedulers)} | {f"w{n}" for n in range(made.workers)}
    named = [(e, e.args.get("process", e.args.get("who"))) for e in made.events]
    return replace(made, events=[e for e, name in named if name in {None, "db", *there}])


def _without_job(made: History, n: int) -> History:
    gone = made.jobs[n]["name"]
    events = [e for e in made.events if e.args.get("job") != gone]
    return replace(made, jobs=made.jobs[:n] + made.jobs[n + 1 :], events=events)


def told(made: History, result: Result, lines: int = _LINES) -> Iterator[str]:
    """A history for people: what was there, what went wrong, the last steps."""
    yield (
        f"seed {made.seed}: {made.schedulers} schedulers, {made.workers} workers,"
        f" calls that are late: {made.noise:.0%}"
        + "".join(f", weight of {name}: {w}" for name, w in made.weights.items())
    )
    for job in made.jobs:
        when = " ".join(f"{k} {v}" for k, v in job["schedule"].items() if k != "anchor")
        yield f"  job {job['name']}: {when}, overlap {job['overlap']}, {job['if_uncertain']}"
    yield from (f"  {event}" for event in made.events)
    steps = [line for line in result.trace if "snapshot" not in line]
    left_out = max(0, len(steps) - lines)
    yield f"  ... {left_out} steps ..."
    yield from (f"  {line}" for line in steps[left_out:])
    yield f"BROKEN: {result.violation}" if result.violation else "every rule holds"


def shortest(seed: int) -> Iterator[str]:
    """The shortest history that still breaks the rule which this seed's breaks, told."""
    made = history(seed)
    broken = run(made).violation
    if broken is not None:
        made = shrink(made, broken.rule)
    yield from told(made, run(made, trace=True))


@dataclass
class Report:
    """What many seeds gave."""

    seeds: int = 0
    events: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str]] = field(default_factory=list)

    def add(self, seed: int, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.steps += result.steps
        self.counts.update(result.counts)
        if result.violation is not None:
            self.broken.append((seed, str(result.violation)))

    def merge(self, other: Report) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.steps += other.steps
        self.counts += other.counts
        self.broken += other.broken

    def __str__(self) -> str:
        what = ", ".join(f"{n} x {what}" for what, n in self.counts.most_common())
        return f"{self.seeds} seeds, {self.events} events, {self.steps} turns of loops ({what})"


def run_seeds(seeds: Iterable[int]) -> Report:
    """These seeds, one after the other, on this core."""
    report = Report()
    collects = gc.isenabled()
    gc.disable()  # worlds are circles: once for many of them is far cheaper
    try:
        for n, seed in enumerate(seeds):
            report.add(seed, run(history(seed)))
            if n % 50 == 0:
                gc.collect()
    finally:
        if collects:
            gc.enable()
    return report


def _many(first: int, count: int) -> Report:
    report = Report()
    chunks = [
        range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(run_seeds, chunks):
            report.merge(part)
            for seed, why in part.broken:
                _say(f"seed {seed}: {why}")
            if report.seeds % (_CHUNK * 25) == 0:
                _say(f"... {report.seeds} seeds, {len(report.broken)} broken")
    return report


def _show(made: History, *, keep: Path | None, lines: int) -> bool:
    result = run(made, trace=True)
    if result.violation is not None:
        made = shrink(made, result.violation.rule)
        result = run(made, trace=True)
    for line in told(made, result, lines):
        _say(line)
    if keep is not None:
        made.dump(keep)
        _say(f"kept in {keep}")
    return result.violation is None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="The simulation of Tickrail.")
    parser.add_argument("--seed", type=int, help="run this seed and print its history")
    parser.add_argument("--history", type=Path, help="run a history that was kept")
    parser.add_argument("--seeds", type=int, help="run so many seeds, on every core")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--keep", type=Path, help="write the history to this file")
    parser.add_argument("--lines", type=int, default=_LINES, help="steps to print")
    parser.add_argument("--bug", type=int, help="with this mistake planted; see --list")
    parser.add_argument("--list", action="store_true", help="print the mistakes")
    parser.add_argument("--bugs", action="store_true", help="look for each of the mistakes")
    options = parser.parse_args()
    names = list(BUGS)
    if options.list:
        for n, name in enumerate(names):
            _say(f"{n:3} {name}")
        return 0
    if options.bugs:
        for line in table():
            _say(line)
        return 0
    with nullcontext() if options.bug is None else planted(names[options.bug]):
        if options.seeds is not None:
            report = _many(options.first, options.seeds)
            _say(str(report))
            well = not report.broken
            if report.broken:
                well = _show(history(report.broken[0][0]), keep=options.keep, lines=options.lines)
        elif options.history is not None:
            well = _show(History.load(options.history), keep=options.keep, lines=options.lines)
        elif options.seed is not None:
            well = _show(history(options.seed), keep=options.keep, lines=options.lines)
        else:
            parser.error("one of --seed, --seeds, --history, --list is needed")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

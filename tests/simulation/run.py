"""Runs seeds and shows what fails.

    python -m tests.simulation.run --seed 7              one seed, its history with it
    python -m tests.simulation.run --seeds 100000        many, on every core; --from N: from there
    python -m tests.simulation.run --history FILE        a history that was kept
    python -m tests.simulation.run --list                the mistakes that can be planted: --bug N
    python -m tests.simulation.run --bugs                which seed and rule finds each of them

A seed that fails is shortened: events are left out while it still fails. What is left is printed,
and written to a file with --keep, together with the mistake that was planted: --history plants it
again. The exit code is 1 when a rule was broken, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from tests.simulation.bugs import planted
from tests.simulation.counterexamples import BUGS
from tests.simulation.finding import table
from tests.simulation.happenings import knows
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
    if made.bug:
        yield f"  planted: {made.bug}"
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


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message}\n")


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return count


def _parser() -> _Parser:
    parser = _Parser(description="The simulation of Tickrail.")
    parser.add_argument("--seed", type=int, help="run this seed and print its history")
    parser.add_argument("--history", type=Path, help="run a history that was kept")
    parser.add_argument("--seeds", type=_count, help="run so many seeds, on every core")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them")
    parser.add_argument("--keep", type=Path, help="write the history to this file")
    parser.add_argument("--lines", type=_count, default=_LINES, help="steps to print")
    parser.add_argument("--bug", type=int, help="with this mistake planted; see --list")
    parser.add_argument("--list", action="store_true", help="print the mistakes")
    parser.add_argument("--bugs", action="store_true", help="look for each of the mistakes")
    return parser


def _kept(parser: _Parser, path: Path) -> History:
    try:
        made = History.load(path)
    except (OSError, ValueError) as e:
        parser.error(f"--history {path}: {e}")
    if made.bug and made.bug not in BUGS:
        parser.error(f"--history {path}: there is no mistake {made.bug!r}; see --list")
    unknown = sorted({e.kind for e in made.events if not knows(e.kind)})
    if unknown:
        parser.error(f"--history {path}: no such events: {', '.join(unknown)}")
    return made


def _tables(options: argparse.Namespace) -> bool:
    """Print what is asked for that is no run."""
    lines: Iterable[str] = ()
    if options.list:
        lines = (f"{n:3} {name}" for n, name in enumerate(BUGS))
    elif options.bugs:
        lines = table()
    for line in lines:
        _say(line)
    return bool(options.list or options.bugs)


def _run(options: argparse.Namespace, made: History | None, bug: str) -> bool:
    """Run what is asked for; whether every rule held."""
    with planted(bug) if bug else nullcontext():
        if made is None:
            report = _many(options.first, options.seeds)
            _say(str(report))
            if not report.broken:
                return True
            made = history(report.broken[0][0])
        return _show(replace(made, bug=bug), keep=options.keep, lines=options.lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if _tables(options):
        return 0
    asked = [options.seed, options.seeds, options.history]
    if sum(one is not None for one in asked) != 1:
        parser.error("one of --seed, --seeds, --history, --list, --bugs is needed")
    names = list(BUGS)
    if options.bug is not None and not 0 <= options.bug < len(names):
        parser.error(f"--bug {options.bug}: a number from 0 to {len(names) - 1}; see --list")
    if options.keep is not None and not options.keep.absolute().parent.is_dir():
        parser.error(f"--keep {options.keep}: there is no such folder")
    bug = "" if options.bug is None else names[options.bug]
    made = None if options.seed is None else history(options.seed)
    if options.history is not None:
        made = _kept(parser, options.history)
        bug = bug or made.bug
    return 0 if _run(options, made, bug) else 1


if __name__ == "__main__":
    sys.exit(main())

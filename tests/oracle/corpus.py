"""Every expression found in the wild, in twelve zones, round every change of offset for 16 years.

    python -m tests.oracle.corpus [--processes 2] [--years 2015-2030]

For each expression, zone and window: the product's walk gives exactly the instants that brute
force finds, under each rule for the missing and the doubled hour, and counts them right. Takes
some minutes; the ordinary tests take a seeded sample. Exits 1 when anything differs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID

from tests.oracle.days import Walls
from tests.oracle.expression import Expression, read
from tests.support.cron_oracle import transitions
from tests.support.schedules import rows

from tickrail.core.clock import SystemClock
from tickrail.core.schedule import Cron, Fold, Gap, missed, next_after

DIALECTS = {"unix5", "k8s", "github-actions", "quartz", "spring6", "robfig6", "at-name"}
ZONES = (
    "America/New_York",
    "Europe/London",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "UTC",
)
NO_SCHEDULES = ("@once", "@every", "@reboot", "0 0 31 2 *", "0 30 * * *", "0 0 10am")
"""How the rows begin that are no schedule of ours; other tests say why."""
HARD = (
    "15,45 0-3 * * *",
    "0,30 1,2 L-2 * *",
    "30 2 LW * *",
    "30 1 15W * *",
    "10 0 1W,31W * *",
    "45 1 L,1,28-30 * *",
    "30 2 L-30,L-7 * *",
    "0 2 * * SUN#1,SUN#2,SUN#5",
    "30 2 * * 0L,7L",
    "30 23,0 * * 5L,SAT",
    "0 0 29 2 1#5",
    "0,20 22-2/2 28-3/2 NOV-FEB FRI-MON",
    "40-20/7 23-1 * * SAT-TUE/2",
    "5-5 2-2 * OCT-APR/3 7-3",
    "*/30 1-2 */2 * 0",
    "30 * */3 * SUN",
    "0 */2 L * *",
    "30 1 ? 3,4,10,11 SUN",
    "30-10/20 30 1-3 * * *",
    "*/20 59 1,2,23 L * SUN",
    "0 30 2 L-6 * ? 2015-2030/5",
    "0 0,30 1 ? * SUN#1,SUN#4,SUN#5 2017,2020,2029",
    "H(0-29)/7 H(1-2) H(1-7)/3 * H(0-2)",
    "H H(0-3) * * SAT,SUN",
    "0 0 * * *",
    "1 0 * * 1-7/2",
    "59 23 31 */2 ?",
)
"""Forms that the corpus has little of: last, nearest and nth days, wrapped ranges, `H`, years."""
JOB = UUID("01920000-0000-7000-8000-000000000001")
RULES = tuple(product(Gap, Fold))
ENDS = 3
SHOWN = 20


@dataclass
class Report:
    """How much was compared, and what differed."""

    walks: int = 0
    instants: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Take in another report."""
        self.walks += other.walks
        self.instants += other.instants
        self.differences += other.differences


def expressions() -> list[str]:
    """The distinct expressions of the corpus that are schedules, and the hard ones."""
    found = {row["expression"] for row in rows("cron_corpus.csv") if row["dialect"] in DIALECTS}
    return sorted(text for text in found if not text.startswith(NO_SCHEDULES)) + list(HARD)


def moments(zone: str, first: int, last: int) -> list[datetime]:
    """The middles of the windows: changes of offset, or year's ends and leap days without any."""
    found = list(transitions(zone, first, last))
    if found:
        return found
    years = range(first, last + 1)
    return [datetime(y, 12, 31, 12, tzinfo=UTC) for y in years] + [
        datetime(y, 2, 28, 12, tzinfo=UTC) for y in years if y % 4 == 0
    ]


def reach(e: Expression) -> timedelta:
    """How far a window goes to either side: some slots of every expression lie in it."""
    if len(e.seconds) > 1 and len(e.minutes) > 720:
        return timedelta(hours=2)
    return timedelta(days=3) if e.every_day else timedelta(days=40)


def walk(s: Cron, low: datetime, high: datetime) -> list[datetime]:
    """The product's instants, one by one."""
    found: list[datetime] = []
    at = next_after(s, low)
    while at is not None and at <= high:
        found.append(at)
        at = next_after(s, at)
    return found


def compare(
    texts: Iterable[str], zone: str, middles: Iterable[datetime], rules: Sequence[tuple[Gap, Fold]]
) -> Report:
    """Walk and brute force side by side."""
    report, walls = Report(), Walls(zone)
    parsed = [(text, read(text, JOB)) for text in texts]
    for middle in middles:
        for text, e in parsed:
            low, high = middle - reach(e), middle + reach(e)
            for gap, fold in rules[:1] if e.wild else rules:
                s = Cron(text, zone, gap, fold, JOB)
                expected = walls.due(e, low, high, gap, fold)
                found = walk(s, low, high)
                report.walks += 1
                report.instants += len(expected)
                if found != expected:
                    odd = sorted(set(found) ^ set(expected))[:3]
                    report.differences.append(f"{text!r} {zone} {gap} {fold}: {odd}")
                if (gap, fold) == rules[0] and not _counted(s, low, high, expected):
                    report.differences.append(f"{text!r} {zone}: count from {low} to {high}")
    return report


def _counted(s: Cron, low: datetime, high: datetime, expected: list[datetime]) -> bool:
    """Whether the product counts the slots of a window right, and names its ends."""
    found = missed(s, low, high, ENDS)
    if found is None:
        return not expected
    return (found.count, list(found.oldest), list(found.newest)) == (
        len(expected),
        expected[:ENDS],
        expected[-ENDS:],
    )


def _part(zone: str, middles: list[datetime]) -> Report:
    return compare(expressions(), zone, middles, RULES)


def main() -> int:
    """The whole set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--years", default="2015-2030")
    args = parser.parse_args()
    first, _, last = args.years.partition("-")
    clock = SystemClock()
    began = clock.monotonic()
    parts = []
    for zone in ZONES:
        middles = moments(zone, int(first), int(last or first))
        parts += [(zone, middles[i : i + 4]) for i in range(0, len(middles), 4)]
    total = Report()
    with ProcessPoolExecutor(args.processes) as pool:
        for n, report in enumerate(pool.map(_part, *zip(*parts, strict=True)), 1):
            total.add(report)
            sys.stderr.write(f"\r{n}/{len(parts)} parts, {total.walks:,} walks")
    windows = sum(len(middles) for _, middles in parts)
    sys.stderr.write("\n")
    summary = (
        f"{len(expressions())} expressions, {len(ZONES)} zones, {windows} windows: "
        f"{total.walks:,} walks compared, {total.instants:,} instants, "
        f"{len(total.differences)} differences, {clock.monotonic() - began:.0f} s"
    )
    sys.stdout.write("\n".join([summary, *total.differences[:SHOWN]]) + "\n")
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())

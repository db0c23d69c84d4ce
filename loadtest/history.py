"""A history at size: what it costs the work and the pages, and what is made and dropped behind.

    python loadtest/history.py [--launches 10000000] [--days 30] [--jobs 10000]

One PostgreSQL with two databases: in one, launches of so many days; in the other, the same jobs and
no history. Everything goes through the store's own code.

- Ticks, backlogs, marks, claims and ends of 100 launches at a time, in turns on both sides: with
  the history they may take --max-growth times as long, and --slack ms. Pages of jobs and of the
  history: the p99 is at most --max-page ms.
- Days are made ahead and dropped behind while statements of all these kinds run, then once more
  while a reader holds the history for long, as a backup does: the longest statement of anybody in
  that time is at most --max-wait seconds.
- A day of load: so many launches, --rate of them due in each second, with an autovacuum that looks
  each second (in a real day it looks 1,440 times). At its end at most --max-dead of the rows
  are dead, and those with which autovacuum begins.

Prints what it measured. Exits 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, timedelta
from typing import Any

import psycopg
import structlog

from bed import CLOCK, Seed, insert_jobs, make_tenant, pause, percentiles
from history_bed import OWNED, PARTITIONS, Side, Times, sides
from tickrail.core.errors import UnavailableError
from tickrail.store.owner import PostgresOwnerStore

BATCH = 100
SMALL = 10
"""Launches of a round while days are made and dropped."""
WORK = ("tick", "backlog", "mark", "claim", "finish")
THRESHOLD = 5000
"""Dead rows of a day with which autovacuum begins, beside its share of all."""
DROPS = 10
"""Tries to drop a day while others work."""
SETTLE = 12.0
"""Seconds for the last vacuum after the load, and until idle sessions tell their statistics."""


class Bounds:
    """What must hold, and what did not."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def hold(self, what: str, value: float, most: float, unit: str) -> None:
        """Remember a value that is above its bound."""
        if value > most:
            self.broken.append(f"{what}: {value:.3g} {unit}, at most {most:.3g}")


def in_ms(seconds: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99 and the largest, in milliseconds."""
    p50, _, p99, most = percentiles(sorted(seconds))
    return p50 * 1e3, min(p99, most) * 1e3, most * 1e3


def compare(empty: Side, full: Side, args: argparse.Namespace, bounds: Bounds) -> None:
    """The times of the work and of the pages, in turns on both sides."""
    rng = random.Random(args.seed)
    found = {empty.name: Times(), full.name: Times()}
    jobs = {side.name: [job for _, job in side.jobs] for side in (empty, full)}
    for ids in jobs.values():
        rng.shuffle(ids)
    for n in range(-2, args.rounds):  # the first two only warm caches
        times = found if n >= 0 else {name: Times() for name in found}
        for side in (empty, full) if n % 2 else (full, empty):
            part = [jobs[side.name].pop() for _ in range(BATCH)]
            side.launch(times[side.name], part)
            for _ in range(args.looks):
                side.look(times[side.name], rng, args.days)
    print(f"\n{'ms':<34}{'empty p50':>10}{'p99':>8}{'full p50':>10}{'p99':>8}{'max':>8}")
    for what, taken in found[full.name].taken.items():
        without = found[empty.name].taken.get(what)  # what nothing is found for is not asked there
        p50, p99, _ = in_ms(without or [0.0] * 2)
        full50, full99, most = in_ms(taken)
        beside = f"{p50:>10.2f}{p99:>8.2f}" if without else f"{'-':>10}{'-':>8}"
        print(f"{what:<34}{beside}{full50:>10.2f}{full99:>8.2f}{most:>8.2f}")
        if what in WORK:
            bounds.hold(f"p50 of {what}", full50, p50 * args.max_growth + args.slack, "ms")
        else:
            bounds.hold(f"p99 of {what}", full99, args.max_page, "ms")


class Crowd:
    """Threads that work and look all the while; each keeps its longest statement."""

    def __init__(self, side: Side, args: argparse.Namespace) -> None:
        self._side = side
        self._args = args
        self._ended = threading.Event()
        self._longest: dict[str, float] = {}
        self._lock = threading.Lock()
        self.errors: list[str] = []
        self.rounds = 0

    def longest(self) -> tuple[float, str]:
        """The longest statement since this was asked last, and what it was."""
        with self._lock:
            found, self._longest = self._longest, {}
        return max(((seconds, what) for what, seconds in found.items()), default=(0.0, "nothing"))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let all of them run."""
        threads = [
            threading.Thread(target=self._run, args=(n, work))
            for n, work in enumerate((self._launch, self._look))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def _run(self, seed: int, work: Callable[[Side, Times, random.Random], None]) -> None:
        side, rng = self._side.twin(), random.Random(seed)
        while not self._ended.wait(0.005):
            times = Times()
            try:
                work(side, times, rng)
            except UnavailableError as e:
                self.errors.append(str(e))
            with self._lock:
                self.rounds += 1
                for what, taken in times.taken.items():
                    self._longest[what] = max(self._longest.get(what, 0.0), *taken)
        side.close()

    def _launch(self, side: Side, times: Times, rng: random.Random) -> None:
        side.launch(times, [job for _, job in rng.sample(side.jobs, SMALL)])

    def _look(self, side: Side, times: Times, rng: random.Random) -> None:
        side.look(times, rng, self._args.days)


def days(full: Side, args: argparse.Namespace, bounds: Bounds) -> None:
    """Make days ahead and drop days behind while others work; the longest wait of anybody."""
    crowd = Crowd(full, args)
    worst = 0.0
    print(f"\n{'days':<44}{'took ms':>9}{'longest of others ms':>22}")

    def told(what: str, seconds: float | None) -> float:
        longest, which = crowd.longest()
        took = "" if seconds is None else f"{seconds * 1e3:.0f}"
        print(f"{what:<44}{took:>9}{longest * 1e3:>14.0f} ({which})")
        return longest

    def during(what: str, work: Callable[[], int], wanted: int | None) -> float:
        pause(0.2)
        crowd.longest()
        began = CLOCK.monotonic()
        try:
            done: int | None = work()
        except UnavailableError:
            done = None
        seconds = CLOCK.monotonic() - began
        pause(0.2)
        if done != wanted:
            bounds.broken.append(f"{what}: {done} days instead of {wanted}")
        return told(what, seconds)

    def keeping(kept: int) -> PostgresOwnerStore:
        return PostgresOwnerStore(full.settings, CLOCK, history_days=kept)

    def patiently(keeper: PostgresOwnerStore) -> int:
        """Try again, as its owner does, only sooner: behind a statement of others it gives up."""
        for _ in range(DROPS):
            try:
                return keeper.drop_days()
            except UnavailableError:
                print("a drop gave up")
                pause(0.2)
        return 0

    with crowd.working():
        pause(1.0)
        crowd.longest()
        pause(args.quiet)
        told(f"nothing, for {args.quiet:g} s", None)
        for n in range(args.turns):
            keeper = keeping(args.days - 2 - n)
            worst = max(
                worst,
                during("one made ahead", lambda k=keeper, n=n: k.make_days(4 + n), 6 + n),  # type: ignore[misc]
                during("one dropped behind", lambda k=keeper: patiently(k), 1),  # type: ignore[misc]
            )
            keeper.close()
        with psycopg.connect(full.admin) as reader:
            reader.execute("select from launches limit 1")
            keeper = keeping(args.days - 2 - args.turns)
            worst = max(
                worst,
                during(
                    "one made, a reader holds the history",
                    lambda: keeper.make_days(4 + args.turns),
                    6 + args.turns,
                ),
                during("drop gives up, a reader holds it", keeper.drop_days, None),
            )
        worst = max(worst, during("one dropped, the reader is gone", lambda: patiently(keeper), 1))
        keeper.close()
    print(f"rounds of the others meanwhile: {crowd.rounds}, failed: {len(crowd.errors)}")
    bounds.broken += [f"a statement failed while days changed: {e}" for e in crowd.errors[:3]]
    bounds.hold("longest wait while days are made and dropped", worst, args.max_wait, "s")


STATS = """
select sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_hot_upd), sum(n_live_tup), sum(n_dead_tup),
       sum(autovacuum_count), sum(autoanalyze_count), sum(pg_total_relation_size(relid))
from pg_stat_user_tables where relname = any(%s)
"""


def load(full: Side, args: argparse.Namespace, bounds: Bounds) -> None:
    """A day of load, and what autovacuum makes of it."""
    today = f"{CLOCK.now().astimezone(UTC):%Y%m%d}"
    watched = {"launches of today": [f"launches_{today}"], "jobs": ["jobs"]}
    start = CLOCK.now().replace(microsecond=0) + timedelta(seconds=2)
    seeds = [Seed({"cron": "* * * * * *"}, start)] * args.rate
    with psycopg.connect(full.admin, autocommit=True) as conn:
        conn.execute("alter system set autovacuum_naptime = '1s'")
        conn.execute("select pg_reload_conf()")
        insert_jobs(full.admin, make_tenant(full.admin), seeds, PARTITIONS, "active")

        def read() -> dict[str, Sequence[Any]]:
            rows = {k: conn.execute(STATS, [names]).fetchone() for k, names in watched.items()}
            return {k: [int(x or 0) for x in row or ()] for k, row in rows.items()}

        before, times, done, peak = read(), Times(), 0, dict.fromkeys(watched, 0)
        began, looked = CLOCK.monotonic(), 0.0
        while done < args.load:
            ticked = times.of("tick", lambda: full.tick.run_once(OWNED))
            done += full.carry(times, ticked.inserted)
            if CLOCK.monotonic() - looked >= 1.0:
                looked = CLOCK.monotonic()
                peak = {k: max(peak[k], row[4]) for k, row in read().items()}
            if not ticked.inserted:
                pause(0.02)
        seconds = CLOCK.monotonic() - began
        pause(SETTLE)
        after = read()
    print(f"\na day of load: {done:,} launches in {seconds:.0f} s ({done / seconds:.0f}/s)")
    print(f"{'ms':<34}{'p50':>10}{'p99':>8}{'max':>8}")
    for what, taken in times.taken.items():
        p50, p99, most = in_ms(taken)
        print(f"{what:<34}{p50:>10.2f}{p99:>8.2f}{most:>8.2f}")
    print(
        f"{'table':<20}{'inserted':>10}{'updated':>10}{'HOT':>6}{'dead, most':>12}"
        f"{'at the end':>12}{'vacuums':>9}{'analyzes':>9}{'MB':>16}"
    )
    for name, row in after.items():
        ins, upd, hot, _, _, vacuums, analyzes, _ = (
            a - b for a, b in zip(row, before[name], strict=True)
        )
        share = hot / upd if upd else 0.0
        sizes = f"{before[name][7] / 1e6:.1f} -> {row[7] / 1e6:.1f}"
        print(
            f"{name:<20}{ins:>10,}{upd:>10,}{share:>6.0%}{peak[name]:>12,}{row[4]:>12,}"
            f"{vacuums:>9}{analyzes:>9}{sizes:>16}"
        )
        most = THRESHOLD + args.max_dead * (row[3] + row[4])
        bounds.hold(f"dead rows of {name} at the end", row[4], most, "rows")


def at_least_one(text: str) -> int:
    """A number of an option; argparse says what is wrong with it."""
    with suppress(ValueError):
        if (found := int(text)) > 0:
            return found
    raise argparse.ArgumentTypeError(f"is {text!r}; a whole number from 1 on")


def main() -> int:
    """Fill and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--launches", type=at_least_one, default=200_000, help="of the history")
    parser.add_argument("--days", type=at_least_one, default=30)
    parser.add_argument("--jobs", type=at_least_one, default=10_000)
    parser.add_argument("--tenants", type=at_least_one, default=20)
    parser.add_argument(
        "--rounds", type=at_least_one, default=40, help="of 100 launches on each side"
    )
    parser.add_argument("--looks", type=int, default=3, help="at the pages, in each round")
    parser.add_argument("--turns", type=at_least_one, default=3, help="days made and dropped")
    parser.add_argument("--quiet", type=float, default=3.0, help="seconds before days change")
    parser.add_argument("--load", type=int, default=10_000, help="launches of the day of load")
    parser.add_argument(
        "--rate", type=at_least_one, default=500, help="launches due in each second"
    )
    parser.add_argument(
        "--fillers", type=at_least_one, default=os.cpu_count() or 2, help="connections"
    )
    parser.add_argument("--max-growth", type=float, default=2.0)
    parser.add_argument("--slack", type=float, default=5.0, help="ms")
    parser.add_argument("--max-page", type=float, default=50.0, help="ms")
    parser.add_argument("--max-wait", type=float, default=0.5, help="seconds")
    parser.add_argument("--max-dead", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="a folder for the server's data")
    args = parser.parse_args()
    if args.jobs < (args.rounds + 2) * BATCH:
        parser.error(f"--jobs: at least {(args.rounds + 2) * BATCH}, so that none runs twice")
    if args.days < args.turns + 4:
        parser.error(f"--days: at least {args.turns + 4}, so that there are some to drop")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    bounds = Bounds()
    with sides(args) as (empty, full):
        compare(empty, full, args, bounds)
        days(full, args, bounds)
        load(full, args, bounds)
    for line in bounds.broken:
        print(f"BROKEN {line}")
    return 1 if bounds.broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Faults under load on real servers, many of each kind: how long until all launches go on.

    python -m loadtest.failover [--only kill stop ...] [--tries N] [--results DIR] [--page docs]

Each kind has an installation of its own: schedulers, a worker, 64 partitions, in each a job of
every second. A try makes the fault, waits until all is as before, and is added as one line to
<results>/<kind>.jsonl; a run that is started again goes on where it was ended, so kinds can also
run side by side. --page writes failover.md and failover.svg from all the results that are there.

Exits 1 when a bar is broken: seconds until the last partition launches again, a slot without a
launch or with two, a write of a deposed epoch, neighbours that are late.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from loadtest.failover_page import late_neighbours, write_page
from tests.support.etcd_program import etcd
from tests.support.failover import KINDS, Bed, Kind, bed, broken

Result = dict[str, Any]

FRESH_AFTER = 25
"""Tries on one installation, before the next one gets new servers."""


def results_of(folder: Path, kind: Kind) -> list[Result]:
    """The tries of a kind so far; a line that was cut off by an interruption is not one."""
    path = folder / f"{kind.name}.jsonl"
    found: list[Result] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            print(f"{path}: a line is not whole and is left out", file=sys.stderr)
    return found


def attempts(made: Bed) -> Iterator[Result]:
    """Tries, until one goes so wrong that the installation is not to be used again."""
    for _ in range(FRESH_AFTER):
        try:
            one = made.attempt()
        except AssertionError as error:
            yield {"kind": made.kind.name, "error": str(error) or "a condition of the try failed"}
            return
        yield one


def run(folder: Path, kind: Kind, tries: int) -> None:
    """Make what is missing of the tries of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind.name}.jsonl"
    for seed in count(len(results_of(folder, kind))):
        if len(results_of(folder, kind)) >= tries:
            return
        with bed(kind, seed=seed) as made:
            for one in attempts(made):
                with path.open("a") as file:
                    file.write(json.dumps(one) + "\n")
                done = len(results_of(folder, kind))
                said = one.get("error") or "; ".join(broken(one)) or "held"
                last = one.get("last", one.get("slowest", float("nan")))
                print(f"{kind.name} {done}/{tries}: {last:.3f} s, {said}", flush=True)
                if done >= tries:
                    break


def verdict(found: dict[str, list[Result]]) -> list[str]:
    """Every bar that is broken."""
    wrong = [
        f"{name}, try {n}: {what}"
        for name, results in found.items()
        for n, one in enumerate(results, 1)
        for what in ([one["error"]] if "error" in one else broken(one))
    ]
    return wrong + late_neighbours(found)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--tries", type=int, help="of each kind; else as many as its bar is for")
    parser.add_argument("--results", type=Path, default=Path("build/failover"))
    parser.add_argument("--page", type=Path, help="the folder to write the page and the plot to")
    parser.add_argument("--remark", default="", help="what the page should say besides")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # The installations run the etcd on the PATH where it is newer than the one they bring.
    os.environ["PATH"] = f"{etcd().path.parent}{os.pathsep}{os.environ['PATH']}"
    for name in args.only:
        kind = KINDS[name]
        run(args.results, kind, kind.tries if args.tries is None else args.tries)
    found = {name: results_of(args.results, kind) for name, kind in KINDS.items()}
    found = {name: results for name, results in found.items() if results}
    if args.page:
        write_page(args.page, found, cores=os.cpu_count() or 0, remark=args.remark)
    wrong = verdict(found)
    for what in wrong:
        print(f"BROKEN: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Rounds of failpoints by seed: `python -m tests.fault.run --seeds 50`.

Each seed chooses which scheduler or worker fails where and how (tests/fault/rounds.py). The
histories are kept with --keep DIR. With --journal FILE seeds that were right are noted there and
left out the next time, so that a long run can be ended and gone on with. The exit code is 1 when a
seed failed; it is named, and `--seed N` plays it alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.fault.history import KEEP_VARIABLE
from tests.fault.rounds import Played, bed, chosen, play

BED_EVERY = 25
"""Rounds on one installation, before a fresh one is made."""


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)  # noqa: T201 - a program


def told(seed: int, played: Played) -> str:
    """What a round showed, in a line."""
    found = played.judgement
    blows = ", ".join(str(one.blow) for one in played.struck.values()) or "nothing struck"
    missed = "".join(f"; not reached: {blow}" for blow in played.missed)
    return (
        f"seed {seed}: {blows}; {found.counts['launches']} launches,"
        f" {len(found.doubled)} effects doubled,"
        f" {found.slowest():.2f} s to recover{missed}"
    )


def run(seeds: Sequence[int], folder: Path, journal: Path | None) -> list[int]:
    """Play the seeds; those that failed."""
    failed: list[int] = []
    for n in range(0, len(seeds), BED_EVERY):
        with bed() as (found, effects):
            for seed in seeds[n : n + BED_EVERY]:
                try:
                    played = play(found, effects, chosen(seed), folder, f"seed-{seed}")
                except AssertionError:
                    blows = ", ".join(map(str, chosen(seed)))
                    say(f"seed {seed} FAILED ({blows})\n{traceback.format_exc(limit=-2)}")
                    failed.append(seed)
                    continue
                say(told(seed, played))
                if journal is not None:
                    with journal.open("a") as file:
                        file.write(f"{seed}\n")
    return failed


def main(arguments: Sequence[str]) -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--keep", type=Path, help="a folder for the histories")
    parser.add_argument("--journal", type=Path, help="a file of the seeds that were right")
    given = parser.parse_args(arguments)
    seeds = (
        [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    )
    done = set()
    if given.journal is not None and given.journal.exists():
        done = {int(line) for line in given.journal.read_text().split()}
    left = [seed for seed in seeds if seed not in done]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    with tempfile.TemporaryDirectory(prefix="tickrail-histories-") as temporary:
        kept = given.keep or os.environ.get(KEEP_VARIABLE)
        failed = run(left, Path(kept or temporary), given.journal)
    say(f"{len(left) - len(failed)} seeds are right" + (f", failed: {failed}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Launches that fail at random while workers are killed and Kafka is restarted, and what is left.

    python -m loadtest.chaos [--launches 50000] [--rate 400] [--workers 4] [--kill-every 10]

Prints what was found, as tests/fault/chaos_checks.py tells it. Exits 1 when a rule is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from tests.fault.chaos import ENVIRONMENT, Chaos, Journal
from tests.fault.chaos_checks import judge
from tests.support.etcd_program import etcd
from tests.support.processes import installation
from tests.support.until import until


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=400, help="launches a second (jobs)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kill-every", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--within", type=float, default=600.0, metavar="SECONDS",
                        help="after the traffic, until everything must have ended")  # fmt: skip
    args = parser.parse_args()
    os.environ["PATH"] = f"{etcd().path.parent}{os.pathsep}{os.environ['PATH']}"
    seconds = args.launches / args.rate
    with (
        Journal() as journal,
        installation(workers=args.workers, partitions=16, environment=ENVIRONMENT) as found,
    ):
        until(lambda: all(s.ready() for s in found.services.values()), 90, 0.2)
        chaos = Chaos(
            found, journal, args.rate, seconds,
            kill_every=args.kill_every, restart_kafka_at=seconds / 2, tell=_say,
        )  # fmt: skip
        chaos.run(args.within)
        verdict = judge(chaos)
    print(json.dumps(verdict.figures, indent=2, default=str))
    for what in verdict.breaches:
        print(f"BROKEN: {what}")
    return 1 if verdict.breaches else 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

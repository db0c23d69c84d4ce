"""Runs seeds, shows what fails.

    python -m tests.simulation.run --seed 7            one seed, its history printed
    python -m tests.simulation.run --seeds 1-100000    many, on every core
    python -m tests.simulation.run --history FILE      a history that was kept
"""

from __future__ import annotations

from tests.simulation.plan import History, history
from tests.simulation.world import Result, World


def run(made: History, *, trace: bool = False) -> Result:
    return World(made, trace=trace).run()


if __name__ == "__main__":
    import sys
    import time

    if len(sys.argv) == 2:
        h = history(int(sys.argv[1]))
        print(h.schedulers, h.workers, h.noise, h.jobs)
        print(*h.events, sep="\n")
        r = run(h, trace=True)
        print(*r.trace[-60:], sep="\n")
        print(r.violation)
        sys.exit()
    lo, hi = int(sys.argv[1]), int(sys.argv[2])
    import gc

    gc.disable()
    t = time.process_time()
    steps = 0
    for seed in range(lo, hi):
        h = history(seed)
        r = run(h)
        steps += r.steps
        if seed % 50 == 0:
            gc.collect()
        if r.violation:
            print(seed, r.violation)
    dt = time.process_time() - t
    print(f"{(hi-lo)/dt:.1f} seeds/s", steps / (hi - lo))

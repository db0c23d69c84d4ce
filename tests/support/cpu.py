"""CPU time, which other work on the machine does not stretch."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def cpu_seconds(pid: int | None = None) -> float:
    """CPU time that a process has used so far, by default this one; seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def own_cpu_seconds() -> float:
    """CPU time that the calling thread has used so far; seconds."""
    return time.thread_time()


def least_cpu_seconds(work: Callable[[], object], tries: int = 3) -> float:
    """CPU time that this process needs for some work; seconds.

    The least of a few tries: other threads, and a collection of the garbage of a long test run,
    fall into some of them; what the work itself needs is in each.
    """
    spent = []
    for _ in range(tries):
        began = cpu_seconds()
        work()
        spent.append(cpu_seconds() - began)
    return min(spent)

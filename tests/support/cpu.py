"""CPU time, which other work on the machine does not stretch."""

from __future__ import annotations

import time

import psutil


def cpu_seconds(pid: int | None = None) -> float:
    """CPU time that a process has used so far, by default this one; seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def own_cpu_seconds() -> float:
    """CPU time that the calling thread has used so far; seconds."""
    return time.thread_time()

"""What a load test ran on, in words."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import psutil


def describe(servers: Mapping[str, str]) -> dict[str, str]:
    """The machine, the programs, and how busy it was: by what it is."""
    memory = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()
    return {
        "processor": f"{processor(_read('/proc/cpuinfo'))}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "Python": platform.python_version(),
        **servers,
        "load average before": f"{load[0]:.1f} (1 min), {load[1]:.1f} (5 min)",
    }


def processor(text: str) -> str:
    """The model's name in what /proc/cpuinfo says; that it is not known where it does not."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or "processor not known"


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text("utf-8") if file.exists() else ""

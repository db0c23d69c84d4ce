"""Small processes that look like servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Pretend = Callable[..., subprocess.Popen[str]]

LOOP = """
import signal, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    """Starts a process with a program's name and arguments, which runs until it is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        binary = tmp_path / "bin" / program
        binary.parent.mkdir(exist_ok=True)
        if not binary.exists():
            binary.symlink_to(sys.executable)
        child = subprocess.Popen(
            [binary, "-S", "-c", LOOP, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()

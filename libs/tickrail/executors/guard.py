"""A small program that kills process groups when the worker that started it is gone.

It reads `+<group>` and `-<group>` lines from standard input. The end of the input means that the
worker ended, by kill -9 too: the groups still listed are killed. Run as a file of its own by
`process.py`; imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read until the end, then kill what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()

"""Holds a stack until it is killed: `hold.py DATA_FOLDER`. Prints the bootstrap server when up."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tickrail.local.stack import LocalStack

if __name__ == "__main__":
    stack = LocalStack(Path(sys.argv[1]), fast=True, usual_ports=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with stack:
        sys.stdout.write(stack.addresses.kafka_bootstrap + "\n")
        sys.stdout.flush()
        signal.pause()

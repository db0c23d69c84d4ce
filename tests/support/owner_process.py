"""A process that does nothing but hold ownership on the etcd given, to be measured from outside.

    python -m tests.support.owner_process ENDPOINT PREFIX

Prints `owned`; ends with its standard input.
"""

from __future__ import annotations

import logging
import sys

import structlog
from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryFenceStore
from tests.support.ownership_threads import OwnershipThreads
from tests.support.until import until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.engine.ownership import OwnershipSettings


def main() -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    endpoint, prefix = sys.argv[1:]
    # The store's clock stands still, so the clocks never agree.
    settings = OwnershipSettings(name="a", partitions=8, clock_tolerance=1e12)
    process = OwnershipThreads(
        settings,
        EtcdCoordinator(EtcdSettings((endpoint,), prefix=prefix)),
        MemoryFenceStore(FakeClock(), 8),
    ).start()
    until(lambda: process.count == 8)
    sys.stdout.write("owned\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

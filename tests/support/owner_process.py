"""A process that does nothing but hold ownership on the etcd given: says what it costs.

    python -m tests.support.owner_process ENDPOINT PREFIX

Prints `owned`; at each line on standard input, the share of one core it used in the next 10 s.
"""

from __future__ import annotations

import logging
import sys
import time

import structlog
from tests.support.clock import FakeClock
from tests.support.memory_coord import MemoryFenceStore
from tests.support.ownership_threads import OwnershipThreads
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.engine.ownership import OwnershipSettings

SECONDS = 10


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
    for _ in sys.stdin:
        before = time.process_time()
        pause(SECONDS)
        sys.stdout.write(f"{(time.process_time() - before) / SECONDS:.5f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

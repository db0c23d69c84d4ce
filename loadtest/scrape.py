"""What a scrape costs: /metrics of each service with 64 partitions and 1,000 tenants.

    python loadtest/scrape.py [--tenants 1000] [--partitions 64] [--scrapes 50] [--most 0.05]

Every metric that a service tells is there, with each label as full as a large installation makes
it. It is fetched over HTTP from the status server that the processes have, while another thread
counts. Exits 1 when the median of a service's scrapes takes longer than --most seconds.
"""

from __future__ import annotations

import argparse
import http.client
import logging
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import product

import structlog

from tickrail.core.clock import SystemClock
from tickrail.runtime.http import StatusServer
from tickrail.runtime.metrics import METRICS, Metric, PrometheusMetrics
from tickrail.runtime.metrics_table import bound_of

CLOCK = SystemClock()
ROUTES, STATUSES, QUEUES, LOOPS = 70, 6, 20, 8
"""Paths of the API, statuses of one path, queues of the installation, loops of a process."""


def values_of(metric: Metric, label: str, sizes: argparse.Namespace) -> Sequence[str]:
    """The values that a label has in a large installation."""
    if label == "tenant":
        return [f"00000000-0000-7000-8000-{n:012}" for n in range(sizes.tenants)]
    if label == "partition":
        return [str(n) for n in range(sizes.partitions)]
    large = {"route": ROUTES, "status": STATUSES, "queue": QUEUES, "topic": 4 * QUEUES}
    large |= {"loop": LOOPS, "retries": 20, "method": 1}
    most = min(bound_of(metric, label).most, large.get(label, 24))
    return [f"{label}-{n}" for n in range(most)]


def fill(metrics: PrometheusMetrics, service: str, sizes: argparse.Namespace) -> None:
    """Tell everything that the service tells."""
    for m in METRICS:
        if service not in m.told_by:
            continue
        for chosen in product(*(values_of(m, label, sizes) for label in m.labels)):
            tell(metrics, m, dict(zip(m.labels, chosen, strict=True)))


def tell(metrics: PrometheusMetrics, m: Metric, labels: dict[str, str]) -> None:
    """One value."""
    if m.kind == "counter":
        metrics.count(m.name, 1, **labels)
    elif m.kind == "gauge":
        metrics.gauge(m.name, 1.5, **labels)
    else:
        metrics.observe(m.name, 0.02, **labels)


def scrapes(metrics: PrometheusMetrics, count: int) -> Iterator[tuple[float, int]]:
    """Seconds and lines of so many scrapes."""
    server = StatusServer("127.0.0.1", 0, health=dict, ready=dict, metrics=metrics)
    server.start()
    try:
        for _ in range(count):
            began = CLOCK.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", "/metrics")
            body = connection.getresponse().read()
            connection.close()
            yield CLOCK.monotonic() - began, body.count(b"\n")
    finally:
        server.stop()


def measure(service: str, sizes: argparse.Namespace) -> float:
    """The median of a service's scrapes; printed."""
    metrics, ended = PrometheusMetrics(service), threading.Event()
    fill(metrics, service, sizes)

    def count() -> None:
        n = 0
        while not ended.wait(0.001):
            n += 1
            if service == "worker":
                metrics.count("tenant_starts_total", tenant=f"t{n % sizes.tenants}")
            else:
                metrics.count("loop_turns_total", loop="loop-0")

    busy = threading.Thread(target=count)
    busy.start()
    try:
        found = list(scrapes(metrics, sizes.scrapes))
    finally:
        ended.set()
        busy.join()
    taken = sorted(seconds for seconds, _ in found)
    median = statistics.median(taken)
    print(
        f"{service}: {found[-1][1]} lines, median {median * 1000:.1f} ms,"
        f" slowest {taken[-1] * 1000:.1f} ms of {len(taken)} scrapes"
    )
    return median


def main() -> int:
    """Measure every service."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--most", type=float, default=0.05, help="seconds that a scrape may take")
    sizes = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    services = sorted({service for m in METRICS for service in m.told_by})
    slow = [s for s in services if measure(s, sizes) > sizes.most]
    if slow:
        print(f"slower than {sizes.most * 1000:g} ms: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

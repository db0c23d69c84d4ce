"""The metrics: one table of what there is, and Prometheus behind it. The only user of its client.

A name or a label that is not in the table is a bug and raises KeyError. No tenant is a label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

PREFIX = "tickrail_"

LAG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds between an instant and what should follow it at once."""
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds of a turn, a statement, a request."""
RUN = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200)
"""Seconds of a run."""

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """One row: its name without the prefix, its meaning, its labels, a histogram's bounds."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: tuple[Metric, ...] = (
    # Schedulers
    Metric(
        "schedule_lag_seconds", "histogram", "From a slot's due instant to its record.", (), LAG
    ),
    Metric("slots_skipped_total", "counter", "Due slots that were not launched.", ("reason",)),
    Metric("backfill_launches_total", "counter", "Launches made by backfills."),
    Metric("tzdata_moves_total", "counter", "Next runs moved by newer time zone data."),
    Metric("jobs_unplannable_total", "counter", "Jobs that could not be planned, each try."),
    Metric("partitions_owned", "gauge", "Partitions that this process owns."),
    Metric(
        "partitions_unowned",
        "gauge",
        "Partitions without an owner, as a scheduler or an API process sees it; NaN: not known.",
    ),
    Metric(
        "ownership_epoch", "gauge", "Epoch of each partition owned here, 0 after.", ("partition",)
    ),
    Metric("ownership_changes_total", "counter", "Partitions gained and lost.", ("change",)),
    Metric("lease_remaining_seconds", "gauge", "What is left of the trust window."),
    Metric(
        "members",
        "gauge",
        "Schedulers that are present, as a scheduler or an API process sees it; NaN: not known.",
    ),
    Metric("fenced_writes_total", "counter", "Writes refused since another owns the partition."),
    Metric("clock_skew_seconds", "gauge", "How far this machine's clock is ahead of PostgreSQL's."),
    Metric("relay_published_total", "counter", "Launches handed to Kafka."),
    Metric("relay_outstanding", "gauge", "Messages handed to Kafka and not yet acknowledged."),
    Metric("oldest_due_seconds", "gauge", "How long the oldest due launch waits to be published."),
    Metric("messages_lost_total", "counter", "Queued launches published again after a long wait."),
    Metric("claims_expired_total", "counter", "Claims whose worker was lost."),
    # Workers
    Metric("start_lag_seconds", "histogram", "From due to the first start.", (), LAG),
    Metric("launches_total", "counter", "Attempts that ended here, by outcome.", ("outcome",)),
    Metric("run_seconds", "histogram", "How long a run took.", ("kind",), RUN),
    Metric("runs_active", "gauge", "Runs under way in this worker."),
    Metric("webhook_calls_open", "gauge", "Webhook calls that are open."),
    Metric("webhook_circuits_open", "gauge", "Receivers that are left alone since they failed."),
    Metric("webhook_circuits_opened_total", "counter", "How often a receiver began to be so."),
    Metric("claims_total", "counter", "Messages answered at the claim.", ("outcome",)),
    Metric(
        "tenant_throttled_total",
        "counter",
        "Claims refused by a limit of a queue, a tenant or a concurrency key, or by a pause.",
        ("reason",),
    ),
    Metric("claims_extended_total", "counter", "Claims extended for runs that go on."),
    Metric("retries_total", "counter", "Failed attempts that will be tried again.", ("reason",)),
    Metric("stale_results_total", "counter", "Results whose claim was another's by then."),
    Metric(
        "runs_not_stopped_total",
        "counter",
        "Runs that go on long after their timeout: they are logged by name.",
        ("kind",),
    ),
    Metric("messages_undecodable_total", "counter", "Kafka messages that could not be read."),
    Metric(
        "task_loop_lag_seconds",
        "gauge",
        "How late the event loop of tasks, or the whole process, was at most in the last minute.",
    ),
    Metric("task_runs_overdue", "gauge", "Tasks that go on past their time limit."),
    Metric("consumer_lag", "gauge", "Messages not yet read by this worker.", ("topic",)),
    # Dead letters
    Metric("dead_letters_total", "counter", "Launches given up, by why.", ("reason",)),
    Metric(
        "dead_letters_waiting",
        "gauge",
        "Dead and abandoned launches, neither redriven nor purged, up to 100,000; told by the owner"
        " of partition 0, others show 0.",
    ),
    # Every process
    Metric("build_info", "gauge", "1, with the version and the service.", ("version", "service")),
    Metric(
        "synchronous_standby",
        "gauge",
        "Whether commits wait for a standby (1) or not (0).",
    ),
    Metric("server_up", "gauge", "Whether a server answers (1) or not (0).", ("server",)),
    Metric("loop_turns_total", "counter", "Turns of each loop.", ("loop",)),
    Metric("loop_errors_total", "counter", "Turns that failed by a bug.", ("loop",)),
    Metric("loop_turn_seconds", "histogram", "How long a turn took.", ("loop",), SHORT),
    # The API
    Metric("http_requests_total", "counter", "Requests answered.", ("method", "route", "status")),
    Metric(
        "jobs_overdue_seconds",
        "gauge",
        "How long the active job that is due longest waits for its launch or skip, whoever owns"
        " its partition or nobody; NaN: not known.",
    ),
    Metric(
        "queue_workers",
        "gauge",
        "Workers heard of in the last 20 s that serve a queue and do not drain; NaN: not known.",
        ("queue",),
    ),
    Metric("http_request_seconds", "histogram", "How long a request took.", ("route",), SHORT),
)


class PrometheusMetrics:
    """`tickrail.core.ports_metrics.Metrics` on a Prometheus registry of its own.

    Every metric of the table is there from the start; those without labels show 0.
    """

    def __init__(self, table: Iterable[Metric] = METRICS) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for m in table:
            name = PREFIX + m.name
            if m.kind == "counter":
                self._counters[m.name] = Counter(name, m.help, m.labels, registry=self.registry)
            elif m.kind == "gauge":
                self._gauges[m.name] = Gauge(name, m.help, m.labels, registry=self.registry)
            else:
                self._histograms[m.name] = Histogram(
                    name, m.help, m.labels, registry=self.registry, buckets=m.buckets
                )
        self._labelled = {m.name: frozenset(m.labels) for m in table}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        metric = self._counters[name]
        self._check(name, labels)
        (metric.labels(**labels) if labels else metric).inc(amount)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        metric = self._histograms[name]
        self._check(name, labels)
        (metric.labels(**labels) if labels else metric).observe(value)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        metric = self._gauges[name]
        self._check(name, labels)
        (metric.labels(**labels) if labels else metric).set(value)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition for this Accept header, and its content type."""
        encoder, kind = choose_encoder(accept)
        return encoder(self.registry), kind

    def _check(self, name: str, labels: dict[str, str]) -> None:
        if self._labelled[name] != labels.keys():
            wanted = ", ".join(sorted(self._labelled[name])) or "none"
            raise KeyError(f"{name}: labels are {sorted(labels)}; the table has {wanted}")


def metrics_table() -> str:
    """The table in Markdown, for the documentation."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for m in METRICS:
        labels = ", ".join(f"`{label}`" for label in m.labels)
        lines.append(f"| `{PREFIX}{m.name}` | {m.kind} | {labels} | {m.help} |")
    return "\n".join(lines) + "\n"

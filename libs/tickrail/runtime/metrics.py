"""The metrics of one process: the table's rows (`metrics_table.py`), and Prometheus behind them.

The only user of its client. A name or a label that is not in the table is a bug and raises
KeyError. A label never has more values than the table says: what is beyond is `other`, of a gauge
the sum or the least of it. A tenant is a label in a list of the busiest alone (`top_list.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from math import isnan, nan
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from tickrail.core.clock import Clock, SystemClock
from tickrail.runtime.metrics_table import METRICS, OTHER, PREFIX, TOP_TENANTS, Metric, bound_of
from tickrail.runtime.top_list import TopList

__all__ = ["METRICS", "PREFIX", "Metric", "PrometheusMetrics"]

_TENANT: Final = "tenant"
_RANK_EVERY: Final = 10.0
"""Seconds between two looks at who is busiest."""

Values = tuple[str, ...]


class _Family:
    """A row and its children, one for each combination of label values."""

    def __init__(self, row: Metric, registry: CollectorRegistry | None) -> None:
        self.row = row
        self.shown = registry is not None
        name = PREFIX + row.name
        self.collector: Counter | Gauge | Histogram
        if row.kind == "counter":
            self.collector = Counter(name, row.help, row.labels, registry=registry)
        elif row.kind == "gauge":
            self.collector = Gauge(name, row.help, row.labels, registry=registry)
        else:
            self.collector = Histogram(
                name, row.help, row.labels, registry=registry, buckets=row.buckets
            )
        self._most = tuple(bound_of(row, label).most for label in row.labels)
        self._seen: tuple[set[str], ...] = tuple(set() for _ in row.labels)
        self._children: dict[Values, Counter | Gauge | Histogram] = {}
        self._beyond: dict[Values, dict[Values, float]] = {}

    def tell(self, values: Values, value: float) -> None:
        """Set a gauge; one beyond its label's bound is told together with the others there."""
        found = self._children.get(values)
        bounded = values if found is not None else self._bounded(values)
        if OTHER not in bounded:
            self.child(values).set(value)  # type: ignore[union-attr] # a gauge by its kind
            return
        kept = self._beyond.get(bounded)
        if kept is None:
            kept = self._beyond.setdefault(bounded, {})
            other = self.collector.labels(*bounded)
            other.set_function(partial(self._together, kept))  # type: ignore[union-attr] # as above
        if isnan(value) or (value == 0 and self.row.together == "sum"):
            kept.pop(values, None)  # it adds nothing
        else:
            kept[values] = value

    def _together(self, kept: dict[Values, float]) -> float:
        found = list(kept.values())  # a copy: others may set meanwhile
        return sum(found) if self.row.together == "sum" else min(found, default=nan)

    def child(self, values: Values) -> Counter | Gauge | Histogram:
        """The child of these values; of one beyond its label's bound, that of `other`."""
        found = self._children.get(values)
        if found is not None:
            return found
        if not values:
            child = self.collector
        else:
            bounded = self._bounded(values)
            child = self.collector.labels(*bounded)
            if bounded != values:
                return child  # not kept: there is no end of such values
        self._children[values] = child
        return child

    def forget(self, label: str, gone: Iterable[str]) -> None:
        """Drop the children with these values of a label."""
        at = self.row.labels.index(label)
        gone = frozenset(gone)
        self._seen[at].difference_update(gone)
        for values in [v for v in self._children if v[at] in gone]:
            del self._children[values]
            self.collector.remove(*values)

    def _bounded(self, values: Values) -> Values:
        return tuple(map(self._within, values, self._seen, self._most))

    @staticmethod
    def _within(value: str, seen: set[str], most: int) -> str:
        if value not in seen and value != OTHER:
            if len(seen) >= most:
                return OTHER
            seen.add(value)
        return value


class PrometheusMetrics:
    """`tickrail.core.ports_metrics.Metrics` on a Prometheus registry of its own.

    Every metric that the service tells is there from the start, and those without labels show 0.
    One of another service is shown from the moment at which there is something to tell.

    Args:
        service: whose process this is; empty: every metric is there.
        table: the rows.
        trace: answers the id of the trace that the caller works for, or None: observations carry it
            as an exemplar.
        clock: measures when to look who is busiest.
    """

    def __init__(
        self,
        service: str = "",
        table: Iterable[Metric] = METRICS,
        *,
        trace: Callable[[], str | None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self._families: dict[tuple[str, str], _Family] = {}
        for row in table:
            shown = not service or service in row.told_by
            family = _Family(row, self.registry if shown else None)
            self._families[row.kind, row.name] = family
            if row.kind == "counter" and len(row.labels) == 1:
                for value in bound_of(row, row.labels[0]).start:
                    family.child((str(value),))
        self._trace = trace
        self._clock = clock or SystemClock()
        self._ranked_at = self._clock.monotonic()
        self._top = TopList(TOP_TENANTS, self._ranked_at)
        self._lock = threading.Lock()

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        child = self._child("counter", name, labels)
        child.inc(amount)  # type: ignore[union-attr] # a counter by its kind

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        child = self._child("histogram", name, labels)
        trace = self._trace() if self._trace is not None else None
        exemplar = {"trace_id": trace} if trace else None
        child.observe(value, exemplar)  # type: ignore[union-attr] # a histogram by its kind

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        family = self._family("gauge", name, labels)
        family.tell(tuple(labels[label] for label in family.row.labels), value)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition for this Accept header, and its content type."""
        self._rank()
        encoder, kind = choose_encoder(accept)
        return encoder(self.registry), kind

    def _family(self, kind: str, name: str, labels: dict[str, str]) -> _Family:
        family = self._families[kind, name]
        row = family.row
        if len(labels) != len(row.labels) or not all(label in labels for label in row.labels):
            wanted = ", ".join(sorted(row.labels)) or "none"
            raise KeyError(f"{name}: labels are {sorted(labels)}; the table has {wanted}")
        if not family.shown:
            with self._lock:
                if not family.shown:
                    self.registry.register(family.collector)
                    family.shown = True
        return family

    def _child(self, kind: str, name: str, labels: dict[str, str]) -> Counter | Gauge | Histogram:
        family = self._family(kind, name, labels)
        row = family.row
        if not labels:
            return family.child(())
        if _TENANT in labels:
            with self._lock:
                if not self._top.note(labels[_TENANT]):
                    labels = {**labels, _TENANT: OTHER}
                return family.child(tuple(labels[label] for label in row.labels))
        return family.child(tuple(labels[label] for label in row.labels))

    def _rank(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._ranked_at < _RANK_EVERY:
                return
            self._ranked_at = now
            gone = self._top.rank(now)
            for family in self._families.values():
                if gone and _TENANT in family.row.labels:
                    family.forget(_TENANT, gone)

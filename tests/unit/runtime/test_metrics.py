from __future__ import annotations

import ast
from math import isnan, nan
from pathlib import Path

import pytest
from tests.support.clock import FakeClock

import tickrail
from tickrail.runtime.metrics import METRICS, Metric, PrometheusMetrics
from tickrail.runtime.metrics_table import TOP_TENANTS, bound_of

ROOT = Path(tickrail.__file__).parents[2]


def calls() -> list[tuple[str, str, str, frozenset[str] | None]]:
    """Each use of a metric in the code: file, method, name, labels (None: made at run time)."""
    found = []
    for folder in ("libs", "services"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in {"count", "observe", "gauge"}
                    and "metrics" in ast.unparse(node.func.value)
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                ):
                    names = {k.arg for k in node.keywords} - {"amount"}
                    labels = None if None in names else frozenset(map(str, names))
                    where = f"{file.name}:{node.lineno}"
                    found.append((where, node.func.attr, str(node.args[0].value), labels))
    return found


def test_every_metric_in_the_code_is_in_the_table() -> None:
    kinds = {"count": "counter", "observe": "histogram", "gauge": "gauge"}
    table = {(m.kind, m.name): frozenset(m.labels) for m in METRICS}
    used = calls()
    assert len(used) > 10
    missing = [
        (where, name)
        for where, method, name, labels in used
        if (known := table.get((kinds[method], name))) is None or labels not in (None, known)
    ]
    assert missing == []


def test_counts_observes_and_sets() -> None:
    metrics = PrometheusMetrics()
    metrics.count("launches_total", outcome="succeeded")
    metrics.count("launches_total", 2, outcome="succeeded")
    metrics.observe("schedule_lag_seconds", 0.02)
    metrics.gauge("partitions_owned", 4)
    body, kind = metrics.render()
    text = body.decode()
    assert 'tickrail_launches_total{outcome="succeeded"} 3.0' in text
    assert 'tickrail_schedule_lag_seconds_bucket{le="0.025"} 1.0' in text
    assert "tickrail_partitions_owned 4.0" in text
    assert "_created" not in text
    assert kind.startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "name", "labels"),
    [
        ("count", "nothing_total", {}),
        ("gauge", "launches_total", {"outcome": "x"}),
        ("count", "launches_total", {}),
        ("count", "launches_total", {"result": "x"}),
        ("gauge", "partitions_owned", {"tenant": "x"}),
    ],
)
def test_a_name_or_label_outside_the_table_is_a_bug(
    method: str, name: str, labels: dict[str, str]
) -> None:
    with pytest.raises(KeyError):
        getattr(PrometheusMetrics(), method)(name, 1, **labels)


def test_two_registries_do_not_meet() -> None:
    first, second = PrometheusMetrics(), PrometheusMetrics()
    first.count("fenced_writes_total")
    assert b"tickrail_fenced_writes_total 0.0" in second.render()[0]


def test_each_metric_has_a_help_a_service_and_bounds() -> None:
    assert all(m.help.endswith(".") for m in METRICS)
    assert all(bool(m.buckets) == (m.kind == "histogram") for m in METRICS)
    assert all(set(m.told_by) for m in METRICS)
    assert all(bound_of(m, label).most > 0 for m in METRICS for label in m.labels)
    assert {m.name for m in METRICS if "tenant" in m.labels} == {
        m.name
        for m in METRICS
        if m.name.startswith("tenant_") and m.name != "tenant_throttled_total"
    }


@pytest.mark.parametrize("name", ["schedule_lag_seconds", "start_lag_seconds", "run_seconds"])
def test_a_histogram_can_show_ten_milliseconds_and_an_hour(name: str) -> None:
    buckets = next(m.buckets for m in METRICS if m.name == name)
    assert {0.01, 3600} <= set(buckets)


def lines(metrics: PrometheusMetrics, name: str) -> dict[str, float]:
    """The samples of a metric: the labels as they are shown -> the value."""
    found = {}
    for line in metrics.render()[0].decode().splitlines():
        if line.startswith(f"tickrail_{name}{{"):
            labels, value = line.removeprefix(f"tickrail_{name}").rsplit(" ", 1)
            found[labels] = float(value)
    return found


def test_a_label_has_no_more_values_than_the_table_says() -> None:
    metrics = PrometheusMetrics()
    for n in range(10):
        metrics.count("notices_total", outcome=f"o{n}")
    found = lines(metrics, "notices_total")
    assert len(found) == 4
    assert found['{outcome="other"}'] == 7
    metrics.count("notices_total", outcome="o0")
    assert lines(metrics, "notices_total")['{outcome="o0"}'] == 2


def test_what_is_beyond_a_gauges_bound_is_summed() -> None:
    metrics = PrometheusMetrics()
    for n in range(1000):
        metrics.gauge("launches_queued", n, queue=f"q{n}")
    found = lines(metrics, "launches_queued")
    assert len(found) == 201
    assert found['{queue="other"}'] == sum(range(200, 1000))
    metrics.gauge("launches_queued", 0, queue="q999")
    metrics.gauge("launches_queued", 5, queue="q998")
    metrics.gauge("launches_queued", 7, queue="q7")
    found = lines(metrics, "launches_queued")
    assert found['{queue="other"}'] == sum(range(200, 998)) + 5
    assert sum(found.values()) == sum(range(998)) + 5
    metrics.gauge("launches_queued", 3, queue="other")
    assert lines(metrics, "launches_queued")['{queue="other"}'] == sum(range(200, 998)) + 8


def test_of_workers_of_queues_beyond_the_bound_the_fewest_are_told() -> None:
    metrics = PrometheusMetrics()
    for n in range(300):
        metrics.gauge("queue_workers", 4, queue=f"q{n}")
    metrics.gauge("queue_workers", 0, queue="q250")
    metrics.gauge("queue_workers", 2, queue="q299")
    assert lines(metrics, "queue_workers")['{queue="other"}'] == 0
    metrics.gauge("queue_workers", nan, queue="q250")  # it is gone
    assert lines(metrics, "queue_workers")['{queue="other"}'] == 2
    for n in range(200, 300):
        metrics.gauge("queue_workers", nan, queue=f"q{n}")
    assert isnan(lines(metrics, "queue_workers")['{queue="other"}'])


def test_the_busiest_tenants_are_named_and_the_rest_is_together() -> None:
    clock = FakeClock()
    metrics = PrometheusMetrics(clock=clock)
    for n in range(TOP_TENANTS):
        metrics.count("tenant_starts_total", tenant=f"first-{n}")
    for _ in range(50):
        metrics.count("tenant_starts_total", tenant="busy")
    before = lines(metrics, "tenant_starts_total")
    assert len(before) == TOP_TENANTS + 1
    assert before['{tenant="other"}'] == 50
    clock.advance(15)
    metrics.render()
    metrics.count("tenant_starts_total", tenant="busy")
    after = lines(metrics, "tenant_starts_total")
    assert len(after) == TOP_TENANTS + 1
    assert after['{tenant="busy"}'] == 1
    assert after['{tenant="other"}'] == 50


def test_a_thousand_tenants_do_not_make_a_thousand_lines() -> None:
    clock = FakeClock()
    metrics = PrometheusMetrics(clock=clock)
    for n in range(20_000):
        metrics.count("tenant_launches_total", tenant=f"t{n % 1000}", outcome="succeeded")
        if n % 1000 == 0:
            clock.advance(11)
            metrics.render()
    found = lines(metrics, "tenant_launches_total")
    assert len(found) <= TOP_TENANTS + 1


def test_a_process_shows_what_its_service_tells() -> None:
    metrics = PrometheusMetrics("worker")
    text = metrics.render()[0].decode()
    assert "tickrail_runs_active 0.0" in text
    assert "partitions_owned" not in text
    metrics.gauge("partitions_owned", 3)
    assert "tickrail_partitions_owned 3.0" in metrics.render()[0].decode()


def test_an_observation_carries_its_trace() -> None:
    metrics = PrometheusMetrics(trace=lambda: "4bf92f3577b34da6a3ce929d0e0e4736")
    metrics.observe("start_lag_seconds", 0.02)
    body, kind = metrics.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert '# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.02' in body.decode()


def test_a_table_with_a_label_without_a_bound_is_refused() -> None:
    with pytest.raises(KeyError):
        PrometheusMetrics(table=[Metric("x_total", "counter", "X.", ("api",), ("unbounded",))])


def test_what_may_be_counted_is_shown_as_nothing_so_that_the_first_one_is_a_rise() -> None:
    metrics = PrometheusMetrics("scheduler")
    assert lines(metrics, "slots_skipped_total")['{reason="misfire"}'] == 0
    assert lines(metrics, "dead_letters_total")['{reason="too_large"}'] == 0
    assert lines(metrics, "tenant_throttled_total")['{reason="quota"}'] == 0
    assert lines(metrics, "runs_not_stopped_total") == {}, "told by workers alone"
    for m in METRICS:
        for label in m.labels:
            assert len(bound_of(m, label).start) <= bound_of(m, label).most

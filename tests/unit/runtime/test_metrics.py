from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tickrail
from tickrail.runtime.metrics import METRICS, PrometheusMetrics, metrics_table

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


def test_each_metric_has_a_help_and_a_row_and_no_tenant() -> None:
    assert all(m.help.endswith(".") for m in METRICS)
    assert all("tenant" not in m.labels for m in METRICS)
    assert all(bool(m.buckets) == (m.kind == "histogram") for m in METRICS)
    assert len(metrics_table().splitlines()) == len(METRICS) + 2

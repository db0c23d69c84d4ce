"""The dashboards: every query parses, names what there is, and no two panels are the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.dashboards import DASHBOARDS
from docs.panels import Dashboard, Panel, dashboard_json, within_namespace
from tests.support.prometheus import concrete, queries_that_do_not_parse
from tests.support.tree import ROOT

from tickrail.runtime.metrics import METRICS, PREFIX
from tickrail.runtime.metrics_table import bound_of

FILES = sorted((ROOT / "helm/tickrail/dashboards").glob("*.json"))
NAMED = re.compile(rf"\b{PREFIX}(\w+)(?:\{{([^}}]*)\}})?")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
ENDS = ("_bucket", "_sum", "_count")
KNOWN = {m.name: m for m in METRICS} | {
    f"{m.name}{end}": m for m in METRICS if m.kind == "histogram" for end in ENDS
}
FROM_SCRAPES = {"namespace", "instance", "le"}


def panels(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["panels"]
    return found


def queries(file: Path) -> list[tuple[str, str, str]]:
    """Where, the query, the legend."""
    return [
        (f"{file.stem}: {panel['title']}", target["expr"], target["legendFormat"])
        for panel in panels(file)
        for target in panel["targets"]
    ]


def strangers(where: str, expr: str, legend: str = "") -> list[str]:
    """What a query names that is not there: metrics, labels."""
    found = []
    labels = set(FROM_SCRAPES)
    for name, given in NAMED.findall(expr):
        metric = KNOWN.get(name)
        if metric is None:
            found.append(f"{where}: no metric {name}")
            continue
        labels |= set(metric.labels)
        chosen = re.findall(r"(\w+)\s*[=!]", given)
        found += [
            f"{where}: {name} has no {x}" for x in chosen if x not in {*metric.labels, "namespace"}
        ]
    used = {x.strip() for group in GROUPED.findall(expr) for x in group.split(",")}
    used |= set(re.findall(r"\{\{(\w+)\}\}", legend))
    return found + [f"{where}: no label {x}" for x in used - labels - {""}]


def test_there_are_six_and_their_files_are_theirs() -> None:
    assert {d.uid for d in DASHBOARDS} == {f.stem for f in FILES}
    assert len(FILES) == 6


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_query_names_what_there_is(file: Path) -> None:
    assert [s for q in queries(file) for s in strangers(*q)] == []


def test_every_query_parses() -> None:
    exprs = [concrete(expr) for file in FILES for _, expr, _ in queries(file)]
    assert len(exprs) > 70
    assert queries_that_do_not_parse(exprs) == []


def test_a_query_that_does_not_parse_is_seen() -> None:
    assert queries_that_do_not_parse(["up", "sum(up"]) == ["sum(up"]


@pytest.mark.parametrize(
    "expr",
    [
        "tickrail_nothing_total",
        'tickrail_members{tenant="x"}',
        "sum by (tenant) (tickrail_members)",
        "tickrail_run_seconds",
        "max by (queue) (tickrail_consumer_lag)",
    ],
)
def test_a_slip_in_a_query_would_be_seen(expr: str) -> None:
    known = {m.name for m in METRICS if m.kind == "histogram"}
    bare = {f"{n}: a histogram has no value" for n in known if re.search(rf"{PREFIX}{n}\b", expr)}
    assert strangers("here", expr) or bare


def test_what_is_recorded_is_asked_for_by_its_name() -> None:
    rules = yaml.safe_load((ROOT / "helm/tickrail/rules/objectives.yaml").read_text())
    records = {r["record"] for g in rules["groups"] for r in g["rules"] if "record" in r}
    asked = {
        name
        for file in FILES
        for _, expr, _ in queries(file)
        for name in re.findall(r"tickrail:[\w:]+", expr)
    }
    assert asked
    assert asked <= records


def test_every_metric_of_ours_is_bound_to_the_chosen_namespace() -> None:
    for file in FILES:
        for where, expr, _ in queries(file):
            ours = re.findall(r"\btickrail[_:][\w:]+(\{[^}]*\})?", expr)
            assert all('namespace=~"$namespace"' in labels for labels in ours), where
    assert (
        within_namespace('sum(tickrail_a{x="1"}) / tickrail:b:rate5m')
        == 'sum(tickrail_a{x="1",namespace=~"$namespace"})'
        ' / tickrail:b:rate5m{namespace=~"$namespace"}'
    )


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.uid)
def test_panels_have_an_id_a_meaning_and_a_place_of_their_own(dashboard: Dashboard) -> None:
    assert len({p.id for p in dashboard.panels}) == len(dashboard.panels)
    assert all(p.what.endswith(".") and p.queries for p in dashboard.panels)
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(json.dumps(dashboard_json(dashboard)))["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        taken |= cells


def test_tenants_are_said_to_be_told_by_id() -> None:
    (page,) = (d for d in DASHBOARDS if d.uid == "tickrail-tenant")
    assert "by id (`tickrail tenants list`)" in page.what
    for metric in METRICS:
        if "tenant" in metric.labels:
            assert bound_of(metric, "tenant").values.startswith("the ids of the tenants")


def test_a_panel_that_does_not_fit_begins_a_row() -> None:
    wide = [Panel(n, f"p{n}", "stat", {"x": "up"}, "X.", width=15, height=n) for n in (1, 2, 3)]
    made: Any = dashboard_json(Dashboard("d", "D", "D.", tuple(wide)))
    assert [p["gridPos"]["y"] for p in made["panels"]] == [0, 1, 3]

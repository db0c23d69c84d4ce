"""Grafana dashboards as values: panels with their queries, and the JSON that is made of them.

`dashboards.py` holds the dashboards, `tables.py` writes the files. A query names our metrics bare:
each is given the label of the chosen namespace here. A panel's id never changes, since alerts link
to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

RATE: Final = "[$__rate_interval]"
"""The window of a rate, which Grafana fits to the scrapes and the width of the picture."""
NAMESPACE: Final = 'namespace=~"$namespace"'
_METRIC: Final = re.compile(r"\btickrail[_:][\w:]+(\{[^}]*\})?")
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24

Kind = Literal["stat", "timeseries", "table", "matrix", "heatmap", "bargauge"]


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        id: fixed for ever in its dashboard.
        title: what is seen.
        kind: how.
        queries: where it is from, by what the lines are called; `{{label}}` is a label's value.
        what: what it means, and what is normal.
        unit: Grafana's name of the unit.
        width, height: in the 24 columns of a row, and in rows.
        alerts: the alerts that lead here.
        bad: from this value on it is shown red; `low`: from this value down.
        stacked: whether the lines are put on one another.
    """

    id: int
    title: str
    kind: Kind
    queries: Mapping[str, str]
    what: str
    unit: str = "short"
    width: int = 12
    height: int = 8
    alerts: tuple[str, ...] = ()
    bad: float | None = None
    low: bool = False
    stacked: bool = False

    @property
    def instant(self) -> bool:
        """Whether only the last value is asked for."""
        return self.kind in {"table", "matrix", "bargauge"}


@dataclass(frozen=True)
class Variable:
    """A choice at the head of a dashboard: the values of a label of a metric."""

    name: str
    label: str
    metric: str
    many: bool = True


@dataclass(frozen=True)
class Dashboard:
    """One page; `uid` is the end of its address and the name of its file."""

    uid: str
    title: str
    what: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()
    since: str = "now-3h"


def quantiles(metric: str, by: str = "", *, where: str = "") -> dict[str, str]:
    """The median and the 99th percentile of a histogram, for each value of a label."""
    legend = f"{{{{{by}}}}} " if by else ""
    group = f"{by}, le" if by else "le"
    buckets = f"sum by ({group}) (rate(tickrail_{metric}_bucket{where}{RATE}))"
    return {f"{legend}p{int(q * 100)}": f"histogram_quantile({q}, {buckets})" for q in (0.5, 0.99)}


def rate(metric: str, by: str = "", *, where: str = "") -> str:
    """How often a second something is counted, for each value of labels."""
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate(tickrail_{metric}{where}{RATE}))"


def within_namespace(expr: str) -> str:
    """The query for the chosen namespace alone."""

    def chosen(found: re.Match[str]) -> str:
        name = found[0].split("{")[0]
        labels = [x for x in [(found[1] or "{}")[1:-1], NAMESPACE] if x]
        return f"{name}{{{','.join(labels)}}}"

    return _METRIC.sub(chosen, expr)


def targets(panel: Panel) -> list[dict[str, object]]:
    """The queries as Grafana keeps them."""
    return [
        {
            "refId": chr(ord("A") + n),
            "datasource": _SOURCE,
            "expr": within_namespace(expr),
            "legendFormat": legend,
            "range": not panel.instant,
            "instant": panel.instant,
            "format": _format(panel.kind),
        }
        for n, (legend, expr) in enumerate(panel.queries.items())
    ]


def _format(kind: Kind) -> str:
    if kind == "heatmap":
        return "heatmap"
    return "table" if kind in {"table", "matrix"} else "time_series"


def _steps(panel: Panel) -> list[dict[str, object]]:
    if panel.bad is None:
        return [{"color": "green", "value": None}]
    first, then = ("red", "green") if panel.low else ("green", "red")
    return [{"color": first, "value": None}, {"color": then, "value": panel.bad}]


def _custom(panel: Panel) -> dict[str, object]:
    if panel.kind == "timeseries":
        return {
            "drawStyle": "line",
            "fillOpacity": 25 if panel.stacked else 5,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if panel.bad is not None else "off"},
        }
    if panel.kind == "matrix":
        return {"cellOptions": {"type": "color-background"}, "align": "center"}
    return {}


def _options(panel: Panel) -> dict[str, object]:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    options: dict[Kind, dict[str, object]] = {
        "stat": {"reduceOptions": last, "colorMode": "background", "graphMode": "area"},
        "bargauge": {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"},
        "timeseries": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "heatmap": {
            "calculate": False,
            "yAxis": {"unit": panel.unit},
            "tooltip": {"mode": "single"},
        },
        "table": {"showHeader": True},
        "matrix": {"showHeader": True, "cellHeight": "sm"},
    }
    return options[panel.kind]


def _transformations(panel: Panel) -> list[dict[str, object]]:
    if panel.kind == "matrix":
        return [
            {
                "id": "groupingToMatrix",
                "options": {"columnField": "minute", "rowField": "hour", "valueField": "Value"},
            }
        ]
    if panel.kind == "table":
        return [{"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True}}}]
    return []


def panel_json(panel: Panel, place: Mapping[str, int]) -> dict[str, object]:
    """A panel as Grafana keeps it."""
    defaults: dict[str, object] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "custom": _custom(panel),
    }
    if panel.kind == "matrix":
        defaults["color"] = {"mode": "continuous-BlYlRd"}
    made: dict[str, object] = {
        "id": panel.id,
        "type": "table" if panel.kind == "matrix" else panel.kind,
        "title": panel.title,
        "description": panel.what,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": targets(panel),
        "links": [
            {
                "title": f"Runbook of {alert}",
                "url": f"${{runbooks}}/{alert}.md",
                "targetBlank": True,
            }
            for alert in panel.alerts
        ],
    }
    if found := _transformations(panel):
        made["transformations"] = found
    return made


def _placed(panels: Iterable[Panel]) -> list[dict[str, object]]:
    """The panels from left to right, a new row where one does not fit."""
    made, x, y, height = [], 0, 0, 0
    for panel in panels:
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        made.append(panel_json(panel, place))
        x, height = x + panel.width, max(height, panel.height)
    return made


def _variables(found: Sequence[Variable]) -> list[dict[str, Any]]:
    source: dict[str, Any] = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    # Where the pages of docs/runbooks are to be found; set it to where you publish them.
    runbooks: dict[str, Any] = {
        "name": "runbooks",
        "type": "constant",
        "query": "docs/runbooks",
        "current": {"text": "docs/runbooks", "value": "docs/runbooks"},
        "hide": 2,
    }
    chosen = [
        {
            "name": v.name,
            "label": v.label,
            "type": "query",
            "datasource": _SOURCE,
            "definition": f"label_values({v.metric}, {v.name})",
            "query": {"query": f"label_values({v.metric}, {v.name})", "refId": v.name},
            "refresh": 2,
            "sort": 1,
            "multi": v.many,
            "includeAll": v.many,
            **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if v.many else {}),
        }
        for v in (Variable("namespace", "Installation", "tickrail_build_info"), *found)
    ]
    return [source, runbooks, *chosen]


def dashboard_json(dashboard: Dashboard) -> dict[str, object]:
    """A dashboard as Grafana keeps it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.what,
        "tags": ["tickrail"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": dashboard.since, "to": "now"},
        "timezone": "utc",
        "templating": {"list": _variables(dashboard.variables)},
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": _SOURCE,
                    "enable": True,
                    "iconColor": "red",
                    "expr": 'ALERTS{alertname=~"Tickrail.*",alertstate="firing"}',
                    "titleFormat": "{{alertname}}",
                }
            ]
        },
        "links": [
            {
                "title": "Tickrail",
                "type": "dashboards",
                "tags": ["tickrail"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": _placed(dashboard.panels),
    }

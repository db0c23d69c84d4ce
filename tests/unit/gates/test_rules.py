"""The alert rules name metrics that exist, and say what is wrong and what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from tests.support.tree import ROOT

from tickrail.runtime.metrics import METRICS, PREFIX

RULES = ROOT / "helm/tickrail/rules/tickrail.yaml"
TESTS = ROOT / "helm/tickrail/rules/tickrail.test.yaml"
NAMED = re.compile(rf"\b{PREFIX}(\w+)")
LABELLED = re.compile(rf"\b{PREFIX}(\w+)\{{([^}}]*)\}}")
DURATION = re.compile(r"\d+[smh]")
KNOWN = {m.name: m for m in METRICS} | {
    f"{m.name}{end}": m
    for m in METRICS
    if m.kind == "histogram"
    for end in ("_bucket", "_sum", "_count")
}
WANTED = {
    "TickrailPartitionsUnowned": "partitions_unowned",
    "TickrailLeaseLow": "lease_remaining_seconds",
    "TickrailFencedWrites": "fenced_writes_total",
    "TickrailClockSkew": "clock_skew_seconds",
    "TickrailScheduleLag": "schedule_lag_seconds_bucket",
    "TickrailJobsOverdue": "jobs_overdue_seconds",
    "TickrailNotRead": "consumer_lag",
    "TickrailSchedulerAbsent": "build_info",
}


def alerts(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def mistakes(rule: dict[str, Any]) -> list[str]:
    """What is wrong with one rule."""
    name, expr = rule["alert"], rule["expr"]
    found = [f"{name}: no metric {m}" for m in NAMED.findall(expr) if m not in KNOWN]
    for metric, labels in LABELLED.findall(expr):
        given = re.findall(r"(\w+)\s*[=!]", labels)
        if metric in KNOWN:
            found += [
                f"{name}: {metric} has no {g}" for g in given if g not in KNOWN[metric].labels
            ]
    if not NAMED.search(expr):
        found.append(f"{name}: no metric of ours")
    if rule.get("labels", {}).get("severity") not in {"critical", "warning"}:
        found.append(f"{name}: severity")
    found += [
        f"{name}: {n}" for n in ("summary", "description") if not rule.get("annotations", {}).get(n)
    ]
    if not name.startswith("Tickrail") or not DURATION.fullmatch(rule.get("for", "0s")):
        found.append(f"{name}: name or duration")
    return found


def test_each_rule_is_sound() -> None:
    rules = alerts(RULES.read_text())
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names))
    assert [m for rule in rules for m in mistakes(rule)] == []


def test_the_rules_that_must_be_there_are() -> None:
    found = {rule["alert"]: rule for rule in alerts(RULES.read_text())}
    assert {n for n, m in WANTED.items() if PREFIX + m not in found[n]["expr"]} == set()
    assert found["TickrailPartitionsUnowned"]["for"] == "30s"


def test_each_rule_has_a_test() -> None:
    tested = yaml.safe_load(TESTS.read_text())
    fired = {
        case["alertname"]
        for group in tested["tests"]
        for case in group["alert_rule_test"]
        if case["exp_alerts"]
    }
    silent = {rule["alert"] for rule in alerts(RULES.read_text())} - fired
    assert silent == {"TickrailSchedulerAbsent", "TickrailApiAbsent"}, "one of three that are alike"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tickrail_partitions_unowned", "tickrail_partitions_unknown"),
        ('service="worker"', 'kind="worker"'),
        ("severity: critical", "severity: high"),
        ("summary:", "title:"),
        ("for: 30s", "for: a while"),
    ],
)
def test_a_slip_would_be_seen(old: str, new: str) -> None:
    text = RULES.read_text()
    assert old in text
    assert [m for rule in alerts(text.replace(old, new)) for m in mistakes(rule)] != []

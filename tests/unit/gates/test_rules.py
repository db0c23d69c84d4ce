"""The rules name metrics that exist, say what is wrong, and lead to a panel and a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.support.prometheus import promtool
from tests.support.tree import ROOT

from tickrail.runtime.metrics import METRICS, PREFIX
from tickrail_cli.main import cli

RULES = ROOT / "helm/tickrail/rules/tickrail.yaml"
TESTS = sorted(RULES.parent.glob("*.test.yaml"))
FILES = sorted(set(RULES.parent.glob("*.yaml")) - set(TESTS))
RUNBOOKS = ROOT / "docs/runbooks"
SECTIONS = ["What it means", "What users feel", "What to look at", "What to do"]
RECORDED = re.compile(r"\btickrail:[\w:]+")
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


def rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def alerts(text: str) -> list[dict[str, Any]]:
    return [rule for rule in rules(text) if "alert" in rule]


def every(kind: str) -> list[dict[str, Any]]:
    """All rules of a kind, of all files."""
    return [rule for file in FILES for rule in rules(file.read_text()) if kind in rule]


RECORDS = {rule["record"] for rule in every("record")}


def strangers(name: str, expr: str) -> list[str]:
    """What a query names that is not there."""
    return [f"{name}: no metric {m}" for m in NAMED.findall(expr) if m not in KNOWN] + [
        f"{name}: nothing records {r}" for r in RECORDED.findall(expr) if r not in RECORDS
    ]


def mistakes(rule: dict[str, Any]) -> list[str]:
    """What is wrong with one rule."""
    name, expr = rule["alert"], rule["expr"]
    found = strangers(name, expr)
    for metric, labels in LABELLED.findall(expr):
        given = re.findall(r"(\w+)\s*[=!]", labels)
        if metric in KNOWN:
            found += [
                f"{name}: {metric} has no {g}" for g in given if g not in KNOWN[metric].labels
            ]
    if not NAMED.search(expr) and not RECORDED.search(expr):
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
    names = [rule["alert"] for rule in every("alert")]
    assert len(names) == len(set(names)) > 40
    assert [m for rule in every("alert") for m in mistakes(rule)] == []
    assert [m for rule in every("record") for m in strangers(rule["record"], rule["expr"])] == []


def test_the_rules_that_must_be_there_are() -> None:
    found = {rule["alert"]: rule for rule in alerts(RULES.read_text())}
    assert {n for n, m in WANTED.items() if PREFIX + m not in found[n]["expr"]} == set()
    assert found["TickrailPartitionsUnowned"]["for"] == "30s"


def test_each_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fired, quiet = set(), set()
    for file in TESTS:
        for group in yaml.safe_load(file.read_text())["tests"]:
            for case in group["alert_rule_test"]:
                (fired if case["exp_alerts"] else quiet).add(case["alertname"])
    names = {rule["alert"] for rule in every("alert")}
    assert names - fired == set()
    assert names - quiet == set()


def promtool_says(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool(), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_prometheus_takes_the_rules_and_their_tests_pass() -> None:
    checked = promtool_says("check", "rules", *(f.name for f in FILES), folder=RULES.parent)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool_says("test", "rules", *(f.name for f in TESTS), folder=RULES.parent)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert (tested.stdout + tested.stderr).count("SUCCESS") == len(TESTS)


def test_a_rule_that_fires_too_late_fails_its_test(tmp_path: Path) -> None:
    for file in (*FILES, *TESTS):
        text = file.read_text()
        (tmp_path / file.name).write_text(text.replace("for: 30s", "for: 10m"))
    assert promtool_says("test", "rules", "tickrail.test.yaml", folder=tmp_path).returncode != 0


def panels() -> dict[str, dict[str, Any]]:
    """The panels of the dashboards by the path under which Grafana shows each alone."""
    return {
        f"/d/{dashboard['uid']}?viewPanel={panel['id']}": panel
        for file in (ROOT / "helm/tickrail/dashboards").glob("*.json")
        for dashboard in [json.loads(file.read_text())]
        for panel in dashboard["panels"]
    }


def test_each_alert_leads_to_a_panel_and_the_panel_to_its_runbook() -> None:
    found = panels()
    for rule in every("alert"):
        name, says = rule["alert"], rule["annotations"]
        panel = found[says["dashboard"]]
        assert f"${{runbooks}}/{name}.md" in [link["url"] for link in panel["links"]], name
        assert says["runbook"] == f"docs/runbooks/{name}.md"
        assert says["dashboard"] in (RUNBOOKS / f"{name}.md").read_text(), name
    led = [link["url"] for panel in found.values() for link in panel["links"]]
    assert sorted(led) == sorted(f"${{runbooks}}/{r['alert']}.md" for r in every("alert"))


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == {r["alert"] for r in every("alert")}
    for file in RUNBOOKS.glob("*.md"):
        text = file.read_text()
        parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
        assert parts[0::2][:4] == SECTIONS, file.name
        assert all(len(part.strip()) > 5 for part in parts[1::2]), file.name
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        assert [link for link in links if not (file.parent / link).exists()] == [], file.name


SHOWN = re.compile(r"`tickrail ((?:[a-z-]+ ?)+)([^`]*)`")


def commands_that_are_not_there(text: str) -> list[str]:
    """Commands and options of ours that a page shows and that do not exist."""
    missing = []
    for words, rest in SHOWN.findall(text):
        command: click.Command | None = cli
        for word in words.split():
            if isinstance(command, click.Group):
                command = command.get_command(click.Context(command), word)
        if command is None or isinstance(command, click.Group):
            missing.append(f"tickrail {words}")
            continue
        known = {name for p in command.params for name in p.opts}
        missing += [
            f"tickrail {words}{option}"
            for option in re.findall(r"--[a-z-]+", f"{words} {rest}")
            if option not in known
        ]
    return missing


def test_every_command_in_a_runbook_exists() -> None:
    pages = [file.read_text() for file in RUNBOOKS.glob("*.md")]
    assert sum(len(SHOWN.findall(page)) for page in pages) > 20
    assert [missing for page in pages for missing in commands_that_are_not_there(page)] == []
    said = "`tickrail system nobody` and `tickrail launches list --nothing X`"
    assert len(commands_that_are_not_there(said)) == 2


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

"""What an operator sees: a real Prometheus that scrapes `tickrail up` has data for every panel."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import certifi
import pytest
from tests.support.prometheus import Prometheus, concrete
from tests.support.running import Running, data_folder
from tests.support.tree import ROOT
from tests.support.until import until

from tickrail.runtime.metrics import METRICS, PREFIX

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SEEN_WITHIN = 90.0
RULES = ROOT / "helm/tickrail/rules"
PANELS = [
    (f"{file.stem}: {panel['title']}", target["expr"])
    for file in sorted((ROOT / "helm/tickrail/dashboards").glob("*.json"))
    for panel in json.loads(file.read_text())["panels"]
    for target in panel["targets"]
]
SHELL: dict[str, Any] = {"schedule": {"every": "1s"}, "retry": {"max_attempts": 2, "initial": "1s"}}
JOBS = {
    "good": "true",
    "bad": "exit 3",
    "slow": "sleep 2",  # longer than to its next slot, which is skipped then
}


@dataclass
class Seen:
    up: Running
    prometheus: Prometheus


def targets(up: Running) -> dict[str, str]:
    """Where each process has told that its status is."""
    told = [json.loads(line) for line in list(up.lines) if '"serving"' in line]
    return {line["process"]: line["status"].removeprefix("http://") for line in told}


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with data_folder() as folder:
        # The certificates of public authorities stand for an installation's own.
        (folder / "tickrail.toml").write_text(f'webhook_ca_file = "{certifi.where()}"\n')
        rules = {
            f.name: f.read_text().replace("interval: 30s", "interval: 1s")
            for f in RULES.glob("*[!t].yaml")
        }
        place = folder / "prometheus"
        place.mkdir()
        with Running(folder) as up, Prometheus(place, rules) as prometheus:
            until(lambda: len(targets(up)) == 6, 60)
            prometheus.scrape(targets(up))
            with up.client() as client:
                for name, shell in JOBS.items():
                    document = {**SHELL, "name": name, "target": {"command": {"shell": shell}}}
                    client.request("POST", "/v1/jobs", json=document)
            yield Seen(up, prometheus)


def without_data(prometheus: Prometheus) -> list[str]:
    """The panels whose queries find nothing, or not one number."""
    return [
        f"{where}: {expr}"
        for where, expr in PANELS
        if not any(
            not math.isnan(float(sample["value"][1])) for sample in prometheus.query(concrete(expr))
        )
    ]


def test_every_query_of_every_panel_returns_data(seen: Seen) -> None:
    def all_there() -> bool:
        with seen.up.client() as client:
            client.request("GET", "/v1/jobs")
        return not without_data(seen.prometheus)

    try:
        until(all_there, SEEN_WITHIN, every=1.0)
    except AssertionError:
        assert without_data(seen.prometheus) == []


def test_every_rule_is_evaluated_and_what_is_well_does_not_alarm(seen: Seen) -> None:
    def evaluated() -> bool:
        return all(rule["health"] == "ok" for rule in seen.prometheus.rules())

    until(evaluated, SEEN_WITHIN, every=1.0)
    assert len(seen.prometheus.rules()) > 60
    until(lambda: "TickrailDeadLetters" in seen.prometheus.firing(), SEEN_WITHIN, every=1.0)
    assert seen.prometheus.firing() <= {"TickrailDeadLetters"}


def test_each_service_tells_what_the_table_says(seen: Seen) -> None:
    told: dict[str, set[str]] = {}
    for sample in seen.prometheus.query("tickrail_build_info"):
        of, instance = sample["metric"]["service"], sample["metric"]["instance"]
        found = seen.prometheus.query(f'{{instance="{instance}",__name__=~"tickrail_.+"}}')
        told.setdefault(of, set()).update(s["metric"]["__name__"] for s in found)
    assert set(told) == {"api", "scheduler", "worker", "watchdog"}
    for m in METRICS:
        name = f"{PREFIX}{m.name}" + ("_count" if m.kind == "histogram" else "")
        tellers = {service for service, names in told.items() if name in names}
        assert tellers <= set(m.told_by), name
        if not m.labels:
            assert tellers == set(m.told_by), name

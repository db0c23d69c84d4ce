"""Prometheus and its tool, as tests run them.

Those on the PATH, or Debian's package unpacked once, without root.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
import yaml
from tests.support.until import until

from tickrail.local.jars import cache_dir
from tickrail.local.ports import any_free

_CHOSEN = {
    "$__rate_interval": "1m",
    "$namespace": ".*",
    "$tenant": ".*",
}
_START_WITHIN = 30.0


def promtool() -> str:
    """The program that checks rules and runs their tests."""
    return _program("promtool")


@cache
def _program(name: str) -> str:
    found = shutil.which(name)
    if found:
        return found
    kept = cache_dir() / "prometheus"
    program = kept / "usr/bin" / name
    if not program.exists():
        _unpack(kept)
    if not program.exists():
        pytest.fail(f"{name} is needed: install the package prometheus (Debian, Homebrew)")
    return str(program)


def _unpack(kept: Path) -> None:
    """Debian's package into a folder; nothing where there is no Debian."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=False)
        for package in Path(folder).glob("prometheus_*.deb"):
            kept.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg-deb", "-x", str(package), str(kept)], check=True)


def concrete(expr: str) -> str:
    """A dashboard's query with its choices made, as Prometheus takes it."""
    for name, value in _CHOSEN.items():
        expr = expr.replace(name, value)
    return expr


def queries_that_do_not_parse(exprs: Sequence[str]) -> list[str]:
    """Those that Prometheus would refuse; each is made a rule of, which its tool checks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "queries.yaml"
        rules = [{"record": f"query_{n}", "expr": expr} for n, expr in enumerate(exprs)]
        file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
        done = subprocess.run(
            [promtool(), "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
    said = done.stdout + done.stderr
    return [expr for n, expr in enumerate(exprs) if f'"query_{n}"' in said]


def quicker(rules: str, times: float) -> str:
    """Rules whose waits and windows are so many times shorter: 5 s and two minutes at least.

    For trying them with real faults: what is compared stays as it is, but for seconds that
    something has lasted.
    """

    def shorter(found: re.Match[str]) -> str:
        seconds = float(found[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[3]]
        least = 5 if found[1].startswith("for") else 120
        return f"{found[1]}{min(round(seconds), max(least, round(seconds / times)))}s"

    rules = re.sub(r"(for: |offset )(\d+)([smhd])", shorter, rules)
    rules = re.sub(r"(\[)(\d+)([smhd])(?=\])", shorter, rules)
    return re.sub(r"interval: \d+s", "interval: 1s", rules)


class Prometheus:
    """A server that scrapes some targets each second and evaluates rules as often.

    Args:
        folder: where its data is.
        rules: the texts of files of rules, by name.
    """

    def __init__(self, folder: Path, rules: Mapping[str, str]) -> None:
        self._folder = folder
        self._targets = folder / "targets.json"
        self._port = any_free(set())
        for name, text in rules.items():
            (folder / name).write_text(text)
        discovery = [{"files": [str(self._targets)], "refresh_interval": "1s"}]
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": sorted(rules),
            "scrape_configs": [{"job_name": "tickrail", "file_sd_configs": discovery}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        self.scrape({})
        self._log = (self._folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                _program("prometheus"),
                f"--config.file={self._folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        until(self._ready, _START_WITHIN, every=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Scrape these from now on: what each is called -> `host:port`."""
        found = [{"targets": [at], "labels": {"instance": name}} for name, at in targets.items()]
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.rename(self._targets)

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self._port}"

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of a query now.

        Raises:
            ValueError: it is refused; says why.
        """
        answer = self._get(f"/api/v1/query?query={quote(expr)}")
        if answer["status"] != "success":
            raise ValueError(f"{expr}: {answer.get('error')}")
        data = answer["data"]
        return list(data["result"]) if data["resultType"] == "vector" else [data]

    def value(self, expr: str) -> float:
        """The highest of the samples of a query; NaN where there is none."""
        values = [float(s["value"][1]) for s in self.query(expr)]
        return max(values, default=float("nan"))

    def alerts(self) -> dict[str, str]:
        """The alerts that are pending or firing."""
        found: dict[str, str] = {}
        for alert in self._get("/api/v1/alerts")["data"]["alerts"]:
            name = alert["labels"]["alertname"]
            if found.get(name) != "firing":
                found[name] = alert["state"]
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {name for name, state in self.alerts().items() if state == "firing"}

    def instance(self, alert: str) -> str:
        """The process that an alert names now; empty where it names none."""
        found = self.query(f'ALERTS{{alertname="{alert}"}}')
        return next((s["metric"]["instance"] for s in found if s["metric"].get("instance")), "")

    def fired_at(self, alert: str, seconds: float) -> list[float]:
        """When an alert was seen to fire within the last seconds, in seconds since 1970."""
        chosen = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        answer = self._get(f"/api/v1/query?query={quote(f'{chosen}[{int(seconds) + 1}s]')}")
        return [float(at) for one in answer["data"]["result"] for at, _ in one["values"]]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule and how its last evaluation went."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _get(self, path: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", path)
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()

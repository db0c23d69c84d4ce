"""The chart, rendered by Helm as `helm install` would."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.helm_program import KUBERNETES, helm
from tests.support.tree import ROOT

CHART = ROOT / "helm/tickrail"
SETS = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """What the chart makes of a set of values."""

    manifests: tuple[Manifest, ...]

    def kind(self, kind: str) -> list[Manifest]:
        """The manifests of a kind."""
        return [m for m in self.manifests if m["kind"] == kind]

    def one(self, kind: str, name: str) -> Manifest:
        """The only manifest of this kind and name."""
        (found,) = [m for m in self.kind(kind) if m["metadata"]["name"] == name]
        return found

    def pods(self) -> dict[str, Manifest]:
        """The specification of each pod by the name of what makes it."""
        found = {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in self.of_pods()}
        return found | {m["metadata"]["name"]: m["spec"] for m in self.kind("Pod")}

    def of_pods(self) -> list[Manifest]:
        """What makes pods: deployments and jobs."""
        return self.kind("Deployment") + self.kind("Job")


def run(*arguments: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """Run Helm, where no cluster is and no configuration."""
    return subprocess.run(
        [str(helm()), *arguments, str(chart)],
        env={**os.environ, "KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def template(values: str, *more: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """`helm template` of one of the sets."""
    return run(
        "template", "t", "--namespace", "jobs", "--kube-version", f"{KUBERNETES}.0",
        "--values", str(CHART / "ci" / values), *more, chart=chart,
    )  # fmt: skip


@functools.cache
def rendered(values: str, *more: str) -> Rendered:
    """The manifests of one of the sets, with more values where they are given."""
    done = template(values, *more)
    assert done.returncode == 0, done.stderr
    loaded = [m for m in yaml.safe_load_all(done.stdout) if m is not None]
    return Rendered(tuple(loaded))


@pytest.fixture(params=SETS)
def each(request: pytest.FixtureRequest) -> Rendered:
    """The manifests of each set in turn."""
    return rendered(request.param)


@pytest.fixture
def minimal() -> Rendered:
    """The manifests of what must be set and nothing else."""
    return rendered("minimal-values.yaml")


@pytest.fixture
def of() -> Callable[..., Rendered]:
    """Render a set, by the beginning of its name."""
    return lambda name, *more: rendered(f"{name}-values.yaml", *more)


@pytest.fixture
def refusal() -> Callable[..., str]:
    """What Helm says of values that it refuses."""

    def ask(name: str, *more: str) -> str:
        done = template(f"{name}-values.yaml", *more)
        assert done.returncode != 0
        return done.stderr

    return ask


def env_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a pod's only container: values, or where they come from."""
    (container,) = pod["containers"]
    names = [e["name"] for e in container.get("env", [])]
    assert len(set(names)) == len(names), "a variable is given twice"
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env", [])}

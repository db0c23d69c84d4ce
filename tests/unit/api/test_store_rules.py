"""Tenant scope has one door: no statement filters by tenant, and none goes past the door."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tickrail.store

STORE = Path(tickrail.store.__file__).parent
API_SIDE = (
    "jobs",
    "calendars",
    "launches",
    "secrets",
    "idempotency",
    "audit",
    "keys",
    "engine",
    "tenancy",
)
TRANSACTIONS = {"TenantTransaction", "BaseTransaction"}


def tenant_filters(source: str) -> list[int]:
    """The lines that compare a tenant_id: what row security does for every statement."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = [node.left, *node.comparators]
            if any(isinstance(s, ast.Attribute) and s.attr == "tenant_id" for s in sides):
                found.append(node.lineno)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.lineno] * len(re.findall(r"tenant_id\s*(?:=|in\b)", node.value))
    return found


def strangers(source: str) -> list[str]:
    """Public functions that run statements on something else than a transaction of the door."""
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        runs = any(
            isinstance(n, ast.Attribute) and n.attr in {"execute", "connect", "begin"}
            for n in ast.walk(node)
        )
        first = node.args.args[0].annotation if node.args.args else None
        kind = first.id if isinstance(first, ast.Name) else None
        if runs and kind not in TRANSACTIONS:
            found.append(node.name)
    return found


@pytest.mark.parametrize("name", API_SIDE)
def test_no_statement_filters_by_tenant(name: str) -> None:
    assert tenant_filters((STORE / f"{name}.py").read_text("utf-8")) == []


def test_no_statement_in_a_file_of_the_api_does() -> None:
    text = (STORE / "sql" / "api.sql").read_text("utf-8")
    assert "tenant_id" not in text


@pytest.mark.parametrize("name", [n for n in API_SIDE if n not in ("engine", "tenancy")])
def test_every_function_takes_a_transaction_of_the_door(name: str) -> None:
    assert strangers((STORE / f"{name}.py").read_text("utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    [
        "select(jobs).where(jobs.c.tenant_id == tenant)",
        "select(jobs).where(other.tenant_id != jobs.c.tenant_id)",
        "text('select 1 from jobs where tenant_id = :t')",
        "text('delete from jobs where tenant_id in (:t)')",
    ],
)
def test_a_filter_made_by_hand_is_seen(planted: str) -> None:
    assert tenant_filters(planted) == [1]


@pytest.mark.parametrize(
    "planted",
    [
        "def read(engine: Engine) -> None:\n    with engine.begin() as c: c.execute(1)",
        "def read(conn):\n    conn.execute(1)",
        "def read() -> None:\n    POOL.connect()",
    ],
)
def test_a_function_that_goes_past_the_door_is_seen(planted: str) -> None:
    assert strangers(planted) == ["read"]

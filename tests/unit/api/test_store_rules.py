"""Tenant scope has one door: no statement filters by tenant, and none goes past the door."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tickrail.store

STORE = Path(tickrail.store.__file__).parent
DOOR = "tenancy"
SHARED = {"quotas.running", "quotas.read_amounts_of", "quotas.write_amounts", "queues.find_limits"}
"""What names a tenant all the same: of quotas and limits a tenant sees the installation's rows
beside its own, and an operator everybody's. Row security cannot tell which of them are meant."""
TRANSACTIONS = {"TenantTransaction", "BaseTransaction"}


def imported(source: str) -> set[str]:
    """The modules that a source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def is_on_api_side(name: str, source: str) -> bool:
    """Whether what a file says is said as the API's role: it is the door, or uses it."""
    return name == DOOR or f"tickrail.store.{DOOR}" in imported(source)


API_SIDE = sorted(
    f.stem for f in STORE.glob("*.py") if is_on_api_side(f.stem, f.read_text("utf-8"))
)


def _is_tenant(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "tenant_id"


def tenant_filters(source: str) -> list[int]:
    """The lines that compare a tenant_id: what row security does for every statement."""
    return [line for line, _ in filters_by_function(source)]


def filters_by_function(source: str) -> list[tuple[int, str]]:
    """The same with the function or method that each is in."""
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]

    def around(line: int) -> str:
        inside = [f for f in functions if f.lineno <= line <= (f.end_lineno or line)]
        return max(inside, key=lambda f: f.lineno).name if inside else ""

    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            if any(_is_tenant(side) for side in (node.left, *node.comparators)):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in {"in_", "not_in"}:
            if _is_tenant(node.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.lineno] * len(re.findall(r"tenant_id\s*(?:=|in\b)", node.value))
    return sorted((line, around(line)) for line in found)


def clocks_made(source: str) -> list[int]:
    """The lines that make a clock."""
    return [
        n.lineno
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id.endswith("Clock")
    ]


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
    found = filters_by_function((STORE / f"{name}.py").read_text("utf-8"))
    assert [f for f in found if f"{name}.{f[1]}" not in SHARED] == []


def test_what_names_a_tenant_all_the_same_does_so() -> None:
    named = {
        f"{name}.{function}"
        for name in API_SIDE
        for _, function in filters_by_function((STORE / f"{name}.py").read_text("utf-8"))
    }
    assert named == SHARED


def test_the_files_of_the_api_are_found() -> None:
    assert {"jobs", "audit", "audit_reader", "quotas", "keys", "tenants", DOOR} <= set(API_SIDE)
    assert {"owner", "worker", "upkeep", "launch_quotas"}.isdisjoint(API_SIDE)
    assert is_on_api_side("new", "from tickrail.store.tenancy import BaseTransaction")
    assert not is_on_api_side("new", "from tickrail.store.session import Session")


def test_clocks_are_given_and_not_made() -> None:
    """Of the driver's own timeouts there is one in `session`: they are nobody's business."""
    made = {f.stem for f in STORE.glob("*.py") if clocks_made(f.read_text("utf-8"))}
    assert made == {"session"}
    assert clocks_made("_CLOCK = SystemClock()") == [1]


def test_no_statement_in_a_file_of_the_api_does() -> None:
    text = (STORE / "sql" / "api.sql").read_text("utf-8")
    assert tenant_filters(f"statements = {text!r}") == []


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
        "select(jobs).where(jobs.c.tenant_id.in_([tenant]))",
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

"""Rules that stand in pyproject.toml, each seen failing on a planted breach."""

from __future__ import annotations

import re

import pytest
from tests.support.tree import ROOT, Tree, project_files

CLOCKS = [
    "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
    "from datetime import datetime\n\nNOW = datetime.utcnow()\n",
    "from datetime import date\n\nTODAY = date.today()\n",
    "import time\n\nNOW = time.time()\n",
    "import time\n\nNOW = time.monotonic()\n",
    "import time\n\ntime.sleep(1)\n",
    "from time import sleep\n\nsleep(1)\n",
]
CLOCK = "libs/tickrail/core/clock.py"
REASON = re.compile(r"#\s*noqa: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)* - \S")


@pytest.mark.parametrize("source", CLOCKS)
def test_reading_a_clock_or_sleeping_fails(tree: Tree, source: str) -> None:
    tree.plant("libs/tickrail/engine/planted.py", source)
    done = tree.run("ruff", "check", "--no-cache", "libs/tickrail/engine/planted.py")
    assert done.returncode == 1
    assert "TID251" in done.stdout


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import os\n", "F401"),
        ("def f(x):\n    return x\n", "ANN"),
        ("try:\n    f()\nexcept Exception:\n    pass\n", "BLE001"),
    ],
)
def test_all_rules_are_on(tree: Tree, source: str, rule: str) -> None:
    tree.plant("services/tickrail_cli/planted.py", source)
    done = tree.run("ruff", "check", "--no-cache", "services/tickrail_cli/planted.py")
    assert done.returncode == 1
    assert rule in done.stdout


def test_an_untyped_value_fails(tree: Tree) -> None:
    tree.plant(
        "libs/tickrail/core/planted.py",
        '"""Planted."""\n\n\ndef f(x: int) -> str:\n    """F."""\n    return x\n',
    )
    done = tree.run("mypy", "--cache-dir", "mypy-cache", "libs/tickrail/core/planted.py")
    assert done.returncode == 1
    assert "[return-value]" in done.stdout


def test_only_the_clock_reads_the_clock() -> None:
    """Elsewhere in production the ban has no exception."""
    found = [
        str(path.relative_to(ROOT))
        for path in project_files(".py")
        if path.is_relative_to(ROOT / "libs") or path.is_relative_to(ROOT / "services")
        for line in path.read_text().splitlines()
        if "noqa" in line and "TID251" in line
    ]
    assert set(found) == {CLOCK}


def without_reason(source: str) -> list[str]:
    """Lines whose exception from a rule gives no reason."""
    return [line for line in source.splitlines() if "# noqa" in line and not REASON.search(line)]


def test_every_exception_has_a_reason() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in project_files(".py")
        if path.name != "test_lint.py" and (lines := without_reason(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize("comment", ["# noqa", "# noqa: F401", "# noqa: F401 -"])
def test_an_exception_without_a_reason_is_seen(comment: str) -> None:
    assert without_reason(f"import os  {comment}\n")
    assert not without_reason("import os  # noqa: F401, E402 - the plugin is found by its import\n")

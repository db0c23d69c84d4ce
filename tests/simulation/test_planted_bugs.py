"""Each mistake that is planted is found, within a bounded number of seeds."""

from __future__ import annotations

import pytest
from tests.simulation.counterexamples import BUGS
from tests.simulation.finding import RUNS, find
from tests.support.tree import ROOT


@pytest.mark.parametrize("name", BUGS)
def test_it_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = find(name)
    assert found is not None, f"not found in {RUNS} histories: {name}"
    with capsys.disabled():
        print(f"\n{name}: seed {found.seed}, history {found.runs}: {found.broken}")  # noqa: T201 - which seed found it is the answer


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 12


def test_each_is_in_the_table_of_the_docs() -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    assert [name for name in BUGS if f"| {name} |" not in text] == []

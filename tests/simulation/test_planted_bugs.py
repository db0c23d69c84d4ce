"""Each mistake that is planted is found, within a bounded number of seeds."""

from __future__ import annotations

import pytest
from tests.simulation.bugs import planted
from tests.simulation.counterexamples import BUGS
from tests.simulation.plan import history
from tests.simulation.run import run

SEEDS = 20000
RUNS = 400
"""So many histories are run at most, of those in which the mistake can show at all."""


@pytest.mark.parametrize("name", BUGS)
def test_it_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = 0
    with planted(name) as bug:
        for made in map(history, range(SEEDS)):
            if not bug.may_show(made):
                continue
            runs += 1
            broken = run(made).violation
            if broken is not None:
                found = f"seed {made.seed}, history {runs} of those that may show it: {broken}"
                with capsys.disabled():
                    print(f"\n{name}: {found}")  # noqa: T201 - which seed found it is the answer
                return
            if runs == RUNS:
                break
    pytest.fail(f"not found in {runs} histories: {name}")


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 12

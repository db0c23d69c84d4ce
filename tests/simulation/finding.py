"""Looks for a mistake that was planted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.bugs import planted
from tests.simulation.counterexamples import BUGS
from tests.simulation.plan import history
from tests.simulation.violation import Violation
from tests.simulation.world import World

SEEDS = 20000
RUNS = 400
"""So many histories are run at most, of those in which the mistake can show at all."""


class Found(NamedTuple):
    """The seed that found it, the how-many-th history that could show it, and what was broken."""

    seed: int
    runs: int
    broken: Violation


def find(name: str) -> Found | None:
    """The first seed that finds this mistake."""
    runs = 0
    with planted(name) as bug:
        for made in map(history, range(SEEDS)):
            if not bug.may_show(made):
                continue
            runs += 1
            broken = World(made).run().violation
            if broken is not None:
                return Found(made.seed, runs, broken)
            if runs == RUNS:
                break
    return None


def table() -> Iterator[str]:
    """The table of docs/simulation.md."""
    yield "| mistake | rule that finds it | seed | history |"
    yield "|---|---|---:|---:|"
    for name in BUGS:
        found = find(name)
        if found is None:
            yield f"| {name} | | | not found |"
        else:
            yield f"| {name} | {found.broken.rule} | {found.seed} | {found.runs} |"

"""Thousands of histories of the whole installation, each from a seed; every rule holds in each.

`make simulate SEEDS=100000` runs more; `python -m tests.simulation.run --seed N` shows one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.simulation.bugs import planted
from tests.simulation.plan import History, history
from tests.simulation.run import Report, run, run_seeds, shortest, shrink, told

PARTS, SEEDS = 8, 250
BUG = "Trust is counted from the answer to a renewal, not from its sending"
FAULTS = {
    "crash", "freeze", "stall", "fail", "cut", "down", "stop", "hang", "clock", "revoke", "lose",
    "double", "late", "unsure", "throw_out", "empty", "recreate", "anew", "locked", "db restored",
    "etcd restored", "trigger", "cancel", "pause", "skip_next", "delete", "suspend", "slow",
    "drain", "edit", "calendar", "backfill", "pause_queue", "unheard", "truncate", "redriven",
    "turns that crossed",
}  # fmt: skip


def say(capsys: pytest.CaptureFixture[str], report: Report) -> None:
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201 - how much was simulated is part of the answer


@pytest.mark.parametrize("part", range(PARTS))
def test_every_rule_holds(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_seeds(range(part * SEEDS, (part + 1) * SEEDS))
    say(capsys, report)
    if report.broken:
        pytest.fail("\n".join(shortest(report.broken[0][0])))
    assert report.seeds == SEEDS
    assert report.counts.keys() >= FAULTS, "each kind of fault happens in each part"


def test_a_seed_is_always_the_same_history() -> None:
    for seed in (3, 4, 5):
        first, second = (run(history(seed), trace=True) for _ in range(2))
        assert first.trace == second.trace
        assert len(first.trace) > 20


@pytest.fixture
def failing() -> History:
    with planted(BUG) as bug:
        return next(
            made
            for made in map(history, range(2000))
            if bug.may_show(made) and run(made).violation is not None
        )


def test_a_failing_seed_is_told_by_its_shortest_history(failing: History) -> None:
    with planted(BUG):
        text = "\n".join(shortest(failing.seed))
    assert text.startswith(f"seed {failing.seed}: 2 schedulers, 1 workers")
    assert text.count("call process=") == 1
    assert text.endswith("trusts")


def test_a_failing_history_is_shortened_kept_and_replayed(failing: History, tmp_path: Path) -> None:
    with planted(BUG):
        broken = run(failing).violation
        assert broken is not None
        short = shrink(failing, broken.rule)
        short.dump(tmp_path / "history.json")
        again = History.load(tmp_path / "history.json")
        assert again == short
        result = run(again, trace=True)
        text = "\n".join(told(again, result))
    assert result.violation is not None
    assert result.violation.rule == "one trusts"
    kinds = Counter(e.kind for e in short.events)
    assert kinds["call"] == kinds["cut"] == 1, "a slow answer, then none: that is all it takes"
    assert len(short.events) == 2
    assert len(short.jobs) == 1
    assert "BROKEN: one trusts" in text
    assert run(short).violation is None, "without the mistake all is well"

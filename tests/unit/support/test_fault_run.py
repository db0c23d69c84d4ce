"""The program of fault rounds: what a seed chooses, what is told, and that it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.fault import run
from tests.fault.judgement import Doubled, Judgement
from tests.fault.rounds import SCHEDULER_POINTS, WORKER_POINTS, Blow, Played, Struck, chosen

from tickrail.runtime.failpoints import POINTS

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_seed_always_chooses_the_same() -> None:
    assert [chosen(n) for n in range(50)] == [chosen(n) for n in range(50)]
    blows = [blow for n in range(400) for blow in chosen(n)]
    assert {blow.point for blow in blows} == {*SCHEDULER_POINTS, *WORKER_POINTS}
    assert {blow.action for blow in blows} == {"kill", "stop", "sleep:7"}
    assert {blow.service for blow in blows} == {
        *("scheduler-1", "scheduler-2", "worker-1", "worker-2")
    }
    assert {*SCHEDULER_POINTS, *WORKER_POINTS} <= POINTS.keys()


def played(blows: Sequence[Blow], *, missed: Sequence[Blow] = ()) -> Played:
    judgement = Judgement(
        doubled=[Doubled("k", 7, "why", accepted=True)],
        recovery=[("kill of scheduler-1", {0: 4.5, 1: None})],
        counts={"launches": 12},
    )
    struck = {blow.service: Struck(blow, NOW, []) for blow in blows}
    return Played(judgement, struck, [], list(missed))


def test_a_round_is_told_in_a_line() -> None:
    one = Blow("scheduler-1", "owner.tick.after", "kill")
    other = Blow("worker-1", "worker.claim.after", "stop", 2)
    assert run.told(3, played([one], missed=[other])) == (
        "seed 3: scheduler-1: owner.tick.after=kill@1; 12 launches, 1 effects doubled,"
        " 4.50 s to recover; not reached: worker-1: worker.claim.after=stop@2"
    )


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The seeds that were played; the fourth fails."""
    tried: list[str] = []

    @contextmanager
    def bed() -> Iterator[tuple[None, None]]:
        yield None, None

    def play(_found: Any, _effects: Any, blows: Sequence[Blow], _folder: Path, name: str) -> Played:
        tried.append(name)
        assert name != "seed-4", "planted"
        return played(blows)

    monkeypatch.setattr(run, "bed", bed)
    monkeypatch.setattr(run, "play", play)
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    return tried


def test_a_long_run_goes_on_and_names_what_failed(
    seeds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "journal"
    arguments = ["--from", "3", "--journal", str(journal), "--keep", str(tmp_path)]
    assert run.main([*arguments, "--seeds", "2"]) == 1
    said = capsys.readouterr().out
    assert "seed 4 FAILED" in said
    assert "planted" in said
    assert "1 seeds are right, failed: [4]" in said
    seeds.clear()
    assert run.main([*arguments, "--seeds", "4"]) == 1
    assert seeds == ["seed-4", "seed-5", "seed-6"]
    assert journal.read_text().split() == ["3", "5", "6"]
    assert run.main(["--seed", "9"]) == 0
    assert seeds[-1] == "seed-9"

"""The program of the simulation: what it keeps it runs again, and wrong use is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.simulation.counterexamples import BUGS
from tests.simulation.run import main

NUMBER, SEED = 2, 23
"""A mistake, and a seed that finds it (docs/simulation.md)."""
NAME = list(BUGS)[NUMBER]

EMPTY = {"seed": 1, "schedulers": 2, "workers": 1, "noise": 0.0, "jobs": [], "events": []}


def test_a_kept_history_knows_its_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    seed = next(
        seed
        for seed in range(SEED, 500)
        if main(["--seed", str(seed), "--bug", str(NUMBER), "--keep", str(kept)]) == 1
    )
    assert json.loads(kept.read_text())["bug"] == NAME
    capsys.readouterr()
    assert main(["--history", str(kept)]) == 1
    said = capsys.readouterr().out
    assert f"planted: {NAME}" in said
    assert "BROKEN: " in said
    assert main(["--seed", str(seed), "--keep", str(kept)]) == 0
    assert main(["--history", str(kept)]) == 0
    assert "planted" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("[]", "events, jobs, noise, schedulers, seed, workers missing"),
        (
            '{"events": []}',
            "no history that was kept: jobs, noise, schedulers, seed, workers missing",
        ),
        (json.dumps({**EMPTY, "more": 1}), "unexpected keyword argument 'more'"),
        (json.dumps({**EMPTY, "events": [{"at": 1, "kind": "quake"}]}), "no such events: quake"),
    ],
)
def test_what_is_no_history_is_named(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content)
    assert said in wrong(capsys, "--history", str(path))


def test_a_history_with_an_unknown_mistake_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    assert main(["--seed", "1", "--keep", str(path)]) == 0
    path.write_text(json.dumps({**json.loads(path.read_text()), "bug": "Nothing"}))
    capsys.readouterr()
    assert "there is no mistake 'Nothing'" in wrong(capsys, "--history", str(path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of --seed, --seeds, --history, --list, --bugs is needed"),
        (("--seed", "1", "--seeds", "2"), "one of --seed, --seeds"),
        (("--seed", "1", "--bug", "999"), f"--bug 999: a number from 0 to {len(BUGS) - 1}"),
        (("--seed", "1", "--bug", "-1"), "--bug -1: a number from 0"),
        (("--seeds", "-3"), "argument --seeds: -3 is not 1 or more"),
        (("--seeds", "many"), "argument --seeds: invalid"),
        (("--seed", "1", "--keep", "/nonexistent/file"), "there is no such folder"),
    ],
)
def test_wrong_use_is_said_in_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in wrong(capsys, *arguments)


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said, in one line, where the program ends with 2."""
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.support.clock import FakeClock

from tickrail.local.progress import PlainProgress, RichProgress, best_progress, step_of


def test_plain_lines_tell_quarters_and_the_time_taken() -> None:
    out, clock = io.StringIO(), FakeClock()
    step = PlainProgress(out, clock).step("downloading")
    for done in range(1, 9):
        step.advance(done, 8)
    clock.advance(2.5)
    step.done("8 jars")
    assert out.getvalue().splitlines() == [
        "downloading: 2 of 8",
        "downloading: 4 of 8",
        "downloading: 6 of 8",
        "downloading: 8 of 8",
        "downloading: 8 jars (2.5 s)",
    ]


def test_a_step_whose_block_raises_has_failed() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), step_of(PlainProgress(out), "starting etcd"):
        raise ValueError("no")
    assert out.getvalue() == "starting etcd: FAILED\n"


def test_a_terminal_shows_each_step_with_its_note() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with RichProgress(console) as progress:
        first, second = progress.step("starting etcd"), progress.step("starting Kafka")
        first.advance(1, 2)
        first.done("port 2379")
        second.failed("no Java")
    shown = console.file.getvalue()
    assert "port 2379" in shown
    assert "failed" in shown
    assert "✓" in shown


def test_a_pipe_gets_plain_lines() -> None:
    out = io.StringIO()
    with best_progress(out) as progress:
        progress.step("x").done()
    assert out.getvalue().startswith("x: done")

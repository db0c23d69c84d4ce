"""A worker says at its start when it cannot hold open what it is told to (E-11)."""

from __future__ import annotations

import resource

import pytest

from tickrail_worker.bounds import concurrency_problem


@pytest.mark.parametrize(
    ("runs", "commands", "files", "short"),
    [
        pytest.param(256, 16, 1024, False, id="the defaults under the usual limit"),
        pytest.param(2000, 16, 1024, True, id="more than the limit"),
        pytest.param(256, 200, 1024, True, id="commands hold pipes"),
        pytest.param(100_000, 16, resource.RLIM_INFINITY, False, id="no limit"),
    ],
)
def test_more_runs_than_files(runs: int, commands: int, files: int, short: bool) -> None:
    problem = concurrency_problem(runs, commands, files)
    assert (problem is not None) is short
    if problem:
        assert f"may open {files}" in problem
        assert "TICKRAIL_WORKER_CONCURRENCY" in problem


def test_the_systems_limit_is_read() -> None:
    assert concurrency_problem(1, 0) is None
    assert concurrency_problem(2**40, 0) is not None

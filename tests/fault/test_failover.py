"""Two faults of each kind at the default lease, by the functions of `make failover-report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.failover import KINDS, bed, broken

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TRIES = 2
PARTITIONS = {"stop": 16, "kill": 16, "leader": 16, "rolling": 16, "term": 64}
"""The kinds in the order in which they are begun, the longest first."""

Tries = list[dict[str, Any]]


def attempts(name: str) -> Tries:
    with bed(KINDS[name], partitions=PARTITIONS[name], seed=TRIES) as made:
        return [made.attempt() for _ in range(TRIES)]


@pytest.fixture(scope="module")
def running() -> Iterator[Mapping[str, Future[Tries]]]:
    """All kinds, three at once: most of a try is waiting for leases.

    What ends in good order is measured alone, before them: its bar is a second, and three
    installations on two cores take turns for longer than that.
    """
    alone: Future[Tries] = Future()
    alone.set_result(attempts("term"))
    others = [name for name in PARTITIONS if name != "term"]
    with ThreadPoolExecutor(3) as pool:
        yield {"term": alone, **{name: pool.submit(attempts, name) for name in others}}


@pytest.mark.parametrize("name", PARTITIONS)
def test_all_launch_again_within_the_bar_and_nothing_is_lost_or_doubled(
    running: Mapping[str, Future[Tries]], name: str
) -> None:
    tries = running[name].result()
    assert [broken(one) for one in tries] == [[]] * TRIES
    assert all(one["launches"] > PARTITIONS[name] * 5 for one in tries)


@pytest.mark.parametrize("name", ["kill", "stop", "term"])
def test_the_fault_happened_and_hit_an_owner(
    running: Mapping[str, Future[Tries]], name: str
) -> None:
    for one in running[name].result():
        assert 0 < one["hit"] < PARTITIONS[name]
        assert one["proof"].startswith(
            {"kill": "exit -9", "stop": "state T", "term": "exit 0"}[name]
        )
        assert one["neighbours"]


def test_the_loss_of_etcds_leader_moves_no_partition(
    running: Mapping[str, Future[Tries]],
) -> None:
    for one in running["leader"].result():
        assert one["proof"].startswith("leader")
        assert one["moved"] == 0

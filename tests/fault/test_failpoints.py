"""Schedulers and workers that die or stop at failpoints, under traffic, judged by the checker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.history import Effects
from tests.fault.rounds import TTL, Blow, Played, bed, play
from tests.support.processes import Installation

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Bed = tuple[Installation, Effects]


@pytest.fixture(scope="module")
def made() -> Iterator[Bed]:
    with bed() as found:
        yield found


def strike(made: Bed, folder: Path, *blows: Blow) -> Played:
    """A round in which every blow strikes."""
    found, effects = made
    name = "-".join(f"{b.point}-{b.action}" for b in blows)
    played = play(found, effects, blows, folder, name)
    assert not played.missed
    return played


def test_an_owner_that_wakes_up_in_its_transaction_writes_nothing(
    made: Bed, tmp_path: Path
) -> None:
    """Launches were written and not committed; a worker's claim had ended likewise (C-01, C-17).

    The checker sees each write in the order in which its transaction ended: none of the old epoch
    is among them. A request that the worker still sends comes with a token that is passed.
    """
    played = strike(
        made,
        tmp_path,
        Blow("scheduler-1", "owner.tick.written", "stop", 2),
        Blow("worker-1", "executor.start.before", "stop", 3),
    )
    stopped = played.struck["scheduler-1"]
    assert stopped.owned
    assert stopped.until is not None
    landed = [
        line
        for line in played.lines
        if line["kind"] == "write"
        and line["app"] == "scheduler-1"
        and line["table"] != "partitions"
        and stopped.at.isoformat() < line["at"] < stopped.until.isoformat()
    ]
    assert landed == []
    held = played.held("worker-1")
    assert held
    assert {row["state"] for row in held} <= {"succeeded", "abandoned"}


def test_a_claim_without_its_raise_and_an_end_without_its_record(made: Bed, tmp_path: Path) -> None:
    """A launch whose worker died after the effect runs again, or is abandoned if that is worse."""
    played = strike(
        made,
        tmp_path,
        Blow("scheduler-2", "etcd.claim.after", "kill"),
        Blow("worker-1", "worker.finish.before", "kill", 3),
    )
    repeated = {d.key for d in played.judgement.doubled if d.accepted}
    flying = played.in_flight("worker-1")
    assert flying
    for row in flying:
        assert row["state"] == ("succeeded" if row["rerun"] else "abandoned")
        assert (row["id"] in repeated) == row["rerun"]


def test_a_message_without_its_mark_and_an_effect_without_its_end(
    made: Bed, tmp_path: Path
) -> None:
    """The message is published again and claimed once; a stopped worker's results are stale."""
    played = strike(
        made,
        tmp_path,
        Blow("scheduler-1", "relay.report.after", "kill", 2),
        Blow("worker-2", "executor.effect.after", "stop", 2),
    )
    assert played.judgement.slowest() <= TTL + 2.0
    rows = played.in_flight("worker-2")
    assert rows
    assert {row["state"] for row in rows} <= {"succeeded", "abandoned"}
    assert {row["id"] for row in rows if row["rerun"]} <= {d.key for d in played.judgement.doubled}


def test_marks_that_were_not_committed_and_ends_whose_offsets_were_not(
    made: Bed, tmp_path: Path
) -> None:
    """What is in Postgres decides: an end that was written is not repeated."""
    played = strike(
        made,
        tmp_path,
        Blow("scheduler-2", "owner.mark_queued.written", "stop", 2),
        Blow("worker-2", "worker.finish.after", "kill", 2),
    )
    assert played.struck["scheduler-2"].owned


def test_an_owner_that_dies_before_its_first_tick(made: Bed, tmp_path: Path) -> None:
    """Its partitions have its epoch and no work of it; others are taken from it in time."""
    played = strike(
        made,
        tmp_path,
        Blow("scheduler-1", "fence.raise_epoch.after", "kill"),
        Blow("worker-1", "worker.claim.after", "stop", 2),
    )
    assert played.struck["scheduler-1"].owned
    assert played.judgement.slowest() <= TTL + 2.0

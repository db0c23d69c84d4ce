"""Results that come when their claim is over: kept beside the attempt, and nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.store_bed import OWNED, PostgresBed, claim_one, end_of, make_launch, verdict

from tickrail.core.ids import LaunchId
from tickrail.core.ports_worker import Claimed
from tickrail.core.states import State
from tickrail.engine.reaper import decide

pytestmark = pytest.mark.integration


def attempts(bed: PostgresBed, launch: LaunchId) -> list[tuple[int, str, Any]]:
    return bed.conn.execute(
        "select attempt, outcome, stale_result from attempts where launch_id = %s order by attempt",
        [launch],
    ).fetchall()  # type: ignore[return-value]


def reaped(bed: PostgresBed) -> Claimed:
    c = claim_one(bed, bed.worker(), make_launch(bed))
    bed.advance(31)
    bed.owner().reap(OWNED, 10, decide)
    return c


def test_a_result_after_the_reaper_is_kept_beside_the_lost_attempt(bed: PostgresBed) -> None:
    c = reaped(bed)
    before = bed.row(c.id)
    store = bed.worker()
    assert list(store.finish([end_of(c, verdict(c, State.SUCCEEDED), outcome="ok")]).stale) == [
        c.id
    ]
    ((attempt, outcome, stale),) = attempts(bed, c.id)
    assert (attempt, outcome, stale["outcome"]) == (1, "worker_lost", "ok")
    assert stale["at"]
    assert bed.row(c.id) == before
    # Told once more, with another outcome: the first one stays.
    store.finish([end_of(c, verdict(c, State.DUE), outcome="http_500")])
    assert attempts(bed, c.id)[0][2]["outcome"] == "ok"


def test_an_end_reported_again_is_no_stale_result(bed: PostgresBed) -> None:
    store = bed.worker()
    failed, good = (claim_one(bed, store, make_launch(bed)) for _ in range(2))
    ends = [
        end_of(failed, verdict(failed, State.DUE)),
        end_of(good, verdict(good, State.SUCCEEDED), outcome="ok"),
    ]
    store.finish(ends)
    assert set(store.finish(ends).stale) == {failed.id, good.id}  # the answer was lost
    assert attempts(bed, failed.id) == [(1, "http_500", None)]
    assert attempts(bed, good.id) == []


def test_the_result_of_a_launch_that_was_ended_meanwhile_is_its_attempt(bed: PostgresBed) -> None:
    store = bed.worker()
    c = claim_one(bed, store, make_launch(bed))
    bed.change(c.id, state=State.CANCELLED, phase=3)
    store.finish([end_of(c, verdict(c, State.SUCCEEDED), outcome="ok")])
    ((attempt, outcome, stale),) = attempts(bed, c.id)
    assert (attempt, outcome, stale["outcome"]) == (1, "ok", "ok")
    assert bed.row(c.id).state is State.CANCELLED


def test_a_result_of_an_older_claim_does_not_touch_the_attempt_that_runs(bed: PostgresBed) -> None:
    c = reaped(bed)
    bed.advance(60)
    again = claim_one(bed, bed.worker(), c.id, 2)
    store = bed.worker()
    store.finish([end_of(c, verdict(c, State.SUCCEEDED), outcome="ok")])
    row = bed.row(c.id)
    assert (row.state, row.claim) == (State.RUNNING, again.claim)
    store.finish([end_of(again, verdict(again, State.DEAD))])
    assert [(a, o, s and s["outcome"]) for a, o, s in attempts(bed, c.id)] == [
        (1, "worker_lost", "ok"),
        (2, "http_500", None),
    ]

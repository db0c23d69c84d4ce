"""What an owner's housekeeping forgets: waits and places of nobody."""

from __future__ import annotations

import pytest
from tests.support.crowds import ask, crowd, due_now, ids
from tests.support.store_bed import OWNED, TENANT, PostgresBed, end_of, verdict

from tickrail.core.ids import LaunchId
from tickrail.core.limits import QUEUE, Limit, Rate, Scope
from tickrail.core.states import State

pytestmark = pytest.mark.integration
MINE = Scope(TENANT, QUEUE, "default")


def held(bed: PostgresBed) -> dict[LaunchId, bool]:
    """Who is noted under a limit; whether with a place."""
    rows = bed.conn.execute("select launch_id, claim is not null from holds").fetchall()
    return {LaunchId(launch): placed for launch, placed in rows}


def test_waits_and_places_of_nobody_are_forgotten_and_no_others(bed: PostgresBed) -> None:
    bed.set_limit(MINE, Limit(max_running=3))
    store, launches = bed.worker(), crowd(bed, 8)
    answer = ask(bed, store, launches)
    assert ids(answer) == set(launches[:3])
    # A place and a wait whose launches ended from outside, a wait of an attempt that is over, a
    # place of a claim that was lost; and a wait whose launch was published again.
    bed.change(launches[0], state=State.CANCELLED)
    bed.change(launches[3], state=State.CANCELLED)
    bed.change(launches[4], attempt=2)
    bed.change(launches[1], state=State.DUE)
    bed.change(launches[5], state=State.QUEUED)
    assert held(bed) == {x: x in launches[:3] for x in launches}
    bed.owner().drop_days()
    assert held(bed) == {launches[2]: True, **dict.fromkeys(launches[5:], False)}
    # Those that wait still hear of the two places.
    bed.owner().rouse(OWNED)
    assert len(due_now(bed, launches[5:])) == 1  # another is on its way


def test_waits_for_tokens_are_kept_while_anybody_waits(bed: PostgresBed) -> None:
    bed.set_limit(MINE, Limit(rate=Rate(1, 3600.0)))
    store, launches = bed.worker(), crowd(bed, 3)
    (claimed,) = ask(bed, store, launches).granted
    store.finish([end_of(claimed, verdict(claimed, State.SUCCEEDED))])
    bed.owner().drop_days()
    assert held(bed) == dict.fromkeys(launches[1:], False)
    for launch in launches[1:]:
        bed.change(launch, state=State.CANCELLED)
    bed.owner().drop_days()
    assert held(bed) == {}

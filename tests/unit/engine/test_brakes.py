"""The brakes' account of what may still be published under each limit."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from tickrail.core.ids import JobId, LaunchId, Partition, TenantId
from tickrail.core.limits import INSTALLATION, QUEUE, Limit, Scope
from tickrail.core.ports import Load, Publication
from tickrail.engine.brakes import MAX_PAIRS, NO_LIMIT, Brakes

TENANT = TenantId(UUID(int=1))
MINE = Scope(TENANT, QUEUE, "q")
EVERYBODY = Scope(INSTALLATION, QUEUE, "q")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def publication(tenant: TenantId = TENANT, queue: str = "q") -> Publication:
    return Publication(
        LaunchId(uuid4()), AT, JobId(UUID(int=9)), tenant, Partition(0), queue, 1, 1, AT
    )


def renew(brakes: Brakes, most: int = 3, under_way: int = 0) -> None:
    load = Load(Limit(max_running=most), under_way)
    brakes.renew({MINE: load, EVERYBODY: load}, 1, 1, any_=True)


def room(brakes: Brakes) -> tuple[int, int]:
    return brakes.own(publication()), brakes.shared("q")


def test_what_is_in_the_air_at_a_scan_takes_room_until_it_has_landed() -> None:
    brakes, sent = Brakes(), [publication(), publication()]
    renew(brakes)
    for p in sent:
        brakes.sent(p)
    assert room(brakes) == (1, 1)
    renew(brakes)  # neither is marked: the database knows nothing of them
    assert room(brakes) == (1, 1)
    brakes.landed(sent[0])
    renew(brakes, under_way=1)
    assert room(brakes) == (1, 1)
    brakes.landed(sent[1])
    renew(brakes, under_way=2)
    assert room(brakes) == (1, 1)
    renew(brakes)
    assert room(brakes) == (3, 3)


def test_what_others_have_in_the_air_takes_the_room_of_everybody_alone() -> None:
    brakes = Brakes()
    brakes.sent(publication(TenantId(UUID(int=2))))
    brakes.sent(publication(queue="other"))
    renew(brakes)
    assert room(brakes) == (3, 2)


def test_so_many_pairs_are_remembered_and_no_more() -> None:
    brakes = Brakes()
    renew(brakes)
    for n in range(MAX_PAIRS):
        assert brakes.learn(publication(TenantId(UUID(int=n + 1))))
    assert not brakes.learn(publication())
    assert not brakes.learn(publication(TenantId(UUID(int=MAX_PAIRS + 1))))
    assert len(brakes.pairs) == MAX_PAIRS
    brakes.renew({}, 1, 1, any_=False)
    assert len(brakes.pairs) == 0


@pytest.mark.parametrize("owned", [1, 3, 4])
def test_an_owner_has_its_share_of_a_window(owned: int) -> None:
    brakes = Brakes()
    load = Load(Limit(max_running=10), 1, running=2)
    brakes.renew({MINE: load}, owned, 4, any_=True)
    assert room(brakes) == ({1: 2, 3: 6, 4: 8}[owned] - 1, NO_LIMIT)

"""Two schedulers' ownership on a real etcd: how long a takeover and a hand-over take."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog
from tests.integration.coord.conftest import Connect
from tests.support.clock import FakeClock
from tests.support.etcd_server import EtcdServer
from tests.support.memory_coord import MemoryFenceStore
from tests.support.ownership_threads import OwnershipThreads
from tests.support.until import until

from tickrail.core.ids import Partition
from tickrail.engine.ownership import OwnershipSettings

LOG = structlog.get_logger()
pytestmark = pytest.mark.integration
PARTITIONS = 64
TTL = 4

Start = Callable[[], OwnershipThreads]


@pytest.fixture
def store() -> MemoryFenceStore:
    return MemoryFenceStore(FakeClock(), PARTITIONS)


@pytest.fixture
def start(connect: Connect, shared_etcd: EtcdServer, store: MemoryFenceStore) -> Iterator[Start]:
    made: list[OwnershipThreads] = []
    names = itertools.count()

    def one() -> OwnershipThreads:
        settings = OwnershipSettings(
            name=f"s{next(names)}",
            partitions=PARTITIONS,
            ttl=TTL,
            renew_every=1.2,
            quiet=0.5,
            clock_tolerance=1e12,  # the store's clock stands still
        )
        made.append(OwnershipThreads(settings, connect(shared_etcd.endpoint), store).start())
        return made[-1]

    yield one
    for process in made:
        process.die()
        assert process.errors == []


def balanced(a: OwnershipThreads, b: OwnershipThreads) -> bool:
    owned = a.ownership.owned().keys(), b.ownership.owned().keys()
    return len(owned[0] | owned[1]) == PARTITIONS and bool(owned[0]) and bool(owned[1])


def test_a_second_member_gets_its_share_without_a_pause(
    start: Start, store: MemoryFenceStore
) -> None:
    a = start()
    LOG.info("measured", first_member_owns_all=until(lambda: a.count == PARTITIONS))
    before = dict(store.epochs)
    b = start()
    took = until(lambda: b.count > 10 and balanced(a, b))
    LOG.info("measured", second_member_has_its_share=took)
    assert not a.ownership.owned().keys() & b.ownership.owned().keys()
    assert all(epoch > before[p] for p, epoch in b.ownership.owned().items())
    assert took < 0.5 + 3


def test_a_polite_leaver_is_replaced_within_a_second(start: Start) -> None:
    a = start()
    until(lambda: a.count == PARTITIONS)
    b = start()
    until(lambda: b.count > 10 and balanced(a, b))
    stopping = threading.Thread(target=b.ownership.stop)
    stopping.start()
    took = until(lambda: a.count == PARTITIONS, every=0.002)
    stopping.join(5)
    LOG.info("measured", hand_over_of_all_after_a_stop=took)
    assert took < 1


def test_a_dead_owner_is_replaced_when_its_lease_ends(start: Start) -> None:
    a = start()
    until(lambda: a.count == PARTITIONS)
    b = start()
    until(lambda: b.count > 10 and balanced(a, b))
    b.die()
    took = until(lambda: a.count == PARTITIONS, 15)
    LOG.info("measured", takeover_after_a_death=took, ttl=TTL)
    assert took < TTL + 2


def test_a_revoked_lease_is_noticed_and_the_process_comes_back(
    start: Start, connect: Connect, shared_etcd: EtcdServer
) -> None:
    a = start()
    until(lambda: a.count == PARTITIONS)
    first = a.ownership.status().identity
    control = connect(shared_etcd.endpoint)
    lease = control.snapshot().members[first].lease
    control.revoke(lease)
    until(lambda: a.ownership.status().identity not in {"", first})
    until(lambda: a.count == PARTITIONS)
    assert control.snapshot().owners[Partition(0)].lease != lease

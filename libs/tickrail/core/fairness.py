"""Which tenant's launch goes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def fair_order(items: Iterable[T], tenant: Callable[[T], object]) -> list[T]:
    """Items in turns, one of each tenant, each tenant's own in the order given."""
    queue = FairQueue(tenant)
    for item in items:
        queue.push(item)
    return [queue.pop() for _ in range(len(queue))]


class FairQueue(Generic[T]):
    """A queue that serves tenants in turns, each tenant's own items in the order of their coming.

    A tenant's first item stands at most as many places from the front as there are tenants,
    whatever the others have waiting.
    """

    def __init__(self, tenant: Callable[[T], object]) -> None:
        """An empty queue.

        Args:
            tenant: whose an item is.
        """
        self._tenant = tenant
        self._lanes: dict[object, deque[T]] = {}
        self._ring: deque[object] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._size

    def __iter__(self) -> Iterator[T]:
        """What waits, tenant by tenant."""
        for lane in self._lanes.values():
            yield from lane

    def serves(self, item: T) -> bool:
        """Whether something of the item's tenant waits already."""
        return self._tenant(item) in self._lanes

    def push(self, item: T) -> None:
        """Put an item behind its tenant's others; a tenant that is new here waits for its turn."""
        tenant = self._tenant(item)
        lane = self._lanes.get(tenant)
        if lane is None:
            lane = self._lanes[tenant] = deque()
            self._ring.append(tenant)
        lane.append(item)
        self._size += 1

    def push_back(self, item: T) -> None:
        """Give back what was popped last: it is the next again."""
        tenant = self._tenant(item)
        lane = self._lanes.get(tenant)
        if lane is None:
            lane = self._lanes[tenant] = deque()
        else:
            self._ring.remove(tenant)
        lane.appendleft(item)
        self._ring.appendleft(tenant)
        self._size += 1

    def pop(self) -> T:
        """The next item.

        Raises:
            IndexError: nothing waits.
        """
        tenant = self._ring.popleft()
        lane = self._lanes[tenant]
        item = lane.popleft()
        if lane:
            self._ring.append(tenant)
        else:
            del self._lanes[tenant]
        self._size -= 1
        return item

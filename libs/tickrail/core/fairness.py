"""Which tenant's launch goes next, and of which class."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def fair_order(
    items: Iterable[T], tenant: Callable[[T], object], weight: Callable[[T], int] = lambda _: 1
) -> list[T]:
    """Items in turns of their tenants, each tenant's own in the order given."""
    queue = FairQueue(tenant, weight)
    for item in items:
        queue.push(item)
    return [queue.pop() for _ in range(len(queue))]


class FairQueue(Generic[T]):
    """A queue that serves tenants in turns, each tenant's own items in the order of their coming.

    Deficit round robin: in its turn, a tenant is served as many items as its weight says, if it has
    so many; what it does not use is not kept. So a tenant's first item waits for one round at most,
    which is the sum of the others' weights, whatever they have waiting.
    """

    def __init__(
        self, tenant: Callable[[T], object], weight: Callable[[T], int] = lambda _: 1
    ) -> None:
        """An empty queue.

        Args:
            tenant: whose an item is.
            weight: its tenant's weight, 1 or more, as it is when the tenant's turn begins.
        """
        self._tenant = tenant
        self._weight = weight
        self._lanes: dict[object, deque[T]] = {}
        self._ring: deque[object] = deque()
        self._left = (
            0  # what the tenant at the front may still be served in this turn; 0: a new one
        )
        self._size = 0

    def __len__(self) -> int:
        """How many items wait."""
        return self._size

    def __iter__(self) -> Iterator[T]:
        """What waits, tenant by tenant."""
        for lane in self._lanes.values():
            yield from lane

    @property
    def first(self) -> T:
        """What the next `pop` answers.

        Raises:
            IndexError: nothing waits.
        """
        return self._lanes[self._ring[0]][0]

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
            self._ring.appendleft(tenant)
            self._left = 1
        elif self._ring[0] == tenant:
            # Its turn goes on; or it is alone, and a new turn of its own would begin.
            self._left += 1
        else:
            self._ring.remove(tenant)
            self._ring.appendleft(tenant)
            self._left = 1
        lane.appendleft(item)
        self._size += 1

    def pop(self) -> T:
        """The next item.

        Raises:
            IndexError: nothing waits.
        """
        tenant = self._ring[0]
        lane = self._lanes[tenant]
        if self._left == 0:
            self._left = max(1, self._weight(lane[0]))
        item = lane.popleft()
        self._left -= 1
        if not lane:
            del self._lanes[tenant]
            self._ring.popleft()
            self._left = 0
        elif self._left == 0:
            self._ring.rotate(-1)
        self._size -= 1
        return item


class Turns(Generic[K]):
    """Who of a few is next, by weights; what one does not use goes to the others.

    Smooth weighted round robin: over each sum of the weights every candidate that was always there
    has exactly its share, and the turns of one are spread among those of the others.
    """

    def __init__(self, weights: Mapping[K, int]) -> None:
        """Nobody had a turn.

        Args:
            weights: of the candidates; 1 for those that it does not name.
        """
        self._weights = weights
        self._credit: dict[K, int] = {}

    def next(self, candidates: Collection[K]) -> K:
        """Whose turn it is.

        Raises:
            ValueError: there is no candidate.
        """
        for k, credit in self._credit.items():
            # Who has nothing to do gathers no credit: it would be served in a crowd later.
            if credit > 0 and k not in candidates:
                self._credit[k] = 0
        total = 0
        for k in candidates:
            weight = self._weights.get(k, 1)
            self._credit[k] = self._credit.get(k, 0) + weight
            total += weight
        chosen = max(candidates, key=lambda k: self._credit[k])
        self._credit[chosen] -= total
        return chosen

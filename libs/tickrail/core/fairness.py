"""Which tenant's launch goes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def fair_order(items: Iterable[T], tenant: Callable[[T], object]) -> list[T]:
    """Items in turns, one of each tenant, each tenant's own in the order given.

    So a tenant's first item stands at most as many places from the front as there are tenants,
    whatever the others have waiting.
    """
    lanes: dict[object, deque[T]] = {}
    for item in items:
        lanes.setdefault(tenant(item), deque()).append(item)
    if len(lanes) == 1:
        return list(next(iter(lanes.values())))
    ring = deque(lanes.values())
    order: list[T] = []
    while ring:
        lane = ring.popleft()
        order.append(lane.popleft())
        if lane:
            ring.append(lane)
    return order

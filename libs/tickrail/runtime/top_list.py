"""The busiest of many, so that a label may name them and has a bound.

Who is in the list stays in it until another has been clearly busier: a line of a graph that comes
and goes with every scrape tells nothing. Activity halves every ten minutes.
"""

from __future__ import annotations

from typing import Final

HALF_LIFE: Final = 600.0
"""Seconds in which activity counts half."""
CLEARLY: Final = 1.5
"""So many times as busy is who takes another's place."""
MOST_KNOWN: Final = 10_000
"""So many are remembered; beyond them the least busy half is forgotten."""


class TopList:
    """Not safe for threads: its user holds a lock.

    Args:
        size: how many are named.
        now: the monotonic time.
    """

    def __init__(self, size: int, now: float) -> None:
        self._size = size
        self._at = now
        self._known: dict[str, float] = {}
        self._named: set[str] = set()

    def note(self, who: str, amount: float = 1.0) -> bool:
        """Somebody did something; whether it is to be named."""
        self._known[who] = self._known.get(who, 0.0) + amount
        if who in self._named:
            return True
        if len(self._named) < self._size:
            self._named.add(who)
            return True
        return False

    def rank(self, now: float) -> frozenset[str]:
        """Look anew who is busiest; who is not named any more."""
        factor = 0.5 ** ((now - self._at) / HALF_LIFE)
        self._at = now
        self._known = {who: score * factor for who, score in self._known.items()}
        order = sorted(self._known, key=self._known.__getitem__, reverse=True)
        left = set[str]()
        named = sorted(self._named, key=lambda who: self._known.get(who, 0.0))
        busier = [who for who in order[: self._size] if who not in self._named]
        for old, new in zip(named, busier, strict=False):
            if self._known[new] < CLEARLY * self._known.get(old, 0.0):
                break
            self._named.remove(old)
            self._named.add(new)
            left.add(old)
        if len(self._known) > MOST_KNOWN:
            kept = self._named.union(order[: MOST_KNOWN // 2])
            self._known = {who: score for who, score in self._known.items() if who in kept}
        return frozenset(left)

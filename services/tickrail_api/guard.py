"""Slows down who guesses keys: so many failures from an address, then it has to wait."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from tickrail.core.clock import Clock
from tickrail_api.addresses import site

_WINDOW: Final = 60.0
_ADDRESSES: Final = 10_000
_NOTED_AGAIN: Final = 600.0
_MOST_NOTES: Final = 60
"""Addresses noted in an hour."""
_HOUR: Final = 3600.0


@dataclass(slots=True)
class _Bucket:
    """How many more failures an address has, as of an instant."""

    left: float
    at: float
    noted: float | None = None


class Guard:
    """Failures by address. Safe to use from threads.

    Each address has a bucket of `most` failures, which fills again within a minute. Only failures
    take from it, and only what would have to be looked up is refused while it is empty: a key that
    was right a moment ago goes on working, and one of somebody else behind the same address gets
    through as soon as there is a failure left, within seconds of the guessing's end. IPv6 addresses
    are counted by their network of 64 bits. Each API process counts for itself.
    """

    def __init__(self, clock: Clock, most: int) -> None:
        """Allow `most` failures a minute from one address; 0: any number."""
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._notes: list[str] = []
        self._noted: list[float] = []
        self._lock = threading.Lock()

    def wait(self, address: str) -> int | None:
        """Seconds that an address has to wait before it may be wrong again; None: it need not."""
        if not self._most:
            return None
        with self._lock:
            found = self._buckets.get(site(address))
            if found is None:
                return None
            self._fill(found)
            return self._wait(found)

    def failed(self, address: str) -> int | None:
        """Count a failure; how long the address has to wait, if it had none left before."""
        if not self._most:
            return None
        place = site(address)
        with self._lock:
            found = self._buckets.get(place)
            if found is None:
                found = self._buckets[place] = _Bucket(float(self._most), self._clock.monotonic())
                if len(self._buckets) > _ADDRESSES:
                    self._buckets.popitem(last=False)
            self._buckets.move_to_end(place)
            self._fill(found)
            if (wait := self._wait(found)) is not None:
                return wait
            found.left -= 1.0
            if found.left < 1.0:
                self._note(place, found)
            return None

    def take_notes(self) -> Sequence[str]:
        """Addresses that have begun to be slowed down since this was last called.

        One address again after ten minutes at the earliest, and so many in an hour at most.
        """
        with self._lock:
            taken, self._notes = self._notes, []
        return taken

    def _fill(self, bucket: _Bucket) -> None:
        now = self._clock.monotonic()
        bucket.left = min(self._most, bucket.left + (now - bucket.at) * self._most / _WINDOW)
        bucket.at = now

    def _wait(self, bucket: _Bucket) -> int | None:
        return (
            None if bucket.left >= 1.0 else max(1, ceil((1.0 - bucket.left) * _WINDOW / self._most))
        )

    def _note(self, place: str, bucket: _Bucket) -> None:
        now = bucket.at
        self._noted = [at for at in self._noted if now - at < _HOUR]
        fresh = bucket.noted is None or now - bucket.noted >= _NOTED_AGAIN
        if fresh and len(self._noted) < _MOST_NOTES:
            bucket.noted = now
            self._noted.append(now)
            self._notes.append(place)

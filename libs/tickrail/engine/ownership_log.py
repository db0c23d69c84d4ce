"""The log lines about members and about what is owned.

One line for a batch; about what is owned at most one each second.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from tickrail.core.ids import Partition

EVERY_SECONDS = 1.0
_LOG = structlog.get_logger()


class OwnershipLog:
    """Says what changed since the last line. Used by one thread."""

    def __init__(self) -> None:
        self._said: frozenset[Partition] = frozenset()
        self._not_before = float("-inf")
        self._members: frozenset[str] = frozenset()

    def look(self, owned: Collection[Partition], now: float) -> float:
        """Say what changed, if it is time to; the seconds until there is something to say.

        Args:
            owned: the partitions owned now.
            now: the monotonic reading.
        """
        present = frozenset(owned)
        if present == self._said:
            return float("inf")
        if now < self._not_before:
            return self._not_before - now
        _LOG.info(
            "ownership changed",
            gained=sorted(present - self._said),
            lost=sorted(self._said - present),
            owned=len(present),
        )
        self._said, self._not_before = present, now + EVERY_SECONDS
        return float("inf")

    def members(self, present: Collection[str]) -> None:
        """Say who came and who went since the last call.

        Args:
            present: the identities of the members.
        """
        now = frozenset(present)
        if now != self._members:
            _LOG.info(
                "members changed",
                came=sorted(now - self._members),
                went=sorted(self._members - now),
                members=len(now),
            )
        self._members = now

"""When a member of a group will not read again by itself.

After its broker has stopped and begun again, librdkafka (seen with 2.16.0 and KIP-848) may go on
without a connection and make none, or hold partitions of which it never asks where to begin: it
polls, its broker answers others, and nothing comes. Only another client helps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tickrail.bus.config import KafkaSettings, admin_config
from tickrail.bus.errors import from_exception
from tickrail.core.clock import Clock

_log = structlog.get_logger(__name__)

STUCK_AFTER = 20.0
"""Seconds without reading: more than a join and the first look for offsets take."""
ANSWERED_FOR = 10.0
"""Seconds that others must have been answered: who gets over an outage does it by then."""
_LOOK_AGAIN = 5.0
_LONGEST = 160.0


def reads(stats: Mapping[str, Any], held: Collection[tuple[str, int]]) -> bool:
    """Whether a consumer is in touch with its group and fetches from what it holds.

    Args:
        stats: a statistics document of librdkafka.
        held: the partitions that it should fetch from, paused ones among them: those are fetched
            from in the sense of the document.
    """
    group = stats.get("cgrp") or {}
    return group.get("state") == "up" and all(
        (name, int(number)) not in held or part["fetch_state"] == "active"
        for name, topic in stats["topics"].items()
        for number, part in topic["partitions"].items()
    )


class StuckWatch:
    """How long a consumer has not read, and when to replace it."""

    def __init__(self, clock: Clock) -> None:
        """It reads, for all that is known."""
        self._clock = clock
        self._after = STUCK_AFTER
        self._look_at: float | None = None
        self._answered = False

    def note(self, *, fine: bool) -> None:
        """Hear whether it reads."""
        if fine:
            self._after = STUCK_AFTER
            self._look_at = None
            self._answered = False
        elif self._look_at is None:
            self._look_at = self._clock.monotonic() + self._after

    @property
    def over(self) -> bool:
        """Whether it has not read for so long that `replace` should be asked."""
        return self._look_at is not None and self._clock.monotonic() >= self._look_at

    def replace(self, *, answered: bool) -> bool:
        """Whether another client should take its place, where a new one is answered or not.

        Each time in vain it takes twice as long until the next.
        """
        ready = self._answered and answered
        self._answered = answered and not ready
        if ready:
            self._after = min(2 * self._after, _LONGEST)
        pause = self._after if ready else ANSWERED_FOR if answered else _LOOK_AGAIN
        self._look_at = self._clock.monotonic() + pause
        return ready


def answers(settings: KafkaSettings, timeout: float = 2.0) -> bool:
    """Whether a client that begins now gets an answer within so many seconds."""
    admin = AdminClient(admin_config(settings))
    try:
        admin.list_topics(timeout=timeout)
    except KafkaException as e:
        _log.debug("no broker answers a new client either", error=from_exception(e).detail)
        return False
    return True

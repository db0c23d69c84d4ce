"""Topics of queues that came after the scheduler's start: made when the relay misses them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog

log = structlog.get_logger("tickrail.new_topics")

EVERY = 2.0
"""Seconds between two looks at what the relay misses."""


class NewTopics:
    """Makes what the relay misses. Used by a thread of its own, since Kafka takes its time.

    Several schedulers may do so at once. For each queue it is done once: a topic that somebody has
    deleted afterwards is not made again behind their back.
    """

    def __init__(
        self,
        missing: Callable[[], Collection[str]],
        queues: Callable[[], Collection[str]],
        make: Callable[[Sequence[str]], Sequence[str]],
        made: Collection[str] = (),
    ) -> None:
        """What it asks and what it calls.

        Args:
            missing: the queues of which the relay misses a topic.
            queues: the queues that there are; of others nothing is made.
            make: makes the topics of these queues that are not there, and answers which.
            made: the queues whose topics were there at the start.
        """
        self._missing = missing
        self._queues = queues
        self._make = make
        self._made = set(made)

    def run_once(self) -> float:
        """One look; the seconds until the next.

        Raises:
            UnavailableError, BusError: the database or Kafka does not answer.
            SetupError: a topic has another number of partitions.
        """
        missed = set(self._missing()) - self._made
        if wanted := sorted(missed & set(self._queues())) if missed else []:
            for topic in self._make(wanted):
                log.info("topic_made", topic=topic)
            self._made.update(wanted)
        return EVERY

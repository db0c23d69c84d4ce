"""The relay: due launches -> Kafka, in fair order; the only publisher of launches.

A publication is handed to the bus, and the launch becomes `queued` once the delivery report says
that the message is in the topic. What happens in between is safe: a crash leaves the launch `due`
and the next owner publishes it again; the claim lets one of the two messages start it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import structlog

from tickrail.core.clock import Clock
from tickrail.core.fairness import fair_order
from tickrail.core.messages import LaunchMessage
from tickrail.core.ports import FenceReport, Owned, OwnerStore, Publication
from tickrail.core.ports_bus import Delivery, Publisher, UnknownTopicError
from tickrail.core.ports_metrics import Metrics

log = structlog.get_logger("tickrail.relay")


class Route(NamedTuple):
    """Where a publication goes."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """How the relay behaves.

    Attributes:
        partitions: P, the installation's number of partitions.
        outstanding: launches of one queue that may be `queued` at once in the whole installation;
            this owner's share is by the partitions it owns.
        scan_every: seconds between looks for due launches that no tick handed over (retries,
            triggers, what the last owner left).
        mark_batch: publications marked in one transaction.
        topic_backoff: seconds a queue rests whose topic is missing.
    """

    partitions: int
    outstanding: int = 2000
    scan_every: float = 0.5
    mark_batch: int = 1000
    topic_backoff: float = 5.0


@dataclass(slots=True)
class Relayed:
    """What one pass did. `busy`: there is more to do now."""

    published: int = 0
    marked: int = 0
    failed: int = 0
    fence: list[FenceReport] = field(default_factory=list)
    busy: bool = False


class Relay:
    """Publishes what is due. Used by the owner's thread alone."""

    def __init__(
        self,
        store: OwnerStore,
        publisher: Publisher,
        route: Callable[[Publication], Route],
        encode: Callable[[LaunchMessage], bytes],
        clock: Clock,
        metrics: Metrics,
        settings: RelaySettings,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._route = route
        self._encode = encode
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._waiting: deque[Publication] = deque()
        self._known: set[tuple[object, int]] = set()  # waiting, handed over, or not marked yet
        self._air: Counter[str] = Counter()  # handed over and not marked, by queue
        self._queued: Counter[str] = Counter()  # `queued` in the database as last read, by queue
        self._delivered: list[Publication] = []
        self._dead: list[Publication] = []
        self._resting: dict[str, float] = {}
        self._scan_at = 0.0
        self._more = False

    def wake(self) -> None:
        """Look for due launches at the next pass."""
        self._scan_at = 0.0

    def accept(self, launches: Iterable[Publication], now: datetime) -> None:
        """Take launches that the tick has just committed; those due later are found by a scan."""
        room = 2 * self._settings.outstanding
        for p in launches:
            if p.due_at > now:
                continue
            if len(self._waiting) >= room or self._more:
                self._more = True  # a scan in fair order will find them
                return
            self._take(p)

    def run_once(self, owned: Owned, wait: float = 0.0) -> Relayed:
        """One pass: reports -> marks, a scan if it is time, publications while there is room.

        Args:
            owned: the partitions this process may act for now.
            wait: seconds to wait for a delivery report if there is nothing else to do.
        """
        result = Relayed()
        self._collect(self._publisher.poll(0.0), result)
        self._mark(owned, result)
        now = self._clock.monotonic()
        if now >= self._scan_at or (self._more and not self._waiting):
            self._scan(owned, now)
        self._publish(owned, now, result)
        if wait and not result.published and not result.marked and self._publisher.outstanding:
            self._collect(self._publisher.poll(wait), result)
            self._mark(owned, result)
        result.busy = bool(self._more or self._waiting or self._publisher.outstanding)
        self._metrics.gauge("relay_outstanding", self._publisher.outstanding)
        return result

    def forget(self, owned: Owned) -> None:
        """Drop what waits for partitions that are no longer owned."""
        kept = deque(p for p in self._waiting if p.partition in owned)
        for p in self._waiting:
            if p.partition not in owned:
                self._known.discard((p.id, p.attempt))
        self._waiting = kept

    def drain(self, owned: Owned, timeout: float) -> None:
        """Before giving partitions up: wait for the reports and mark them."""
        result = Relayed()
        self._collect(self._publisher.flush(timeout), result)
        self._mark(owned, result)

    def _take(self, p: Publication) -> None:
        key = (p.id, p.attempt)
        if key not in self._known:
            self._known.add(key)
            self._waiting.append(p)

    def _collect(self, deliveries: Sequence[Delivery], result: Relayed) -> None:
        for delivery in deliveries:
            p = delivery.token
            if not isinstance(p, Publication):
                continue
            error = delivery.error
            if error is None:
                self._delivered.append(p)
                continue
            result.failed += 1
            self._air[p.queue] -= 1
            if error.permanent:
                self._dead.append(p)
                continue
            # Not known to be in the topic: still `due`, a scan publishes it again.
            self._known.discard((p.id, p.attempt))
            self._more = True
            if isinstance(error, UnknownTopicError):
                self._rest(p.queue, str(error))

    def _rest(self, queue: str, why: str) -> None:
        now = self._clock.monotonic()
        if self._resting.get(queue, 0.0) <= now:
            log.warning("queue_rests", queue=queue, reason=why)
        self._resting[queue] = now + self._settings.topic_backoff

    def _mark(self, owned: Owned, result: Relayed) -> None:
        size = self._settings.mark_batch
        while self._delivered:
            batch, rest = self._delivered[:size], self._delivered[size:]
            marked = self._store.mark_queued(owned, batch)
            self._delivered = rest
            for p in batch:
                self._known.discard((p.id, p.attempt))
                self._air[p.queue] -= 1
                self._queued[p.queue] += 1
            result.marked += marked.marked
            if marked.fence:
                result.fence.append(marked.fence)
        if self._dead:
            marked = self._store.mark_unpublishable(owned, self._dead, "too_large")
            self._metrics.count("dead_letters_total", marked.marked, reason="too_large")
            if marked.fence:
                result.fence.append(marked.fence)
            self._known.difference_update((p.id, p.attempt) for p in self._dead)
            self._dead.clear()

    def _scan(self, owned: Owned, now: float) -> None:
        share = self._share(owned)
        if not owned or len(self._waiting) >= share:
            return
        limit = max(10, 2 * share // len(owned))
        backlog = self._store.backlog(owned, limit)
        self._scan_at = now + self._settings.scan_every
        self._queued = Counter(backlog.queued)
        fresh = [p for p in backlog.due if (p.id, p.attempt) not in self._known]
        fresh.sort(key=lambda p: (p.due_at, p.scheduled_at))
        if fresh:
            oldest = (backlog.now - fresh[0].due_at).total_seconds()
            self._metrics.gauge("oldest_due_seconds", max(0.0, oldest))
        else:
            self._metrics.gauge("oldest_due_seconds", 0.0)
        # A full page may hide more behind it.
        self._more = len(fresh) >= limit
        for p in fair_order(fresh, lambda p: p.tenant)[: 2 * share]:
            self._take(p)

    def _share(self, owned: Owned) -> int:
        s = self._settings
        return max(1, s.outstanding * len(owned) // s.partitions)

    def _publish(self, owned: Owned, now: float, result: Relayed) -> None:
        passed: list[Publication] = []
        try:
            self._publish_waiting(owned, now, result, passed)
        finally:
            self._waiting.extendleft(reversed(passed))

    def _publish_waiting(
        self, owned: Owned, now: float, result: Relayed, passed: list[Publication]
    ) -> None:
        share = self._share(owned)
        recounted = False
        while self._waiting:
            p = self._waiting.popleft()
            if p.partition not in owned or self._resting.get(p.queue, 0.0) > now:
                # Found again by a scan: by the new owner, or when the queue has rested.
                self._known.discard((p.id, p.attempt))
                continue
            passed.append(p)
            if self._full(p.queue, share) and not recounted:
                # What was queued may have been taken by workers meanwhile.
                self._queued = Counter(self._store.queued(owned))
                recounted = True
            if self._full(p.queue, share):
                continue
            if not self._send(p, owned):
                break  # the local queue is full: wait for reports
            passed.pop()
            result.published += 1
        if result.published:
            self._metrics.count("relay_published_total", result.published)

    def _full(self, queue: str, share: int) -> bool:
        return self._queued[queue] + self._air[queue] >= share

    def _send(self, p: Publication, owned: Owned) -> bool:
        topic, partition = self._route(p)
        message = LaunchMessage(
            p.id, p.scheduled_at, p.job, p.tenant, p.attempt, owned[p.partition], p.partition
        )
        sent = self._publisher.publish(
            topic, partition, str(p.job).encode(), self._encode(message), None, p
        )
        if sent:
            self._air[p.queue] += 1
        return sent

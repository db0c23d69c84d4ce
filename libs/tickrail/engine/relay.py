"""The relay: due launches -> Kafka, in fair order; the only publisher of launches.

A publication is handed to the bus, and the launch becomes `queued` once the delivery report says
that the message is in the topic. What happens in between is safe: a crash leaves the launch `due`
and the next owner publishes it again; the claim lets one of the two messages start it.

Each class of a queue (a lane) has a topic, a window and a line of its own, so that what is caught
up with after an outage, which is of a lower class, stands in nobody's way. The classes of a queue
go in turns, and so do the tenants in a line, each by its weight. What a limit would refuse is left
in the database (brakes.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import structlog

from tickrail.core.clock import Clock
from tickrail.core.fairness import FairQueue, Turns, fair_order
from tickrail.core.ids import LaunchId, TenantId
from tickrail.core.limits import CLASS_WEIGHTS
from tickrail.core.messages import LaunchMessage
from tickrail.core.ports import FenceReport, Lane, Owned, OwnerStore, Place, Publication
from tickrail.core.ports_bus import Delivery, Publisher, UnknownTopicError
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import (
    NO_TRACER,
    NOTHING,
    TRACEPARENT,
    Span,
    SpanKind,
    Tracer,
)
from tickrail.engine.brakes import Brakes
from tickrail.engine.windows import Windows

log = structlog.get_logger("tickrail.relay")
_CLASSES = dict(enumerate(CLASS_WEIGHTS))


class Route(NamedTuple):
    """Where a publication goes."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """How the relay behaves.

    Attributes:
        partitions: P, the installation's number of partitions.
        outstanding: launches of one class of one queue that may be `queued` at once in the whole
            installation; this owner's share is by the partitions it owns.
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


class Lines:
    """What waits to be published, a line for each lane."""

    def __init__(self) -> None:
        self._lines: dict[Lane, FairQueue[Publication]] = {}
        self.weights: dict[TenantId, int] = {}  # as last read; 1 for others

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Publication]:
        """All that waits."""
        for line in self._lines.values():
            yield from line

    def busy(self) -> list[tuple[Lane, FairQueue[Publication]]]:
        """The lines where something waits."""
        return [(lane, line) for lane, line in self._lines.items() if line]

    def queues(self) -> dict[str, dict[int, FairQueue[Publication]]]:
        """By queue and class the lines where something waits."""
        found: dict[str, dict[int, FairQueue[Publication]]] = {}
        for lane, line in sorted(self.busy(), key=lambda x: x[0]):
            found.setdefault(lane.queue, {})[lane.priority] = line
        return found

    def of(self, lane: Lane) -> FairQueue[Publication]:
        """The line of a lane."""
        line = self._lines.get(lane)
        if line is None:
            line = self._lines[lane] = FairQueue(lambda p: p.tenant, self.weight)
        return line

    def weight(self, p: Publication) -> int:
        """The weight of its tenant."""
        return self.weights.get(p.tenant, p.weight)

    def keep(self, wanted: Callable[[Publication], bool]) -> list[Publication]:
        """Drop the others; which those were."""
        everything = list(self)
        self._lines.clear()
        for p in everything:
            if wanted(p):
                self.of(p.lane).push(p)
        return [p for p in everything if not wanted(p)]


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
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._store = store
        self._tracer = tracer
        self._spans: dict[tuple[LaunchId, int], Span] = {}  # of what is handed over
        self._publisher = publisher
        self._route = route
        self._encode = encode
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._waiting = Lines()
        self._known: set[tuple[object, int]] = set()  # waiting, handed over, or not marked yet
        self._air: Counter[Lane] = Counter()  # handed over and not marked
        self._delivered: list[Publication] = []
        self._dead: list[Publication] = []
        self._resting: dict[str, float] = {}
        self._missing: dict[str, tuple[str, float]] = {}
        self._scan_at = 0.0
        self._more: set[Lane] = set()  # lanes with due launches that only a scan will find
        self._brakes = Brakes()
        self._windows = Windows()
        self._turns: dict[str, Turns[int]] = {}
        self._waits = False  # a launch waits at a limit, as last read
        self._told = set[str]()  # queues of which it was told how much is queued

    def wake(self) -> None:
        """Look for due launches at the next pass."""
        self._scan_at = 0.0

    def accept(self, launches: Iterable[Publication], now: datetime) -> None:
        """Take launches that the tick has just committed; those due later are found by a scan."""
        room = self._room
        for p in launches:
            if p.due_at > now:
                continue
            lane = p.lane
            line = self._waiting.of(lane)
            if self._brakes.learn(p):
                self._scan_at = 0.0
            if (lane in self._more or len(line) >= room) and line.serves(p):
                self._more.add(lane)  # a scan will find it, behind what is older
            else:
                self._take(p)

    def run_once(self, owned: Owned, wait: float = 0.0) -> Relayed:
        """One pass: reports -> marks, a scan if it is time, publications while there is room.

        Args:
            owned: the partitions that this process may act for at this moment.
            wait: seconds to wait for a delivery report if there is nothing else to do.
        """
        result = Relayed()
        self._collect(self._publisher.poll(0.0), result)
        self._mark(owned, result)
        now = self._clock.monotonic()
        if now >= self._scan_at or self._ran_dry(now):
            self._scan(owned, now, result)
        self._publish(owned, now, result)
        if wait and not result.published and not result.marked and self._publisher.outstanding:
            self._collect(self._publisher.poll(wait), result)
            self._mark(owned, result)
        result.busy = bool(self._more or self._waiting or self._publisher.outstanding)
        self._metrics.gauge("relay_outstanding", self._publisher.outstanding)
        return result

    def forget(self, owned: Owned) -> None:
        """Drop what waits for partitions that are no longer owned."""
        for p in self._waiting.keep(lambda p: p.partition in owned):
            self._known.discard((p.id, p.attempt))

    def drain(self, owned: Owned, timeout: float) -> None:
        """Before giving partitions up: wait for the reports and mark them."""
        result = Relayed()
        self._collect(self._publisher.flush(timeout), result)
        self._mark(owned, result)

    @property
    def scan_at(self) -> float:
        """The monotonic time of the next look for due launches; never while Kafka is away."""
        return float("inf") if self.away else self._scan_at

    @property
    def away(self) -> bool:
        """Whether something is known to keep every message: the brokers do not answer."""
        return self._publisher.trouble is not None

    @property
    def missing(self) -> Mapping[str, str]:
        """The queues that rest since a topic of theirs is missing, and which; from any thread."""
        now = self._clock.monotonic()
        return {queue: why for queue, (why, until) in list(self._missing.items()) if until > now}

    def _take(self, p: Publication) -> None:
        key = (p.id, p.attempt)
        if key not in self._known:
            self._known.add(key)
            self._waiting.of(p.lane).push(p)

    def _collect(self, deliveries: Sequence[Delivery], result: Relayed) -> None:
        for delivery in deliveries:
            p = delivery.token
            if not isinstance(p, Publication):
                continue
            error = delivery.error
            if self._spans and (span := self._spans.pop((p.id, p.attempt), None)) is not None:
                span.end(None if error is None else str(error))
            if error is None:
                self._delivered.append(p)
                self._missing.pop(p.queue, None)
                continue
            result.failed += 1
            self._air[p.lane] -= 1
            self._brakes.landed(p)
            if error.permanent:
                self._dead.append(p)
                continue
            # Not known to be in the topic: still `due`, a scan publishes it again.
            self._known.discard((p.id, p.attempt))
            self._more.add(p.lane)
            if isinstance(error, UnknownTopicError):
                self._rest(p.queue, str(error))

    def _rest(self, queue: str, why: str) -> None:
        now = self._clock.monotonic()
        if self._resting.get(queue, 0.0) <= now:
            log.warning("queue_rests", queue=queue, reason=why)
        self._resting[queue] = now + self._settings.topic_backoff
        self._missing[queue] = (why, now + 2 * self._settings.topic_backoff)

    def _mark(self, owned: Owned, result: Relayed) -> None:
        size = self._settings.mark_batch
        while self._delivered:
            batch, rest = self._delivered[:size], self._delivered[size:]
            marked = self._store.mark_queued(owned, batch)
            self._delivered = rest
            for p in batch:
                self._known.discard((p.id, p.attempt))
                self._air[p.lane] -= 1
                self._brakes.landed(p)
                self._windows.marked(p.lane, p.partition)
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

    def _scan(self, owned: Owned, now: float, result: Relayed) -> None:
        if not owned:
            return
        if self._waits:
            roused = self._store.rouse(owned)
            if roused.fence:
                result.fence.append(roused.fence)
        room, share = self._room, self._share(owned)
        limit = max(10, 2 * share // len(owned))
        if any(len(line) >= share for _, line in self._waiting.busy()):
            limit = 10  # one line is long enough; the others, of which little waits, are looked for
        for _, line in self._waiting.busy():
            self._brakes.learn(line.first)
        backlog = self._store.backlog(owned, limit, self._brakes.pairs)
        self._scan_at = now + self._settings.scan_every
        self._seen(backlog.queued, now)
        self._waits = backlog.waits
        self._waiting.weights = {p.tenant: p.weight for p in backlog.due}
        self._brakes.renew(
            backlog.loads, len(owned), self._settings.partitions, any_=backlog.limited
        )
        fresh, known = list[Publication](), list[Publication]()
        for p in backlog.due:
            (known if (p.id, p.attempt) in self._known else fresh).append(p)
        fresh.sort(key=lambda p: (p.due_at, p.scheduled_at))
        if backlog.limited:
            fresh = self._useful(fresh)
        due = [p.due_at for p in known if not self._brakes.paused(p)]
        due += [p.due_at for p in fresh[:1]]
        oldest = (backlog.now - min(due)).total_seconds() if due else 0.0
        self._metrics.gauge("oldest_due_seconds", max(0.0, oldest))
        self._tell_queued(backlog.queued)
        # A full page may hide more behind it.
        found = Counter(p.lane for p in fresh)
        self._more = {lane for lane, count in found.items() if count >= limit}
        for p in fair_order(fresh, lambda p: p.tenant, self._waiting.weight):
            line = self._waiting.of(p.lane)
            if len(line) < room or not line.serves(p):
                self._take(p)

    def _tell_queued(self, queued: Mapping[Place, int]) -> None:
        found = Counter[str]()
        for (lane, _), count in queued.items():
            found[lane.queue] += count
        for queue in self._told - found.keys():
            self._metrics.gauge("launches_queued", 0, queue=queue)
        for queue, count in found.items():
            self._metrics.gauge("launches_queued", count, queue=queue)
        self._told |= found.keys()

    def _useful(self, fresh: Iterable[Publication]) -> list[Publication]:
        """What limits let through until the next scan, of each tenant in each lane."""
        brakes, found = self._brakes, list[Publication]()
        taken = Counter((p.tenant, p.lane) for p in self._waiting)
        for p in fresh:
            # Of a full queue each tenant keeps one in the line: so they stay in turns.
            room = min(brakes.own(p), max(1, brakes.shared(p.queue)))
            if taken[p.tenant, p.lane] < room and not brakes.paused(p):
                taken[p.tenant, p.lane] += 1
                found.append(p)
        return found

    def _ran_dry(self, now: float) -> bool:
        """Whether a line is empty that a scan would fill."""
        return any(
            not self._waiting.of(lane) and self._resting.get(lane.queue, 0.0) <= now
            for lane in self._more
        )

    @property
    def _room(self) -> int:
        """How long a line may grow; a tenant of which nothing waits may add one more."""
        return 2 * self._settings.outstanding

    def _share(self, owned: Owned) -> int:
        s = self._settings
        return max(1, s.outstanding * len(owned) // s.partitions)

    def _publish(self, owned: Owned, now: float, result: Relayed) -> None:
        share = self._share(owned)
        if any(self._full(lane, share) for lane, _ in self._waiting.busy()):
            # What was queued may have been taken by workers meanwhile.
            self._seen(self._store.queued(owned), now)
        for queue, lines in self._waiting.queues().items():
            rests = self._resting.get(queue, 0.0) > now
            turns = self._turns.setdefault(queue, Turns(_CLASSES))
            while heads := self._heads(queue, lines, share, {} if rests else owned):
                line = heads[turns.next(heads)]
                p = line.pop()
                if not self._send(p, owned):
                    line.push_back(p)
                    break  # the local queue is full: wait for reports
                result.published += 1
        if result.published:
            self._metrics.count("relay_published_total", result.published)

    def _heads(
        self, queue: str, lines: Mapping[int, FairQueue[Publication]], share: int, owned: Owned
    ) -> dict[int, FairQueue[Publication]]:
        """The lines of a queue whose first may be published now.

        What may not stands in nobody's way: a scan finds it again, by the new owner, when the queue
        has rested, or when a limit of its tenant has room.
        """
        heads = {}
        for rank, line in lines.items():
            while line and not self._passes(line.first, owned):
                p = line.pop()
                self._known.discard((p.id, p.attempt))
            if line and not self._full(Lane(queue, rank), share):
                heads[rank] = line
        return heads if self._brakes.shared(queue) else {}

    def _passes(self, p: Publication, owned: Owned) -> bool:
        return p.partition in owned and self._brakes.own(p) > 0 and not self._brakes.paused(p)

    def _full(self, lane: Lane, share: int) -> bool:
        return self._windows.full(lane, self._air[lane], share)

    def _seen(self, queued: Mapping[Place, int], now: float) -> None:
        self._windows.observe(queued, [lane for lane, _ in self._waiting.busy()], now)

    def _span(self, p: Publication, topic: str) -> Span:
        return self._tracer.begin(
            "publish",
            p.trace,
            SpanKind.PRODUCER,
            messaging_system="kafka",
            messaging_destination_name=topic,
            launch=str(p.id),
            attempt=p.attempt,
        )

    def _send(self, p: Publication, owned: Owned) -> bool:
        topic, partition = self._route(p)
        message = LaunchMessage(
            p.id,
            p.scheduled_at,
            p.job,
            p.tenant,
            p.attempt,
            owned[p.partition],
            p.partition,
            p.trace,
        )
        span = NOTHING if p.trace is None else self._span(p, topic)
        headers = None
        if span.traceparent is not None:
            headers = [(TRACEPARENT, span.traceparent.encode())]
        sent = self._publisher.publish(
            topic, partition, str(p.job).encode(), self._encode(message), headers, p
        )
        if sent and headers:
            self._spans[p.id, p.attempt] = span
        if sent:
            self._air[p.lane] += 1
            self._brakes.sent(p)
        return sent

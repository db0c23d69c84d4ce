"""The bus ports in memory: topics, a publisher, and consumers that share a group.

Rebalances happen inside `poll` and `close` of the member concerned, as in Kafka. Tests switch the
faults: `down`, `refuse` (topics), `limit_bytes`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from tickrail.core.ports_bus import (
    Assignment,
    BusError,
    Delivery,
    Headers,
    MessageTooLargeError,
    Position,
    RebalanceListener,
    Record,
    UnknownTopicError,
)
from tickrail.core.ports_tracing import TRACEPARENT

Place = tuple[str, int]


@dataclass
class Stored:
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]


@dataclass
class MemoryBus:
    """The broker."""

    limit_bytes: int = 1_000_000
    down: bool = False
    logs: dict[str, list[list[Stored]]] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    members: dict[str, list[MemoryConsumer]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def create(self, topic: str, partitions: int) -> None:
        with self.changed:
            self.logs.setdefault(topic, [[] for _ in range(partitions)])
            self.changed.notify_all()

    def delete(self, topic: str) -> None:
        with self.changed:
            self.logs.pop(topic, None)
            for place in [k for k in self.committed if k[1] == topic]:
                del self.committed[place]

    def partition_of(self, topic: str, partition: int, key: bytes | None) -> int:
        """The partition asked for; of those that leave it open, the key's."""
        if partition != -1:
            return partition
        return crc32(key or b"") % max(1, len(self.logs.get(topic, ())))

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes, headers: Headers | None
    ) -> int:
        with self.changed:
            partition = self.partition_of(topic, partition, key)
            if topic not in self.logs or not 0 <= partition < len(self.logs[topic]):
                raise UnknownTopicError(f"no partition {partition} of {topic}", topic=topic)
            if len(value) > self.limit_bytes:
                raise MessageTooLargeError(f"{len(value)} bytes", topic=topic)
            log = self.logs[topic][partition]
            log.append(Stored(key, value, list(headers or ())))
            self.changed.notify_all()
            return len(log) - 1

    def messages(self, topic: str) -> list[Stored]:
        """Everything in a topic, partition after partition."""
        with self.changed:
            return [m for log in self.logs.get(topic, []) for m in log]

    def position(self, group: str, topic: str, partition: int) -> int | None:
        """What the group has committed."""
        return self.committed.get((group, topic, partition))

    def wanted(self, group: str) -> dict[MemoryConsumer, set[Place]]:
        """Who should hold what, once everybody has polled."""
        members = [m for m in self.members.get(group, []) if not m.closed]
        shares: dict[MemoryConsumer, set[Place]] = {m: set() for m in members}
        topics = sorted({t for m in members for t in m.topics if t in self.logs})
        for topic in topics:
            takers = [m for m in members if topic in m.topics]
            for partition in range(len(self.logs[topic])):
                shares[takers[partition % len(takers)]].add((topic, partition))
        return shares


class MemoryPublisher:
    """`core.ports_bus.Publisher`."""

    def __init__(self, bus: MemoryBus, queue_messages: int = 20_000) -> None:
        self._bus = bus
        self._queue: deque[tuple[str, int, bytes | None, bytes, Headers | None, object]] = deque()
        self._limit = queue_messages
        self._reports: list[Delivery] = []

    def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers | None,
        token: object,
    ) -> bool:
        if len(self._queue) >= self._limit:
            return False
        self._queue.append((topic, partition, key, value, headers, token))
        return True

    def poll(self, timeout: float) -> list[Delivery]:
        del timeout
        while self._queue and not self._bus.down:
            topic, asked, key, value, headers, token = self._queue.popleft()
            partition = self._bus.partition_of(topic, asked, key)
            try:
                offset = self._bus.append(topic, partition, key, value, headers)
                self._reports.append(Delivery(token, None, offset, partition))
            except BusError as error:
                self._reports.append(Delivery(token, error, -1))
        reports, self._reports = self._reports, []
        return reports

    @property
    def outstanding(self) -> int:
        return len(self._queue) + len(self._reports)

    @property
    def trouble(self) -> BusError | None:
        return BusError("the bus is down") if self._bus.down else None

    def flush(self, timeout: float) -> list[Delivery]:
        return self.poll(timeout)

    def give_up(self) -> None:
        """What waits is reported as failed, as when its delivery timeout has passed."""
        while self._queue:
            *_, token = self._queue.popleft()
            self._reports.append(Delivery(token, BusError("not delivered in time"), -1))

    def close(self, timeout: float) -> list[Delivery]:
        reports = self.poll(timeout)
        self.give_up()
        return reports + self._reports


class MemoryConsumer:
    """`core.ports_bus.Consumer`."""

    def __init__(self, bus: MemoryBus, group: str) -> None:
        self.topics: tuple[str, ...] = ()
        self.closed = False
        self._bus = bus
        self._group = group
        self._owner: int | None = None
        self._listener: RebalanceListener | None = None
        self._held: dict[Place, int] = {}
        self._next: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._generation = 0
        self._lost = False

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        if self._listener is not None:
            raise RuntimeError("subscribed already")
        self._owner = threading.get_ident()
        self.topics, self._listener = tuple(topics), listener
        with self._bus.changed:
            self._bus.members.setdefault(self._group, []).append(self)
            self._bus.changed.notify_all()

    def throw_out(self) -> None:
        """The group drops this member; it hears so at its next poll, and joins again."""
        self._lost = True

    def poll(self, max_messages: int, timeout: float) -> list[Record]:
        self._check_owner()
        self._rebalance()
        with self._bus.changed:
            self._bus.changed.wait_for(self._has_records, timeout)
        self._rebalance()
        self._begin_anew()
        records: list[Record] = []
        for place, generation in self._held.items():
            if place in self._paused or self._bus.down:
                continue
            log, start = self._log(place), self._next[place]
            for offset in range(start, min(len(log), start + max_messages - len(records))):
                trace = dict(log[offset].headers).get(TRACEPARENT)
                context = None if trace is None else trace.decode()
                records.append(Record(*place, offset, log[offset].value, generation, context))
                self._next[place] = offset + 1
        return records

    def pause(self, partitions: Iterable[Assignment]) -> None:
        self._check_owner()
        self._paused.update((t, p) for t, p, g in partitions if self._held.get((t, p)) == g)

    def resume(self, partitions: Iterable[Assignment]) -> None:
        self._check_owner()
        self._paused -= {(t, p) for t, p, g in partitions if self._held.get((t, p)) == g}

    def commit(self, positions: Iterable[Position]) -> None:
        self._check_owner()
        for topic, partition, generation, offset in positions:
            if self._held.get((topic, partition)) == generation and not self._bus.down:
                self._bus.committed[(self._group, topic, partition)] = offset

    @property
    def assignments(self) -> Sequence[Assignment]:
        return [Assignment(*place, g) for place, g in self._held.items()]

    @property
    def trouble(self) -> BusError | None:
        if self._bus.down:
            return BusError("the bus is down")
        for topic in self.topics:
            if topic not in self._bus.logs:
                return UnknownTopicError(f"no topic {topic}", topic=topic)
        return None

    def close(self) -> None:
        if self._owner is not None:
            self._check_owner()
            self._revoke(list(self._held))
        self.closed = True

    # --- inside ----------------------------------------------------------------------------------

    def _check_owner(self) -> None:
        if threading.get_ident() != self._owner:
            raise RuntimeError("a consumer belongs to the thread that subscribed it")

    def _log(self, place: Place) -> list[Stored]:
        parts = self._bus.logs.get(place[0], [])
        return parts[place[1]] if place[1] < len(parts) else []

    def _begin_anew(self) -> None:
        """Topics that were made anew without a rebalance: their offsets begin again."""
        assert self._listener is not None
        for place in [p for p, at in self._next.items() if at > len(self._log(p)) > 0]:
            gone = Assignment(*place, self._held[place])
            self._generation += 1
            self._held[place], self._next[place] = self._generation, 0
            self._paused.discard(place)
            self._listener.lost([gone])
            self._listener.assigned([Assignment(*place, self._generation)])

    def _has_records(self) -> bool:
        return (
            self._lost
            or bool(self._going())
            or bool(self._coming())
            or any(
                self._next[p] != len(self._log(p)) > 0 and not self._bus.down
                for p in self._held
                if p not in self._paused
            )
        )

    def _going(self) -> list[Place]:
        wanted = self._bus.wanted(self._group)[self]
        return [p for p in self._held if p not in wanted]

    def _coming(self) -> list[Place]:
        wanted = self._bus.wanted(self._group)[self]
        others = {p for m in self._bus.members[self._group] if m is not self for p in m._held}
        return sorted(wanted - set(self._held) - others)

    def _rebalance(self) -> None:
        assert self._listener is not None
        if self._lost:
            self._lost = False
            gone = self.assignments
            self._forget(list(self._held))
            if gone:
                self._listener.lost(gone)
        self._revoke(self._going())
        new: list[Assignment] = []
        for place in self._coming():
            self._generation += 1
            self._held[place] = self._generation
            self._next[place] = self._bus.position(self._group, *place) or 0
            new.append(Assignment(*place, self._generation))
        if new:
            self._listener.assigned(new)

    def _revoke(self, places: list[Place]) -> None:
        if places and self._listener is not None:
            going = [Assignment(*p, self._held[p]) for p in places]
            self.commit(self._listener.revoked(going))
        self._forget(places)

    def _forget(self, places: list[Place]) -> None:
        with self._bus.changed:
            for place in places:
                del self._held[place]
                self._next.pop(place, None)
                self._paused.discard(place)
            self._bus.changed.notify_all()

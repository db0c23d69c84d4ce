"""Kafka in a simulation: it loses, doubles and delays messages, and throws members out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tests.simulation.kernel import Kernel, Process
from tests.support.memory_bus import MemoryBus, MemoryConsumer, Stored

from tickrail.core.ports_bus import (
    BusError,
    Delivery,
    Headers,
    Position,
    Record,
    UnknownTopicError,
)

SESSION = 6.0
"""So long a member of a group may be silent, in seconds."""
DELIVERY = 8.0
"""So long a message is tried, in seconds."""


@dataclass
class Fate:
    """What becomes of the next message after this time: `lose`, `double`, `late` or `unsure`."""

    at: float
    what: str
    seconds: float = 0.0


class SimBus(MemoryBus):
    """Kafka. A message that was lost leaves a gap in the offsets."""

    def __init__(self, kernel: Kernel, letters: str) -> None:
        super().__init__()
        self.kernel = kernel
        self.version = 0
        self.births: Counter[str] = Counter()
        self.truncated: set[str] = set()
        self.letters = letters
        self.fates: list[Fate] = []
        self.arrived: Callable[[str, int, int, Stored], None] = lambda *_: None
        self.acknowledged: Callable[[object], None] = lambda _token: None

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes, headers: Headers | None
    ) -> int:
        if topic not in self.logs:
            raise UnknownTopicError(f"no topic {topic}", topic=topic)
        parts = self.logs[topic]
        if partition == -1:
            partition = crc32(key or b"") % len(parts)
        fate = None if topic == self.letters else self._fate()
        message = Stored(key, value, list(headers or ()))
        if fate is not None and fate.what == "late":
            self.kernel.at(
                self.kernel.now + fate.seconds, lambda: self._put(topic, partition, message)
            )
            return len(parts[partition])
        offset = self._put(topic, partition, message)
        if fate is not None and fate.what == "double":
            self._put(topic, partition, message)
        if fate is not None and fate.what == "lose":
            self.logs[topic][partition][offset] = None  # type: ignore[call-overload]
        return offset

    def _put(self, topic: str, partition: int, message: Stored) -> int:
        if topic not in self.logs:
            return -1
        log = self.logs[topic][partition]
        log.append(message)
        self.arrived(topic, partition, len(log) - 1, message)
        return len(log) - 1

    def _fate(self) -> Fate | None:
        for fate in self.fates:
            if fate.at <= self.kernel.now and fate.what != "unsure":
                self.fates.remove(fate)
                self.kernel.done.append(fate.what)
                self.kernel.say("bus", f"!! {fate.what}", fate.seconds or "")
                return fate
        return None

    def unsure(self) -> bool:
        """Whether the next report says that nothing is known of its message."""
        for fate in self.fates:
            if fate.at <= self.kernel.now and fate.what == "unsure":
                self.fates.remove(fate)
                self.kernel.done.append("unsure")
                return True
        return False

    def make_anew(self, topic: str) -> None:
        """The topic is deleted and made again; no rebalance tells of it."""
        partitions = len(self.logs[topic])
        self.delete(topic)
        self.create(topic, partitions)
        self.births[topic] += 1

    def truncate(self, topic: str, count: int) -> None:
        """The last messages of each partition are gone; their offsets come again."""
        self.truncated.add(topic)
        for log in self.logs.get(topic, []):
            del log[max(0, len(log) - count) :]

    def empty(self, topic: str) -> None:
        """Every message of a topic is gone; offsets go on."""
        for log in self.logs.get(topic, []):
            log[:] = [None] * len(log)  # type: ignore[list-item]

    def wanted(self, group: str) -> dict[MemoryConsumer, set[tuple[str, int]]]:
        shares = super().wanted(group)
        out = [m for m in shares if isinstance(m, SimConsumer) and m.evicted]
        if not out:
            return shares
        for m in out:
            m.closed = True
        try:
            return {**super().wanted(group), **{m: set() for m in out}}
        finally:
            for m in out:
                m.closed = False

    def housekeeping(self) -> None:
        """Members that are silent for too long are thrown out."""
        now = self.kernel.now
        for member in [m for ms in self.members.values() for m in ms]:
            if not isinstance(member, SimConsumer) or member.closed:
                continue
            process = member.process
            if process.alive and process.frozen_until <= now:
                member.seen_at = now
            elif now - member.seen_at > SESSION and not member.evicted:
                self.version += 1
                member.evicted = member._lost = True
                if not process.alive:
                    member.closed = True
                    member._held.clear()


class SimPublisher:
    """`core.ports_bus.Publisher`: a message is on its way, and so is its report."""

    def __init__(self, bus: SimBus, process: Process, limit: int = 20_000) -> None:
        self._bus = bus
        self._kernel = bus.kernel
        self._process = process
        self._limit = limit
        self._away = 0
        self._reports: list[Delivery] = []

    @property
    def trouble(self) -> BusError | None:
        """A simulated client is never told that all brokers are down; its reports say it."""
        return None

    def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers | None,
        token: object,
    ) -> bool:
        if self._away >= self._limit:
            return False
        self._kernel.before(self._process, "publish", "local")
        self._away += 1
        born = self._kernel.now
        message = (topic, partition, key, value, headers)

        def send() -> None:
            kernel = self._kernel
            process, now = self._process, kernel.now
            arrives = process.reaches("kafka", now) and process.reaches("produce", now)
            if kernel.down["kafka"] or kernel.down["produce"] or not arrives:
                if kernel.now - born > DELIVERY:
                    self._report(token, BusError("not delivered in time"), -1)
                else:
                    kernel.at(kernel.now + 0.5, send, self._process)
                return
            try:
                offset = self._bus.append(*message)
            except BusError as error:
                self._later(token, error, -1)
                return
            if self._bus.unsure():
                self._later(token, BusError("no answer"), -1)
            else:
                self._later(token, None, offset)

        rng = self._process.rng
        # What has left the machine arrives, whatever becomes of the sender.
        sender = self._process if rng.random() < 0.5 else None
        self._kernel.at(born + rng.uniform(0.0, 0.01), send, sender)
        return True

    def _later(self, token: object, error: BusError | None, offset: int) -> None:
        if error is None:
            self._bus.acknowledged(token)
        at = self._kernel.now + self._process.rng.uniform(0.0, 0.01)
        self._kernel.at(at, lambda: self._report(token, error, offset), self._process)

    def _report(self, token: object, error: BusError | None, offset: int) -> None:
        self._away -= 1
        self._reports.append(Delivery(token, error, offset))

    def poll(self, timeout: float) -> list[Delivery]:
        if timeout and self._away and not self._reports:
            self._kernel.sleep(self._process, min(timeout, 0.02))
        self._kernel.before(self._process, "report", "local")
        reports, self._reports = self._reports, []
        return reports

    @property
    def outstanding(self) -> int:
        return self._away + len(self._reports)

    def flush(self, timeout: float) -> list[Delivery]:
        until = self._kernel.now + timeout
        while self._away and self._kernel.now < until:
            before = self._kernel.now
            self._kernel.sleep(self._process, min(0.05, timeout))
            if self._kernel.now == before:
                break
        return self.poll(0.0)

    def close(self, timeout: float) -> list[Delivery]:
        return self.flush(timeout)


class SimConsumer(MemoryConsumer):
    """`core.ports_bus.Consumer`."""

    def __init__(
        self,
        bus: SimBus,
        group: str,
        process: Process,
        committed: Callable[[Process, str, int, int], None],
    ) -> None:
        super().__init__(bus, group)
        self.process = process
        self.evicted = False
        self.seen_at = bus.kernel.now
        self._sim = bus
        self._seen = -1
        self._on_commit = committed
        self._uncommitted: list[Position] = []
        self._births: dict[tuple[str, int, int], int] = {}

    def _check_owner(self) -> None:
        """The intake's turns are one loop's, though each may have another thread here."""

    def throw_out(self) -> None:
        self._sim.version += 1
        super().throw_out()

    def poll(self, max_messages: int, timeout: float) -> list[Record]:
        del timeout
        bus = self._sim
        bus.kernel.before(self.process, "consume", "local")
        if bus.kernel.down["kafka"] or not self.process.reaches("kafka", bus.kernel.now):
            return []
        if self._seen != bus.version:
            self._rejoin()
        self._begin_anew()
        if self._uncommitted:
            again, self._uncommitted = self._uncommitted, []
            self.commit(again)
        for (topic, partition), generation in self._held.items():
            self._births.setdefault((topic, partition, generation), bus.births[topic])
        records: list[Record] = []
        for place, generation in self._held.items():
            if place in self._paused:
                continue
            log, at = self._log(place), self._next[place]
            while at < len(log) and len(records) < max_messages:
                message = log[at]
                if message is not None:
                    records.append(Record(*place, at, message.value, generation))
                at += 1
            self._next[place] = at
        return records

    def _rejoin(self) -> None:
        bus = self._sim
        if self.evicted:
            self.evicted = False
            bus.version += 1
        self._seen = bus.version
        self._rebalance()

    def commit(self, positions: Iterable[Position]) -> None:
        bus = self._sim
        if self.evicted:
            return
        if bus.kernel.down["kafka"]:
            self._uncommitted.extend(positions)  # tried again, as the real one does
            return
        bus.kernel.before(self.process, "commit", "local")
        if self.evicted:
            return
        # Nothing is kept for a topic that is no more, nor for one that was another one then.
        given = [
            p for p in positions
            if p.topic in bus.logs and self._births.get(p[:3]) == bus.births[p.topic]
        ]  # fmt: skip
        super().commit(given)
        for topic, partition, generation, offset in given:
            if self._held.get((topic, partition)) == generation:
                self._on_commit(self.process, topic, partition, offset)

    def _coming(self) -> list[tuple[str, int]]:
        wanted = self._bus.wanted(self._group)[self]
        others = {
            p
            for m in self._bus.members[self._group]
            if m is not self and not m.evicted  # type: ignore[attr-defined]
            for p in m._held
        }
        return sorted(wanted - set(self._held) - others)

    def _forget(self, places: list[tuple[str, int]]) -> None:
        if places:
            self._sim.version += 1
        super()._forget(places)

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        super().subscribe(topics, listener)
        self._sim.version += 1

"""Chaos: thousands of launches that fail at random, workers killed all the time, Kafka restarted.

The traffic are jobs of every second whose webhooks go to a receiver that keeps a journal and
answers a fifth of all attempts with 500. Meanwhile one worker after the other is killed with
SIGKILL and started again, and the broker once. Afterwards `Chaos.judge` asks the database and the
journal: see `chaos_checks`. Used by the fault tests and by loadtest/chaos.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.processes import CLOCK, Installation
from tests.support.receiver import OK_ANSWER, Receiver, Request
from tests.support.until import pause, until

from tickrail.bus.codec import decode_launch
from tickrail.bus.topics import work_topics

GROUP = "tickrail-workers"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
VISIBILITY = 5.0
MAX_ATTEMPTS = 12
JITTER = 0.2
LONGEST = 8.0
"""Seconds that a retry waits at most, before the jitter."""
INITIAL = ("200ms", "1s", "3s", "500ms", "2s")
"""Retries of one job wait this long at first, of the next job that long, and so on."""
ENVIRONMENT = {
    "TICKRAIL_WORKER_TARGETS": "webhook,kafka",
    "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
    "TICKRAIL_LOST_AFTER": "300",
}


class Start(NamedTuple):
    """An attempt as the receiver saw it."""

    launch: str
    attempt: int
    token: int
    at: datetime
    failed: bool


@dataclass
class Journal:
    """The receiver's; every attempt that reached it.

    `share`: of the attempts, how many are answered with 500; which ones is drawn from their names.
    """

    share: float = 0.2
    starts: list[Start] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.receiver = Receiver(behave=self._behave)

    def __enter__(self) -> Self:
        self.receiver.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.receiver.__exit__(None, None, None)

    def target(self) -> dict[str, Any]:
        """A webhook whose attempts are noted here."""
        return {"webhook": {"url": self.receiver.url("/effect")}}

    def _behave(self, connection: socket.socket, request: Request) -> bool:
        launch = request.header("Idempotency-Key") or ""
        attempt = int(request.header("Tickrail-Attempt") or 0)
        token = int(request.header("Fencing-Token") or 0)
        drawn = blake2b(f"{launch}/{attempt}".encode(), digest_size=4).digest()
        failed = int.from_bytes(drawn[:2]) < self.share * 65536
        with self._lock:
            self.starts.append(Start(launch, attempt, token, CLOCK.now(), failed))
        # Mixed delays: most answer at once, some after up to half a second.
        if drawn[2] < 64:
            self.receiver.released.wait(drawn[3] / 512)
        connection.sendall(FAILED if failed else OK_ANSWER)
        return True


class Snapshot(NamedTuple):
    """What the group had committed, and after that what was not done."""

    at: datetime
    committed: dict[tuple[str, int], int]
    not_done: set[tuple[str, int]]
    """(launch, attempt) that wait for their message. One that runs does not: where the claim's
    answer was lost, or its worker, the message comes again and is dropped."""


@dataclass
class Chaos:
    """One run.

    Attributes:
        found: servers and services, started with ENVIRONMENT.
        journal: the receiver.
        jobs: of every second; with `seconds`, about so many launches.
        seconds: of traffic.
        kill_every: seconds between two kills of workers.
        restart_kafka_at: seconds after the start.
        tell: told what happens.
    """

    found: Installation
    journal: Journal
    jobs: int
    seconds: float
    kill_every: float = 10.0
    restart_kafka_at: float = 30.0
    tell: Callable[[str], None] = lambda _: None
    ids: list[Any] = field(default_factory=list)
    kills: list[datetime] = field(default_factory=list)
    outages: list[tuple[datetime, datetime]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    last: datetime | None = None

    def run(self, within: float) -> None:
        """Traffic and blows; then wait until every launch has ended, `within` seconds at most."""
        workers = [s for s in self.found.services.values() if s.kind == "worker"]
        for n, initial in enumerate(INITIAL):
            count = self.jobs // len(INITIAL) + (n < self.jobs % len(INITIAL))
            self.ids += self.found.add_jobs(count, self._job(initial))
        began = CLOCK.monotonic()
        restarted, kills = False, 0
        restart: threading.Thread | None = None
        while (passed := CLOCK.monotonic() - began) < self.seconds:
            if not restarted and passed >= self.restart_kafka_at:
                restarted = True
                restart = threading.Thread(target=self._restart_kafka)
                restart.start()
            if passed >= (kills + 1) * self.kill_every:
                victim = workers[kills % len(workers)]
                kills += 1
                victim.kill()
                self.kills.append(CLOCK.now())
                self.tell(f"{passed:5.1f} s: {victim.name} killed")
                self._look()
                victim.start()
            pause(0.1)
        if restart is not None:
            restart.join()
        self.last = last = CLOCK.now().replace(microsecond=0)
        until(lambda: self._launched(last), within, 0.1)
        self.found.pause_jobs()
        took = until(lambda: self.found.ended(self.ids, last), within, 0.25)
        self.tell(f"all ended {took:.1f} s after the traffic")
        self._look()

    def _launched(self, last: datetime) -> bool:
        """Whether every slot up to this one has its launch."""
        waits = self.found.query(
            "select 1 from jobs where id = any(%s::uuid[]) and next_run_at <= %s limit 1",
            [str(job) for job in self.ids], last,
        )  # fmt: skip
        return not waits

    def _job(self, initial: str) -> dict[str, Any]:
        return {
            "schedule": {"every": "1s", "anchor": "2026-01-01T00:00:00Z"},
            "overlap": "allow",
            "target": self.journal.target(),
            "timeout": "30s",
            "visibility_timeout": f"{VISIBILITY:g}s",
            "misfire": {
                "policy": "fire_all", "grace": "1m", "max_count": 10000, "per_minute": 100000
            },
            "retry": {"max_attempts": MAX_ATTEMPTS, "initial": initial, "jitter": JITTER,
                      "max": f"{LONGEST:g}s"},
        }  # fmt: skip

    def _restart_kafka(self) -> None:
        at = CLOCK.now()
        self.found.stack.kafka.kill()
        pause(1.0)
        self.found.stack.kafka.restart()
        self.outages.append((at, CLOCK.now()))
        self.tell(f"Kafka was away for {(self.outages[-1][1] - at).total_seconds():.1f} s")

    # --- what the group has read ------------------------------------------------------------------

    def _places(self) -> list[tuple[str, int]]:
        partitions = range(self.found.partitions)
        return [(t, p) for t in work_topics("tickrail", "default") for p in partitions]

    def _reader(self, group: str) -> Consumer:
        """A client that may ask what a group has committed, and joins none."""
        return Consumer(
            {
                "bootstrap.servers": self.found.stack.addresses.kafka_bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 500,
                "log_level": 0,
            }
        )

    def _look(self) -> None:
        """Committed offsets first, what is not done after: what is missing there was done late."""
        reader = self._reader(GROUP)
        try:
            answer = reader.committed([TopicPartition(*p) for p in self._places()], timeout=5)
            committed = {(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}
        except KafkaException:
            return  # Kafka is away
        finally:
            reader.close()
        rows = self.found.query("select id::text, attempt from launches where state = 'queued'")
        self.snapshots.append(Snapshot(CLOCK.now(), committed, {(i, a) for i, a in rows}))

    def messages(self) -> list[tuple[str, int, int, str, int]]:
        """(topic, partition, offset, launch, attempt) of every message that was published."""
        consumer = self._reader("reads-all")
        try:
            ends = {
                p: consumer.get_watermark_offsets(TopicPartition(*p), timeout=30)
                for p in self._places()
            }
            left = {p for p, (low, high) in ends.items() if high > low}
            consumer.assign([TopicPartition(t, p, ends[t, p][0]) for t, p in left])
            found = []
            deadline = CLOCK.monotonic() + 120
            while left:
                assert CLOCK.monotonic() < deadline, f"not read: {left}"
                for m in consumer.consume(1000, 0.5):
                    if m.error() is not None:
                        continue
                    place = (m.topic(), m.partition())
                    if m.offset() >= ends[place][1] - 1:
                        left.discard(place)
                    message = decode_launch(m.value())
                    found.append((*place, m.offset(), str(message.launch), message.attempt))
        finally:
            consumer.close()
        return found

    def away(self, at: datetime) -> bool:
        """Whether Kafka was restarted about then: its clients need some seconds to come back."""
        return any(a - timedelta(seconds=1) <= at <= b + timedelta(seconds=5)
                   for a, b in self.outages)  # fmt: skip

"""The intake: message -> claim -> executor; and the offset once nothing more is owed for it.

One thread polls the consumer and makes every call on it. What a message's launch needs is decided
by the claim in the database (docs/protocols.md 4); the finisher and the heartbeat (runs.py)
have a thread each and hand back which offsets are done.

Crash anywhere before a commit of the offset: redelivered, and the claim refuses what is over.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from tickrail.core.clock import Clock
from tickrail.core.execution import one_line
from tickrail.core.fairness import Turns
from tickrail.core.ids import JobId, LaunchId
from tickrail.core.limits import THROTTLED
from tickrail.core.messages import LaunchMessage, UndecodableLetter
from tickrail.core.offsets import OffsetTracker
from tickrail.core.ports_bus import Assignment, Consumer, Position, Record
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_tracing import NOTHING, Span
from tickrail.core.ports_worker import ClaimAnswer, ClaimRequest, WorkerStore
from tickrail.engine.active import Active
from tickrail.engine.isolate import each_apart
from tickrail.engine.places import Places, target_name
from tickrail.engine.runs import Runs

log = structlog.get_logger("tickrail.intake")

BURY_SECONDS = 0.2
"""So long a turn publishes messages that cannot be read."""

Place = tuple[str, int, int]  # topic, partition, generation


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """How the intake behaves.

    Attributes:
        worker: this worker's name, kept on what it claims.
        topics: what it reads.
        concurrency: runs at once.
        weights: how many of each topic's messages are taken in a turn.
        fetch: messages a poll takes at most.
        buffer: messages held back at most before their partitions are paused.
        buffer_bytes: and bytes of them.
        window: offsets a partition may have open before it is paused.
        claim_batch: launches claimed in one statement.
        commit_every: seconds between two commits of offsets; a revoke and the end commit at once.
    """

    worker: str
    topics: Sequence[str]
    concurrency: int = 100
    weights: Mapping[str, int] = field(default_factory=dict)
    fetch: int = 500
    buffer: int = 2000
    buffer_bytes: int = 8 << 20
    window: int = 1000
    claim_batch: int = 500
    commit_every: float = 0.25


@dataclass(slots=True)
class Waiting:
    """A message that waits for its claim."""

    message: LaunchMessage
    place: Place
    offset: int
    raw: bytes
    published: str | None = None

    @property
    def size(self) -> int:
        """In bytes, as it came."""
        return len(self.raw)

    @property
    def job(self) -> JobId:
        """The job of its launch."""
        return JobId(self.message.job)


class Intake:
    """Polls, claims, starts, commits. Also the consumer's `RebalanceListener`."""

    def __init__(
        self,
        consumer: Consumer,
        store: WorkerStore,
        runs: Runs,
        clock: Clock,
        metrics: Metrics,
        settings: IntakeSettings,
        *,
        decode: Callable[[bytes], LaunchMessage],
        bury: Callable[[UndecodableLetter], None],
    ) -> None:
        """An intake.

        Args:
            consumer: of the bus; this thread's alone.
            store: the claims.
            runs: starts what was claimed and ends it; its executors are not given more than they
                have places for.
            clock: the clock.
            metrics: where messages are counted.
            settings: the numbers.
            decode: reads a launch message.
            bury: publishes an undecodable message to the DLQ topic and waits for the report;
                raises if it is not there.
        """
        self._places: Places[Waiting] = Places(runs.executors, store.targets)
        self._consumer = consumer
        self._store = store
        self._runs = runs
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._decode = decode
        self._bury = bury
        self._lanes: dict[str, deque[Waiting]] = {}
        self._turns: Turns[str] = Turns(settings.weights)
        self._trackers: dict[Place, OffsetTracker] = {}
        self._paused: set[Place] = set()
        self._done: deque[tuple[Place, int]] = deque()
        self._unburied: deque[tuple[UndecodableLetter, Place]] = deque()
        self._not_buried = ("", "")
        self._held_bytes = 0  # of messages that wait for their claim or their dead letter
        self._closing = threading.Event()
        self._settled = threading.Event()
        self._left = False
        self._rest = threading.Event()  # never set
        self._subscribed = False
        self._commit_at = 0.0

    # --- the consumer's listener ------------------------------------------------------------------

    def assigned(self, partitions: Sequence[Assignment]) -> None:
        """New partitions start with an empty window."""
        for a in partitions:
            place = (a.topic, a.partition, a.generation)
            self._trackers[place] = OffsetTracker(a.generation, self._settings.window)
        log.info("partitions_assigned", count=len(partitions))

    def revoked(self, partitions: Sequence[Assignment]) -> Iterable[Position]:
        """What is done is committed; what waits is dropped, what runs goes on under its claim."""
        self._drain_done()
        positions = []
        for a in partitions:
            tracker = self._trackers.get((a.topic, a.partition, a.generation))
            if tracker is not None and (offset := tracker.committable()) is not None:
                positions.append(Position(a.topic, a.partition, a.generation, offset))
        self._drop(partitions)
        log.info("partitions_revoked", count=len(partitions))
        return positions

    def lost(self, partitions: Sequence[Assignment]) -> None:
        """Gone already: nothing can be committed."""
        self._drop(partitions)
        log.warning("partitions_lost", count=len(partitions))

    def _drop(self, partitions: Sequence[Assignment]) -> None:
        gone = {(a.topic, a.partition, a.generation) for a in partitions}
        for place in gone:
            self._trackers.pop(place, None)
            self._paused.discard(place)
        for topic, lane in self._lanes.items():
            self._lanes[topic] = deque(w for w in lane if w.place not in gone)
        self._places.keep(lambda w: w.place not in gone)
        self._held_bytes = sum(w.size for lane in self._lanes.values() for w in lane)
        self._held_bytes += sum(w.size for w in self._places)
        self._held_bytes += sum(len(letter.raw) for letter, _ in self._unburied)

    # --- the loop ---------------------------------------------------------------------------------

    def offset_done(self, place: Place, offset: int) -> None:
        """From any thread: nothing more is owed for this offset."""
        self._done.append((place, offset))

    def run_once(self, wait: float = 0.05) -> int:
        """Poll, claim what can start, commit; how many messages and claims there were.

        Args:
            wait: seconds to wait for the first message when there is nothing else to do.
        """
        if not self._subscribed:
            # Here and not earlier: the thread that subscribes is the one that may do all the rest.
            self._consumer.subscribe(self._settings.topics, self)
            self._subscribed = True
        if self._closing.is_set():
            self._settled.set()
            if self._left or self._leave():
                self._rest.wait(wait)
                return 0
        fresh = self.waiting - len(self._places)
        free = self._settings.concurrency - self._runs.count
        can_claim = free > 0 and (fresh > 0 or self._places.ready) and not self._closing.is_set()
        room = self._settings.buffer - self.waiting
        self._hold_back(full=room <= 0 or self._held_bytes >= self._settings.buffer_bytes)
        records = self._consumer.poll(
            min(self._settings.fetch, max(1, room)), 0.0 if can_claim else wait
        )
        self._take(records)
        self._retry_burials()
        claimed = 0
        if not self._closing.is_set():
            claimed = self._claim(self._settings.concurrency - self._runs.count)
        self._drain_done()
        now = self._clock.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + self._settings.commit_every
            self._commit()
        return len(records) + claimed

    def close_intake(self) -> None:
        """From any thread: claim nothing more; leave the group as soon as claims guard all runs."""
        self._closing.set()

    def settled(self, within: float) -> bool:
        """From any thread, after `close_intake`: whether no claim is under way any more.

        What a claim brings is started here and nowhere else, so executors must not close before.

        Args:
            within: seconds to wait for it; a database that does not answer may take longer.
        """
        return self._settled.wait(within)

    @property
    def closed(self) -> bool:
        """Whether it was told to claim nothing more."""
        return self._closing.is_set()

    def finish(self) -> None:
        """At the end, on the consumer's thread: commit what is done and leave the group."""
        self._settled.set()
        if not self._left:
            self._commit()
            self._consumer.close()

    def _leave(self) -> bool:
        """Leave the group while runs go on, once each is guarded by its claim; whether it did.

        What waits in this worker's partitions is read by others then, and not after the drain.
        """
        if not self._runs.guarded:
            return False
        self._commit()
        self._consumer.close()
        self._left = True
        log.info("left_group", runs=self._runs.count)
        return True

    @property
    def waiting(self) -> int:
        """Messages that wait for a free place."""
        return sum(map(len, self._lanes.values())) + len(self._places)

    def _take(self, records: Sequence[Record]) -> None:
        for r in records:
            place = (r.topic, r.partition, r.generation)
            tracker = self._trackers.get(place)
            if tracker is None or not tracker.add(r.offset):
                continue
            try:
                message = self._decode(r.value)
            except Exception as e:  # noqa: BLE001 - UndecodableError, or what nobody thought of
                self._unreadable(place, r.offset, r.value, str(e) or type(e).__name__)
                continue
            lane = self._lanes.setdefault(r.topic, deque())
            lane.append(Waiting(message, place, r.offset, r.value, r.traceparent))
            self._held_bytes += len(r.value)

    def _unreadable(self, place: Place, offset: int, raw: bytes, why: str) -> None:
        self._metrics.count("messages_undecodable_total")
        topic, partition, _ = place
        letter = UndecodableLetter(topic, partition, offset, raw, one_line(why))
        self._unburied.append((letter, place))
        self._held_bytes += len(raw)

    def _retry_burials(self) -> None:
        """Publish undecodable messages; their offsets wait for that.

        A crowd of them holds up the others for a moment only: the rest goes in the next turns.
        """
        until = self._clock.monotonic() + BURY_SECONDS
        while self._unburied and self._clock.monotonic() <= until:
            letter, place = self._unburied[0]
            try:
                self._bury(letter)
            except Exception as e:  # noqa: BLE001 - the others must go on, whatever it is
                # Said once for each reason, not in each of many turns.
                if self._not_buried != (told := (letter.id, str(e))):
                    self._not_buried = told
                    log.warning("undecodable_not_buried", error=str(e), topic=letter.topic)
                return
            log.warning(
                "message_undecodable",
                topic=letter.topic,
                partition=letter.partition,
                offset=letter.offset,
                error=letter.error,
            )
            self._unburied.popleft()
            self._held_bytes -= len(letter.raw)
            self.offset_done(place, letter.offset)

    def _hold_back(self, *, full: bool) -> None:
        """Pause partitions whose window is full, or all of them when too many messages wait."""
        wanted = {place for place, t in self._trackers.items() if full or t.full}
        for change, act in (
            (wanted - self._paused, self._consumer.pause),
            (self._paused - wanted, self._consumer.resume),
        ):
            if change:
                act([Assignment(*place) for place in change])
        self._paused = wanted

    def _pick(self, count: int) -> list[Waiting]:
        """Messages in turns by the topics' weights; unused shares go to the others."""
        picked: list[Waiting] = []
        lanes = {topic: lane for topic, lane in self._lanes.items() if lane}
        while lanes and len(picked) < count:
            topic = self._turns.next(lanes)
            picked.append(lanes[topic].popleft())
            if not lanes[topic]:
                del lanes[topic]
        return picked

    def _startable(self, count: int) -> list[Waiting]:
        """Messages whose launches could start now; those that need a place wait for one."""
        chosen = self._places.take(count)
        picked = self._pick(count - len(chosen))
        try:
            self._places.learn(picked)
        except BaseException:
            for w in reversed([*chosen, *picked]):
                self._lanes[w.place[0]].appendleft(w)
            raise
        return chosen + self._places.sort(picked)

    def _claim(self, free: int) -> int:
        """Claim only what can start now, and start it."""
        picked = self._startable(min(free, self._settings.claim_batch))
        if not picked:
            return 0
        self._held_bytes -= sum(w.size for w in picked)
        by_id: dict[LaunchId, Waiting] = {}
        for w in picked:
            launch = LaunchId(w.message.launch)
            other = by_id.get(launch)
            if other is None:
                by_id[launch] = w
            elif w.message.attempt > other.message.attempt:
                by_id[launch] = w  # numbers never go back: the earlier attempt is over
                self._again(launch, other)
            else:
                self._again(launch, w)
        each_apart(
            list(by_id.values()), self._ask, self._answered, self._unclaimable, self._put_back
        )
        return len(picked)

    def _ask(self, waiting: Sequence[Waiting]) -> tuple[float, ClaimAnswer]:
        """Claim the launches of these messages; when that was sent, and the answer."""
        requests = [
            ClaimRequest(LaunchId(w.message.launch), w.message.scheduled_at, w.message.attempt)
            for w in waiting
        ]
        return self._clock.monotonic(), self._store.claim(requests, self._settings.worker)

    def _answered(self, waiting: Sequence[Waiting], sent_answer: tuple[float, ClaimAnswer]) -> None:
        """Start what was granted."""
        by_id = {LaunchId(w.message.launch): w for w in waiting}
        sent, answer = sent_answer
        if answer.granted:
            self._metrics.count("claims_total", len(answer.granted), outcome="granted")
            self._measure(answer, self._claim_spans(by_id, sent, answer))
        for claimed in answer.granted:
            w = by_id[claimed.id]
            active = Active(claimed, sent, w.place, w.offset, w.message.trace, w.published)
            self._runs.start(active)
            if active.job is not None:
                self._places.note(claimed.job, target_name(active.job.target))
        for launch, reason in answer.refused.items():
            self._refused(by_id[launch], reason)

    def _claim_spans(
        self, by_id: Mapping[LaunchId, Waiting], sent: float, answer: ClaimAnswer
    ) -> Mapping[LaunchId, Span]:
        """What the claim took, in the traces of those launches that are traced."""
        found: dict[LaunchId, Span] = {}
        at = self._clock.now() - timedelta(seconds=self._clock.monotonic() - sent)
        for claimed in answer.granted:
            w = by_id[claimed.id]
            if w.message.trace is None:
                continue
            span = self._runs.tracer.begin(
                "claim",
                w.message.trace,
                links=[w.published],
                at=at,
                launch=str(claimed.id),
                attempt=claimed.attempt,
                worker=self._settings.worker,
            )
            span.end()
            found[claimed.id] = span
        return found

    def _measure(self, answer: ClaimAnswer, spans: Mapping[LaunchId, Span]) -> None:
        """How late first attempts start, and whose they are."""
        starts, waited = Counter[str](), dict[str, float]()
        for claimed in answer.granted:
            if claimed.attempt > 1:
                continue  # its due time is that of a retry
            late = max(0.0, (answer.now - claimed.due_at).total_seconds())
            with self._runs.tracer.inside(spans.get(claimed.id, NOTHING)):
                self._metrics.observe("start_lag_seconds", late)
            tenant = str(claimed.tenant)
            starts[tenant] += 1
            waited[tenant] = waited.get(tenant, 0.0) + late
        for tenant, n in starts.items():
            self._metrics.count("tenant_starts_total", n, tenant=tenant)
            self._metrics.count("tenant_start_lag_seconds_total", waited[tenant], tenant=tenant)

    def _put_back(self, waiting: Sequence[Waiting]) -> None:
        """Nothing is known of their claims: the messages wait, the next claim decides."""
        for w in reversed(waiting):
            self._lanes[w.place[0]].appendleft(w)
            self._held_bytes += w.size

    def _unclaimable(self, w: Waiting, error: Exception) -> None:
        """A message that the database refuses to be asked for, as one that cannot be read.

        The launch, if there is one, stays as it is, and its owner publishes it again.
        """
        log.error("message_unclaimable", launch=str(w.message.launch), error=str(error))
        self._unreadable(w.place, w.offset, w.raw, f"cannot be claimed: {error}")

    def _refused(self, w: Waiting, reason: str) -> None:
        """The launch starts not now, or not by this message."""
        self._metrics.count("claims_total", outcome=reason)
        if reason in THROTTLED:
            self._metrics.count("tenant_throttled_total", reason=reason)
        self.offset_done(w.place, w.offset)

    def _again(self, launch: LaunchId, w: Waiting) -> None:
        """The same launch twice in one batch: this message decides nothing."""
        log.debug("message_doubled", launch=str(launch), attempt=w.message.attempt)
        self._metrics.count("claims_total", outcome="duplicate")
        self.offset_done(w.place, w.offset)

    def _drain_done(self) -> None:
        while self._done:
            place, offset = self._done.popleft()
            tracker = self._trackers.get(place)
            if tracker is not None:
                tracker.done(offset)

    def _commit(self) -> None:
        self._drain_done()
        positions = []
        for (topic, partition, generation), tracker in self._trackers.items():
            offset = tracker.committable()
            if offset is not None:
                tracker.committed(offset)
                positions.append(Position(topic, partition, generation, offset))
        if positions:
            self._consumer.commit(positions)

"""The Consumer of core on Kafka: a member of a group, owned by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tickrail.bus.config import KafkaSettings, consumer_config
from tickrail.bus.errors import bus_error, from_exception, is_stale
from tickrail.bus.health import BrokerWatch
from tickrail.bus.stuck import StuckWatch, answers, reads
from tickrail.core.clock import Clock
from tickrail.core.errors import SettingsError
from tickrail.core.ports_bus import (
    Assignment,
    BusDeniedError,
    BusError,
    Position,
    RebalanceListener,
    Record,
)
from tickrail.core.ports_tracing import TRACEPARENT

_log = structlog.get_logger(__name__)

_COMMIT_AGAIN = 1.0
"""Seconds until a commit that failed is tried again."""
_MOST_CONTEXT = 128
_LOOK_EVERY = 3.0
"""Seconds between two looks at topics of which this member holds nothing."""
_LOOK_WITHIN = 0.5

Place = tuple[str, int]


class LaunchConsumer:
    """`core.ports_bus.Consumer`: a member of the workers' group, commits by hand, earliest first.

    Every call must come from the thread that called `subscribe`: a call of another thread would
    wait behind a poll without an end to it, so it is refused.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock, name: str = "consumer") -> None:
        """Joins nothing yet.

        Args:
            settings: how to reach Kafka, and the group.
            clock: measures when a commit is tried again.
            name: what the log calls it.

        Raises:
            SettingsError: librdkafka refuses a setting.
        """
        self._settings = settings
        self._clock = clock
        self._name = name
        self._number = 0
        self._stuck = StuckWatch(clock)
        self._owner: int | None = None
        self._listener: RebalanceListener | None = None
        self._generations: dict[Place, int] = {}
        self._last_generation = 0
        self._read: dict[Place, int] = {}  # the highest offset that was handed out
        self._paused: set[Place] = set()
        self._uncommitted: dict[Place, int] = {}  # asked for, and not confirmed
        self._commit_again: float | None = None
        self._topic_trouble: dict[str, BusError] = {}
        self._lag: dict[str, int] = {}
        self._topics: Sequence[str] = ()
        self._look_at: float | None = None
        self._watch = BrokerWatch(name, self._on_stats)
        self._told = settings.group_protocol != "consumer"
        """Whether librdkafka tells of topics that are missing; under KIP-848 it does not."""
        self._eager = self._told and settings.group_assignor == "roundrobin"
        self._consumer = self._client()

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        """Join the group for these topics; once, before the first `poll`."""
        if self._listener is not None:
            raise RuntimeError("subscribed already")
        self._owner = threading.get_ident()
        self._listener = listener
        self._topics = list(topics)
        if not self._told:
            self._look_at = self._clock.monotonic() + _LOOK_EVERY
        self._join()

    def poll(self, max_messages: int, timeout: float) -> list[Record]:
        """What has come, waiting at most `timeout` seconds for the first record."""
        self._check_owner()
        try:
            # consume() alone would wait for a full batch; poll() returns with the first message.
            first = self._consumer.poll(timeout)
            messages = [] if first is None else [first]
            if first is not None and max_messages > 1:
                messages += self._consumer.consume(max_messages - 1, 0)
        except KafkaException as error:
            raise from_exception(error) from error
        if self._commit_again is not None and self._clock.monotonic() >= self._commit_again:
            self._send_commit(dict(self._uncommitted))
        if self._look_at is not None and self._clock.monotonic() >= self._look_at:
            self._look_for_topics()
        if self._watch.fatal is not None:
            raise self._watch.fatal
        if self._stuck.over and self._stuck.replace(answered=answers(self._settings)):
            self._renew()
            return []
        return self._records(messages) if messages else []

    def pause(self, partitions: Iterable[Assignment]) -> None:
        """Read no more from these for now; those of an assignment that is over are ignored."""
        self._check_owner()
        places = [p for p in self._current(partitions) if p not in self._paused]
        if places:
            self._consumer.pause([TopicPartition(*place) for place in places])
            self._paused.update(places)

    def resume(self, partitions: Iterable[Assignment]) -> None:
        """Read again from where it stopped."""
        self._check_owner()
        self._resume([p for p in self._current(partitions) if p in self._paused])

    def commit(self, positions: Iterable[Position]) -> None:
        """Store positions, soon and without waiting; those of an assignment that is over go."""
        self._check_owner()
        self._send_commit(self._valid(positions))

    @property
    def assignments(self) -> Sequence[Assignment]:
        """The partitions held now."""
        return [Assignment(*place, gen) for place, gen in self._generations.items()]

    @property
    def trouble(self) -> BusError | None:
        """What keeps records from coming, if something is known to; for readiness."""
        if self._watch.fatal or self._watch.down:
            return self._watch.fatal or self._watch.down
        return next(iter(self._topic_trouble.values()), None)

    @property
    def lag(self) -> Mapping[str, int]:
        """Messages behind the committed position, by topic, a few seconds old."""
        return self._lag

    def close(self) -> None:
        """Tell the listener `revoked` for all, commit what it returns, leave the group."""
        if self._owner is None:
            self._consumer.close()
            return
        self._check_owner()
        held = list(self._generations)
        if held:
            self._give_up(held)
        self._consumer.close()

    # --- inside ----------------------------------------------------------------------------------

    def _client(self) -> Consumer:
        """A client of librdkafka that takes the place of the one before, whose calls are over."""
        self._number += 1
        config = consumer_config(self._settings)
        config["error_cb"] = self._mine(self._watch.on_error)
        config["stats_cb"] = self._mine(self._watch.on_statistics)
        config["on_commit"] = self._mine(self._on_commit)
        try:
            return Consumer(config)
        except KafkaException as error:
            raise SettingsError(from_exception(error).detail) from error

    def _mine(self, call: Callable[..., None]) -> Callable[..., None]:
        """A callback that does nothing once another client has taken the place of this one."""
        number = self._number

        def called(*args: object) -> None:
            if self._number == number:
                call(*args)

        return called

    def _join(self) -> None:
        self._consumer.subscribe(
            list(self._topics),
            on_assign=self._mine(self._on_assign),
            on_revoke=self._mine(self._on_revoke),
            on_lost=self._mine(self._on_lost),
        )

    def _renew(self) -> None:
        """Go on with another client: this one does not read, and will not by itself (stuck.py).

        What was held is lost: the group gives it to others, or to the new one.
        """
        _log.warning("consumer_replaced", client=self._name, partitions=len(self._generations))
        old = self._consumer
        # It may wait for its broker without an end.
        threading.Thread(target=old.close, name="replaced consumer", daemon=True).start()
        gone = [Assignment(*place, gen) for place, gen in self._generations.items()]
        self._forget(list(self._generations))
        self._commit_again = None
        if self._listener is not None and gone:
            self._listener.lost(gone)
        self._consumer = self._client()
        self._join()

    def _check_owner(self) -> None:
        if threading.get_ident() != self._owner:
            raise RuntimeError(
                "a consumer belongs to the thread that subscribed it; hand this to that thread"
            )

    def _current(self, partitions: Iterable[Assignment]) -> list[Place]:
        held = self._generations
        return [(t, p) for t, p, gen in partitions if held.get((t, p)) == gen]

    def _valid(self, positions: Iterable[Position]) -> dict[Place, int]:
        held = self._generations
        valid: dict[Place, int] = {}
        for topic, partition, generation, offset in positions:
            if held.get((topic, partition)) == generation:
                valid[(topic, partition)] = offset
            else:
                _log.debug(
                    "position of an assignment that is over", topic=topic, partition=partition
                )
        return valid

    def _records(self, messages: list[Message]) -> list[Record]:
        """The records among messages and error events.

        The assignment is looked up now: one that was revoked while the batch was gathered is gone,
        and its messages belong to the next owner.
        """
        records: list[Record] = []
        held, troubles = self._generations, self._topic_trouble
        for message in messages:
            topic = message.topic() or ""
            if (error := message.error()) is not None:
                self._note(error, topic)
                continue
            partition = message.partition() or 0
            place = (topic, partition)
            if place not in held:
                continue
            if topic in troubles:
                del troubles[topic]
            offset = message.offset() or 0
            if offset <= self._read.get(place, -1):
                self._begin_anew(place)
            self._read[place] = offset
            records.append(
                Record(
                    topic, partition, offset, message.value() or b"", held[place],
                    _traceparent(message),
                )
            )  # fmt: skip
        return records

    def _begin_anew(self, place: Place) -> None:
        """A topic that was deleted and made again: its offsets begin again, and Kafka is silent.

        What is known of the old ones holds no longer, so the assignment is another one.
        """
        _log.warning("offsets begin again", topic=place[0], partition=place[1])
        gone = Assignment(*place, self._generations[place])
        self._resume([p for p in [place] if p in self._paused])
        self._forget([place])
        self._last_generation += 1
        self._generations[place] = self._last_generation
        if self._listener is not None:
            self._listener.lost([gone])
            self._listener.assigned([Assignment(*place, self._last_generation)])

    def _note(self, error: KafkaError, topic: str) -> None:
        known = bus_error(error, topic)
        if known.fatal:
            self._watch.fatal = known
        elif topic:
            if topic not in self._topic_trouble:
                _log.warning("cannot read a topic", topic=topic, error=known.detail)
            self._topic_trouble[topic] = known
        else:
            _log.info("Kafka consumer", client=self._name, error=known.detail)

    def _look_for_topics(self) -> None:
        """Ask for the topics of which nothing is held: one that is missing has no partitions."""
        held = {topic for topic, _ in self._generations}
        for topic in self._topics:
            if topic in held or self._watch.down is not None:
                continue
            try:
                found = self._consumer.list_topics(topic, timeout=_LOOK_WITHIN).topics.get(topic)
            except KafkaException as error:
                _log.debug("topic not asked for", topic=topic, error=from_exception(error).detail)
                break
            if found is not None and found.error is not None:
                self._note(found.error, topic)
            else:
                self._topic_trouble.pop(topic, None)
        self._look_at = self._clock.monotonic() + _LOOK_EVERY

    def _resume(self, places: Sequence[Place]) -> None:
        if places:
            self._consumer.resume([TopicPartition(*place) for place in places])
            self._paused.difference_update(places)

    # --- rebalance -------------------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._eager:
            consumer.assign(partitions)
        else:
            consumer.incremental_assign(partitions)
        new: list[Assignment] = []
        for tp in partitions:
            self._last_generation += 1
            self._generations[(tp.topic, tp.partition)] = self._last_generation
            self._topic_trouble.pop(tp.topic, None)
            new.append(Assignment(tp.topic, tp.partition, self._last_generation))
        if self._listener is not None and new:
            self._listener.assigned(new)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        held = [(tp.topic, tp.partition) for tp in partitions if self._holds(tp)]
        if held:
            self._give_up(held)
        self._unassign(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        held = [(tp.topic, tp.partition) for tp in partitions if self._holds(tp)]
        gone = [Assignment(*place, self._generations[place]) for place in held]
        self._resume([p for p in held if p in self._paused])
        self._forget(held)
        if self._listener is not None and gone:
            self._listener.lost(gone)
        self._unassign(consumer, partitions)

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)

    def _holds(self, tp: TopicPartition) -> bool:
        return (tp.topic, tp.partition) in self._generations

    def _give_up(self, places: Sequence[Place]) -> None:
        """Commit what is done of these partitions, and let them go."""
        going = [Assignment(*place, self._generations[place]) for place in places]
        done = {p: self._uncommitted[p] for p in places if p in self._uncommitted}
        if self._listener is not None:
            done.update(self._valid(self._listener.revoked(going)))
        # A pause would outlive the assignment.
        self._resume([p for p in places if p in self._paused])
        if done:
            self._commit_now(done)
        self._forget(places)

    def _forget(self, places: Iterable[Place]) -> None:
        for place in places:
            self._generations.pop(place, None)
            self._read.pop(place, None)
            self._uncommitted.pop(place, None)
            self._paused.discard(place)

    # --- commits ---------------------------------------------------------------------------------

    def _send_commit(self, positions: Mapping[Place, int]) -> None:
        self._commit_again = None
        if not positions:
            return
        self._uncommitted.update(positions)
        try:
            self._consumer.commit(offsets=_offsets(positions), asynchronous=True)
        except KafkaException as error:
            self._commit_failed(error.args[0])

    def _commit_now(self, positions: Mapping[Place, int]) -> None:
        """Commit and wait for the answer, unless nobody is there to give one."""
        if self._watch.down is not None:
            return
        try:
            self._consumer.commit(offsets=_offsets(positions), asynchronous=False)
        except KafkaException as error:
            known = from_exception(error)
            _log.debug("last commit refused; the messages come again", error=known.detail)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            self._commit_failed(error)
            return
        for tp in partitions:
            place = (tp.topic, tp.partition)
            if tp.error is None and self._uncommitted.get(place) == tp.offset:
                del self._uncommitted[place]

    def _commit_failed(self, error: KafkaError) -> None:
        known = bus_error(error)
        if is_stale(error):
            _log.debug("commit for an assignment that is over", error=known.detail)
            return
        _log.debug("commit failed, tried again", client=self._name, error=known.detail)
        self._commit_again = self._clock.monotonic() + _COMMIT_AGAIN

    def _on_stats(self, stats: Mapping[str, Any]) -> None:
        held = self._generations
        if self._listener is not None:
            # Of a topic that is missing or not ours to read, another client would not read either.
            wanted = {place for place in held if place[0] not in self._topic_trouble}
            denied = isinstance(self._watch.down, BusDeniedError)
            self._stuck.note(fine=denied or (self._watch.down is None and reads(stats, wanted)))
        self._lag = {
            name: sum(
                max(0, part["consumer_lag"])
                for number, part in topic["partitions"].items()
                if (name, int(number)) in held
            )
            for name, topic in stats["topics"].items()
        }


def _offsets(positions: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(t, p, offset) for (t, p), offset in positions.items()]


def _traceparent(message: Message) -> str | None:
    """The context of its publication, where it was traced."""
    headers: Any = message.headers() or ()
    for name, value in headers:
        if name == TRACEPARENT and isinstance(value, bytes) and len(value) <= _MOST_CONTEXT:
            return value.decode("ascii", "replace")
    return None

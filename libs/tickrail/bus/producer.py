"""The Publisher of core on Kafka: idempotent, acknowledged by all replicas."""

from __future__ import annotations

from functools import partial as bind

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tickrail.bus.config import KafkaSettings, producer_config
from tickrail.bus.errors import bus_error, from_exception
from tickrail.bus.health import BrokerWatch
from tickrail.core.clock import Clock
from tickrail.core.errors import SettingsError
from tickrail.core.ports_bus import BusError, Delivery, Headers

_log = structlog.get_logger(__name__)

_GIVE_UP = 2.0
"""Seconds that a purge may take to hand back what it threw away."""


class KafkaPublisher:
    """`core.ports_bus.Publisher`. Owned by one thread.

    Idempotence holds within one instance of the producer only: a message whose report was an error
    may be in the topic all the same. After a fatal error (a gap that idempotence cannot bridge)
    what is outstanding is reported as failed, and a new producer goes on.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock, name: str = "publisher") -> None:
        """Connects by itself, also later when the brokers come back.

        Args:
            settings: how to reach Kafka.
            clock: measures how long a flush takes.
            name: what the log calls it.

        Raises:
            SettingsError: librdkafka refuses a setting.
        """
        self._settings = settings
        self._clock = clock
        self._name = name
        self._reports: list[Delivery] = []
        self._outstanding = 0
        self._watch = BrokerWatch(name)
        self._producer = self._make()

    def publish(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers | None,
        token: object,
    ) -> bool:
        """Hand a message over; False when the local queue is full."""
        if self._watch.fatal is not None:
            self._replace()
        try:
            self._produce(topic, partition, key, value, headers, token)
        except BufferError:
            return False
        except KafkaException as error:
            known = from_exception(error, topic)
            if known.fatal:
                self._watch.fatal = known  # the next call makes a new producer
            self._reports.append(Delivery(token, known, -1))
        self._outstanding += 1
        return True

    def poll(self, timeout: float) -> list[Delivery]:
        """The reports that have come, waiting at most `timeout` seconds for the first."""
        self._producer.poll(0 if self._reports else timeout)
        if self._watch.fatal is not None:
            self._replace()
        return self._take()

    @property
    def outstanding(self) -> int:
        """Messages taken whose Delivery was not yet handed out."""
        return self._outstanding

    def flush(self, timeout: float) -> list[Delivery]:
        """Wait up to `timeout` seconds for everything outstanding, and return its reports."""
        until = self._clock.monotonic() + timeout
        while self._outstanding > len(self._reports):
            left = until - self._clock.monotonic()
            if left <= 0:
                break
            self._producer.flush(left)
            if self._watch.fatal is not None:
                self._replace()
        return self._take()

    @property
    def trouble(self) -> BusError | None:
        """Why messages do not go out, if something is known to keep them; for readiness."""
        return self._watch.fatal or self._watch.down

    def close(self, timeout: float) -> list[Delivery]:
        """Flush, then give up what is still outstanding (reported as failed)."""
        reports = self.flush(timeout)
        self._discard(self._producer)
        return reports + self._take()

    def _make(self) -> Producer:
        config = producer_config(self._settings)
        config["error_cb"] = self._watch.on_error
        config["stats_cb"] = self._watch.on_statistics
        try:
            return Producer(config)
        except KafkaException as error:
            raise SettingsError(from_exception(error).detail) from error

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Headers | None,
        token: object,
    ) -> None:
        report = bind(self._report, token)
        if headers:
            self._producer.produce(
                topic, value, key, partition, on_delivery=report, headers=list(headers)
            )
        else:
            self._producer.produce(topic, value, key, partition, on_delivery=report)

    def _report(self, token: object, error: KafkaError | None, message: Message) -> None:
        if error is None:
            if self._watch.down is not None:
                self._watch.up()
            self._reports.append(
                Delivery(token, None, message.offset() or 0, message.partition() or 0)
            )
        else:
            self._reports.append(Delivery(token, bus_error(error, message.topic() or ""), -1))

    def _take(self) -> list[Delivery]:
        if not self._reports:
            return []
        reports, self._reports = self._reports, []
        self._outstanding -= len(reports)
        return reports

    def _replace(self) -> None:
        """A new producer for one that met a fatal error."""
        _log.warning("Kafka producer made anew", client=self._name, error=str(self._watch.fatal))
        old, self._watch.fatal = self._producer, None
        self._discard(old)
        self._watch.fatal = None
        self._producer = self._make()

    def _discard(self, producer: Producer) -> None:
        """End a producer; its outstanding messages are reported as failed."""
        producer.purge()
        producer.flush(_GIVE_UP)

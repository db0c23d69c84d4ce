"""Whether the brokers answer, as one client sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import structlog
from confluent_kafka import KafkaError

from tickrail.bus.errors import bus_error
from tickrail.core.ports_bus import BusDeniedError, BusError

_log = structlog.get_logger(__name__)


class BrokerWatch:
    """Remembers that the brokers are away, and says so once for each outage.

    Its methods are called by the client while it polls, on the thread that polls.
    """

    def __init__(self, who: str, on_stats: Callable[[dict[str, Any]], None] | None = None) -> None:
        """For one client.

        Args:
            who: what the log calls it.
            on_stats: handed each decoded statistics document of librdkafka.
        """
        self._who = who
        self._on_stats = on_stats
        self.down: BusError | None = None
        self.fatal: BusError | None = None

    def on_error(self, error: KafkaError) -> None:
        """Hear an error event (error_cb)."""
        known = bus_error(error)
        if error.fatal():
            self.fatal = known
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN or isinstance(known, BusDeniedError):  # noqa: SLF001 - a public constant
            if self.down is None:
                _log.warning("Kafka does not answer", client=self._who, error=known.detail)
            self.down = known
        else:
            _log.debug("Kafka client", client=self._who, error=known.detail)

    def on_statistics(self, text: str) -> None:
        """Hear statistics (stats_cb): a broker that is up ends an outage."""
        stats: dict[str, Any] = orjson.loads(text)
        if any(_answers(broker) for broker in stats["brokers"].values()):
            self.up()
        if self._on_stats is not None:
            self._on_stats(stats)

    def up(self) -> None:
        """A broker answered."""
        if self.down is not None:
            _log.info("Kafka answers again", client=self._who)
            self.down = None


def _answers(broker: Mapping[str, Any]) -> bool:
    """Whether the statistics of a broker tell of a connection to one.

    The group's coordinator is one too, under a name of its own ("logical"). With a single broker
    that was restarted, librdkafka may fetch through that connection alone and never open the
    other one again.
    """
    return bool(
        broker["state"] == "UP" and (broker["nodeid"] >= 0 or broker["source"] == "logical")
    )

"""Whether the brokers answer, as one client sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaError

from tickrail.bus.errors import bus_error
from tickrail.core.ports_bus import BusDeniedError, BusError

_log = structlog.get_logger(__name__)
_IDLE = {"INIT", "DOWN"}
"""States of a connection that is not being made: nobody needs it now."""
_SILENT_STATISTICS = 2
_NOBODY = KafkaError(KafkaError._ALL_BROKERS_DOWN, "no broker answers")  # noqa: SLF001 - a public constant


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
        self._silent = 0

    def on_error(self, error: KafkaError) -> None:
        """Hear an error event (error_cb)."""
        known = bus_error(error)
        if error.fatal():
            self.fatal = known
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN or isinstance(known, BusDeniedError):  # noqa: SLF001 - a public constant
            self._away(known)
        else:
            _log.debug("Kafka client", client=self._who, error=known.detail)

    def on_statistics(self, text: str) -> None:
        """Hear statistics (stats_cb): a broker that is up ends an outage.

        That all brokers are down is not always an event: a broker that was restarted may leave a
        second handle that never connects, and librdkafka counts it among those that are not down.
        So one begins, too, when connections are tried and none stands, twice in a row.
        """
        stats: dict[str, Any] = json.loads(text, object_pairs_hook=_each_name_once)
        brokers = stats["brokers"].values()
        if any(_answers(broker) for broker in brokers):
            self._silent = 0
            self.up()
        elif any(broker["state"] not in _IDLE for broker in brokers):
            self._silent += 1
            if self._silent >= _SILENT_STATISTICS:
                self._away(bus_error(_NOBODY))
        if self._on_stats is not None:
            self._on_stats(stats)

    def up(self) -> None:
        """A broker answered."""
        if self.down is not None:
            _log.info("Kafka answers again", client=self._who)
            self.down = None

    def _away(self, error: BusError) -> None:
        if self.down is None:
            _log.warning("Kafka does not answer", client=self._who, error=error.detail)
        self.down = error


def _answers(broker: Mapping[str, Any]) -> bool:
    """Whether the statistics of a broker tell of a connection that stands.

    The group's coordinator is one too, under a name of its own ("logical").
    """
    return bool(
        broker["state"] == "UP" and (broker["nodeid"] >= 0 or broker["source"] == "logical")
    )


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object; of those with one name, which two handles have, each."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[f"{name} {len(found)}" if name in found else name] = value
    return found

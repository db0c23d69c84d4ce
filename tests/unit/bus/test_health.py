"""Whether the brokers answer, from what librdkafka tells."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError

from tickrail.bus.health import BrokerWatch

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
Broker = Mapping[str, object]


def broker(nodeid: int, state: str, source: str = "learned") -> Broker:
    return {"nodeid": nodeid, "state": state, "source": source}


def statistics(*brokers: Broker) -> str:
    """As librdkafka writes them: all of these handles have one name."""
    named = ",".join(f'"127.0.0.1:9092/1":{json.dumps(one)}' for one in brokers)
    return f'{{"brokers":{{{named}}}}}'


def watch(*brokers: Broker) -> BrokerWatch:
    """After all brokers were down and statistics told of these."""
    made = BrokerWatch("one")
    made.on_error(DOWN)
    made.on_statistics(statistics(*brokers))
    return made


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param([broker(1, "UP")], id="a broker"),
        pytest.param([broker(1, "DOWN"), broker(2, "UP")], id="one of two"),
        pytest.param(
            [broker(1, "INIT"), broker(-1, "UP", "logical")],
            id="the coordinator alone",
        ),
        pytest.param(
            [broker(1, "UP"), broker(1, "INIT")], id="a handle that a restart left behind"
        ),
    ],
)
def test_an_answer_ends_the_outage(brokers: list[Broker]) -> None:
    assert watch(*brokers).down is None


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param([broker(1, "DOWN")], id="a broker"),
        pytest.param([broker(1, "APIVERSION_QUERY")], id="a connection nobody answers on"),
        pytest.param([broker(-1, "UP", "configured")], id="a bootstrap address"),
        pytest.param([broker(1, "INIT"), broker(-1, "DOWN", "logical")], id="no coordinator"),
        pytest.param([], id="nobody"),
    ],
)
def test_silence_does_not(brokers: list[Broker]) -> None:
    down = watch(*brokers).down
    assert down is not None
    assert "brokers are down" in down.detail


def test_an_outage_is_seen_without_an_event() -> None:
    made = BrokerWatch("one")
    tried = statistics(broker(1, "APIVERSION_QUERY"), broker(1, "INIT"))
    made.on_statistics(tried)
    assert made.down is None, "a connection is made at this moment"
    made.on_statistics(tried)
    assert made.down is not None
    assert "no broker answers" in made.down.detail
    made.on_statistics(statistics(broker(1, "UP"), broker(1, "INIT")))
    assert made.down is None
    made.on_statistics(tried)
    assert made.down is None, "it is counted anew"


def test_connections_that_nobody_needs_are_no_outage() -> None:
    made = BrokerWatch("one")
    for _ in range(5):
        made.on_statistics(statistics(broker(1, "INIT"), broker(2, "DOWN")))
    assert made.down is None

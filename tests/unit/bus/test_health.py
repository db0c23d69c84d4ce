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


def watch(*brokers: Broker) -> BrokerWatch:
    """After all brokers were down and statistics told of these."""
    made = BrokerWatch("one")
    made.on_error(DOWN)
    named = {str(n): one for n, one in enumerate(brokers)}
    made.on_statistics(json.dumps({"brokers": named}))
    return made


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param([broker(1, "UP")], id="a broker"),
        pytest.param([broker(1, "DOWN"), broker(2, "UP")], id="one of two"),
        pytest.param(
            [broker(1, "INIT"), broker(-1, "UP", "logical")],
            id="the coordinator of a restarted single broker, whose own connection stays unused",
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

"""Kafka settings and what librdkafka is told."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.bus.config import KafkaSettings, admin_config, consumer_config, producer_config
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import (
    dlq_topic,
    launch_topic,
    queue_topics,
    retry_topic,
    work_topics,
)
from tickrail.core.clock import SystemClock
from tickrail.core.errors import SettingsError

PLAIN = KafkaSettings(bootstrap="127.0.0.1:9092")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bootstrap": ""}, "bootstrap"),
        ({"bootstrap": "localhost"}, "bootstrap"),
        ({"bootstrap": "a:1,b"}, "bootstrap"),
        ({"bootstrap": "a:99999"}, "bootstrap"),
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_username"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism"),
        ({"cert_file": "/c.pem"}, "key_file"),
        ({"group": ""}, "group"),
        ({"group_protocol": "new"}, "group_protocol"),
        ({"group_assignor": "range"}, "group_assignor"),
        ({"linger": -1.0}, "linger"),
        ({"delivery_timeout": 0.0}, "delivery_timeout"),
        ({"session_timeout": 1.0}, "session_timeout"),
        ({"max_poll_interval": 5.0}, "max_poll_interval"),
        ({"queue_messages": 0}, "queue_messages"),
        ({"message_bytes": 10}, "message_bytes"),
        ({"prefetch_kbytes": 0}, "prefetch_kbytes"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as refused:
        KafkaSettings(**{"bootstrap": "127.0.0.1:9092", **changes})
    assert f"/kafka/{field}" in {p.pointer for p in refused.value.problems}
    assert all(p.expected for p in refused.value.problems)


def test_a_password_is_never_shown() -> None:
    settings = KafkaSettings(
        bootstrap="b:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="tickrail",
        sasl_password="geheim",
        key_password="geheim2",
    )
    assert "geheim" not in repr(settings)
    config = producer_config(settings)
    assert config["sasl.password"] == "geheim"
    assert config["security.protocol"] == "SASL_SSL"


def test_what_the_producer_promises() -> None:
    config = producer_config(PLAIN)
    assert config["enable.idempotence"] is True
    assert config["linger.ms"] == 5
    assert 15_000 <= config["delivery.timeout.ms"] <= 30_000


def test_what_the_consumer_promises() -> None:
    config = consumer_config(PLAIN)
    assert config["auto.offset.reset"] == "earliest"
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    # Either way a share of every topic.
    assert config["partition.assignment.strategy"] == "roundrobin"
    modern = consumer_config(KafkaSettings(bootstrap="127.0.0.1:1", group_protocol="consumer"))
    assert modern["group.remote.assignor"] == "range"
    assert not modern.keys() & {"partition.assignment.strategy", "session.timeout.ms"}


def test_what_the_consumer_reads_ahead_is_bounded_in_bytes() -> None:
    config = consumer_config(KafkaSettings(bootstrap="127.0.0.1:1", prefetch_kbytes=2048))
    assert config["queued.max.messages.kbytes"] == 2048
    assert config["fetch.max.bytes"] == 2048 * 1024
    assert config["fetch.message.max.bytes"] <= config["fetch.max.bytes"]


@pytest.mark.parametrize("make", [producer_config, consumer_config, admin_config])
def test_no_topic_is_made_by_using_it(make: Any) -> None:
    assert make(PLAIN)["allow.auto.create.topics"] is False


@pytest.mark.parametrize("protocol", ["auto", "classic", "consumer"])
def test_librdkafka_accepts_what_we_write(protocol: str) -> None:
    settings = KafkaSettings(bootstrap="127.0.0.1:1", group_protocol=protocol, group_instance="w-1")
    LaunchConsumer(settings, SystemClock()).close()
    assert KafkaPublisher(settings, SystemClock()).close(0) == []


def test_an_unknown_extra_property_is_refused() -> None:
    settings = KafkaSettings(bootstrap="127.0.0.1:1", extra={"no.such.property": "1"})
    with pytest.raises(SettingsError, match=r"no\.such\.property"):
        KafkaPublisher(settings, SystemClock())
    with pytest.raises(SettingsError, match=r"no\.such\.property"):
        LaunchConsumer(settings, SystemClock())


def test_names_of_topics() -> None:
    assert launch_topic("p", "q", "high") == "p.launch.q.high"
    assert retry_topic("p", "q") == "p.retry.q"
    assert dlq_topic("p", "q") == "p.dlq.q"
    assert work_topics("p", "q") == (
        "p.launch.q.high",
        "p.launch.q.normal",
        "p.launch.q.low",
        "p.retry.q",
    )
    assert queue_topics("p", "q")[-1] == "p.dlq.q"

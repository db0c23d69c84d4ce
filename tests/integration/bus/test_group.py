"""The workers' group on the real Kafka: who reads what, and what a join or a leave stops.

Under KIP-848 as the local broker has it; the classic protocol is in the bus ports' contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.support.servers import Servers
from tests.support.until import until

from tickrail.bus.config import KafkaSettings
from tickrail.bus.consumer import LaunchConsumer
from tickrail.bus.group import choose_group_protocol
from tickrail.bus.producer import KafkaPublisher
from tickrail.bus.topics import Topics
from tickrail.core.clock import SystemClock
from tickrail.core.ports_bus import Assignment, Position, Record

pytestmark = pytest.mark.integration

CLOCK = SystemClock()
PARTITIONS = 8


class Listener:
    def __init__(self) -> None:
        self.gone: list[Assignment] = []
        self.done: list[Position] = []

    def assigned(self, partitions: Any) -> None:
        pass

    def revoked(self, partitions: list[Assignment]) -> list[Position]:
        self.gone += partitions
        return self.done

    def lost(self, partitions: list[Assignment]) -> None:
        self.gone += partitions


@pytest.fixture
def settings(stack: Servers, topic_prefix: str) -> Callable[..., KafkaSettings]:
    def make(**changes: Any) -> KafkaSettings:
        values = {"bootstrap": stack.kafka_bootstrap, "group": topic_prefix}
        return KafkaSettings(**{**values, **changes})

    return make


@pytest.fixture
def names(settings: Callable[..., KafkaSettings], topic_prefix: str) -> list[str]:
    made = [f"{topic_prefix}{kind}" for kind in ("high", "normal", "low", "retry")]
    Topics(settings()).ensure(made, PARTITIONS)
    return made


@pytest.fixture
def members(
    settings: Callable[..., KafkaSettings], names: list[str]
) -> Iterator[Callable[[], tuple[LaunchConsumer, Listener]]]:
    chosen = choose_group_protocol(settings())
    assert chosen.group_protocol == "consumer"
    made: list[LaunchConsumer] = []

    def join() -> tuple[LaunchConsumer, Listener]:
        consumer, listener = LaunchConsumer(chosen, CLOCK), Listener()
        consumer.subscribe(names, listener)
        made.append(consumer)
        return consumer, listener

    yield join
    for one in made:
        one.close()


def shares(consumer: LaunchConsumer, names: list[str]) -> list[int]:
    held = [a.topic for a in consumer.assignments]
    return [held.count(name) for name in names]


def settled(members: list[LaunchConsumer], names: list[str], *wanted: int) -> None:
    """Poll all until each holds one of the wanted numbers of partitions of every topic."""

    def there() -> bool:
        for one in members:
            one.poll(100, 0.01)
        found = [shares(one, names) for one in members]
        return all(n in wanted for one in found for n in one) and all(
            sum(one[i] for one in found) == PARTITIONS for i in range(len(names))
        )

    until(there, 40)


def test_the_protocol_follows_the_broker(
    settings: Callable[..., KafkaSettings], topic_prefix: str
) -> None:
    def choice(**changes: Any) -> str:
        return choose_group_protocol(settings(**changes), 5).group_protocol

    assert choice() == "consumer"
    assert choice(group_protocol="classic") == "classic"
    assert choice(group_protocol="consumer") == "consumer"
    assert choice(group_instance=f"{topic_prefix}w-1") == "classic"
    # Where nobody can be asked.
    away = settings(bootstrap="127.0.0.1:1")
    assert choose_group_protocol(away, 0.5).group_protocol == "classic"


def test_members_that_come_and_go_share_every_topic(
    members: Callable[[], tuple[LaunchConsumer, Listener]], names: list[str]
) -> None:
    first, heard = members()
    settled([first], names, PARTITIONS)
    second, _ = members()
    settled([first, second], names, PARTITIONS // 2)
    assert len(heard.gone) == len(names) * PARTITIONS // 2
    third, _ = members()
    settled([first, second, third], names, 2, 3)
    second.close()
    settled([first, third], names, PARTITIONS // 2)


def test_what_a_member_keeps_is_read_on_while_another_joins(
    settings: Callable[..., KafkaSettings],
    members: Callable[[], tuple[LaunchConsumer, Listener]],
    names: list[str],
) -> None:
    first, heard = members()
    settled([first], names, PARTITIONS)
    before = {a[:2]: a.generation for a in first.assignments}
    publisher = KafkaPublisher(settings(), CLOCK)
    records: list[tuple[float, Record]] = []
    sent = 0

    def more() -> bool:
        nonlocal sent
        sent += 1
        for name in names:
            for partition in range(PARTITIONS):
                publisher.publish(name, partition, b"k", b"%d" % sent, None, None)
        publisher.poll(0)
        records.extend((CLOCK.monotonic(), r) for r in first.poll(500, 0.02))
        return {(r.topic, r.partition) for _, r in records} == set(before)

    # All of it is being read before anybody else comes: what is measured is the joining.
    until(more, 40)
    second, _ = members()
    joined_at: float | None = None

    def turn() -> bool:
        nonlocal joined_at
        more()
        second.poll(500, 0.02)
        if joined_at is None and second.assignments:
            joined_at = CLOCK.monotonic()
        return joined_at is not None and CLOCK.monotonic() > joined_at + 0.5

    until(turn, 40)
    publisher.close(5)
    gone = {a[:2] for a in heard.gone}
    kept = set(before) - gone
    assert len(kept) == len(gone) == len(before) // 2
    for place in kept:
        mine = [(at, r) for at, r in records if (r.topic, r.partition) == place]
        assert {r.generation for _, r in mine} == {before[place]}
        offsets = [r.offset for _, r in mine]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        times = [at for at, _ in mine]
        assert joined_at is not None
        assert times[0] < joined_at < times[-1]
        pauses = [b - a for a, b in pairwise(times)]
        assert max(pauses) < 1.0, "a kept partition stood still"

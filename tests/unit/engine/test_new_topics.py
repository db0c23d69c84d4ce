"""Topics of a queue that was made while schedulers run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.stepped import PREFIX, Stepped

from tickrail.bus.topics import launch_topic, work_topics
from tickrail.core.ports_bus import BusError
from tickrail.engine.new_topics import EVERY, NewTopics


def test_a_queue_whose_topics_nobody_has_made_gets_them() -> None:
    world = Stepped()
    there = {"default"}
    made: list[Sequence[str]] = []

    def make(queues: Sequence[str]) -> Sequence[str]:
        made.append(queues)
        topics = [t for queue in queues for t in work_topics(PREFIX, queue)]
        for topic in topics:
            world.bus.create(topic, 4)
        return topics

    topics = NewTopics(lambda: world.relayer.missing, lambda: there, make)
    launch, stray = world.launch(queue="fresh"), world.launch(queue="stray")
    world.relay(3)
    assert topics.run_once() == EVERY
    assert made == []  # neither is a queue that there is
    there.add("fresh")
    topics.run_once()
    assert made == [["fresh"]]
    world.advance(6)
    world.relay(3)
    assert world.messages(launch_topic(PREFIX, "fresh", "normal")) == [(launch, 1)]
    assert set(world.relayer.missing) == {"stray"}
    assert world.row(stray).publications == 0
    topics.run_once()
    assert made == [["fresh"]]


def test_a_topic_that_was_there_and_is_deleted_stays_deleted() -> None:
    made: list[Sequence[str]] = []

    def make(queues: Sequence[str]) -> Sequence[str]:
        made.append(queues)
        return ()

    there = ("default", "fresh")
    topics = NewTopics(lambda: there, lambda: there, make, made=["default"])
    topics.run_once()
    topics.run_once()
    assert made == [["fresh"]]


def test_what_kafka_did_not_do_is_tried_again() -> None:
    tries: list[Sequence[str]] = []

    def make(queues: Sequence[str]) -> Sequence[str]:
        tries.append(queues)
        raise BusError("no broker answers")

    topics = NewTopics(lambda: ["fresh"], lambda: ["fresh"], make)
    for _ in range(2):
        with pytest.raises(BusError, match="no broker"):
            topics.run_once()
    assert tries == [["fresh"], ["fresh"]]


def test_where_nothing_is_missed_nobody_is_asked() -> None:
    def never() -> Sequence[str]:
        raise AssertionError

    topics = NewTopics(tuple, never, lambda _: never())
    assert topics.run_once() == EVERY

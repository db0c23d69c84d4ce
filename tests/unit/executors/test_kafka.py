"""The kafka target's executor on a bus in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from tests.support.clock import FakeClock
from tests.support.memory_bus import MemoryBus, MemoryPublisher
from tests.support.runs import Outcomes, make_run
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import Run
from tickrail.executors.kafka import KafkaExecutor
from tickrail.executors.kafka_message import AllowedTopics, KafkaTargetSettings

CLOCK = SystemClock()
TOPIC = "orders.paid"


@dataclass
class Bed:
    bus: MemoryBus = field(default_factory=MemoryBus)
    outcomes: Outcomes = field(default_factory=Outcomes)
    allowed: list[str] = field(default_factory=lambda: ["orders.*"])
    asked: list[UUID] = field(default_factory=list)
    away: bool = False

    def __post_init__(self) -> None:
        self.bus.create(TOPIC, 4)
        self.publisher = MemoryPublisher(self.bus, queue_messages=100)
        settings = KafkaTargetSettings(prefix="tickrail")
        self.executor = KafkaExecutor(lambda: self.publisher, self.topics, CLOCK, settings)

    def topics(self, tenant: UUID) -> Sequence[str]:
        self.asked.append(tenant)
        if self.away:
            raise UnavailableError("the database is away")
        return self.allowed

    def start(self, target: dict[str, object], **changes: object) -> Run:
        run = make_run({"kafka": target}, **changes)
        self.executor.start(run, self.outcomes.done)
        return run


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    yield made
    made.executor.close(0.0)


def test_the_payload_is_sent_as_json_with_the_headers_of_a_webhook(bed: Bed) -> None:
    run = bed.start(
        {"topic": TOPIC, "partition": 2, "headers": {"team": "billing"}}, trace="00-aa-bb-01"
    )
    outcome = bed.outcomes.of(run)
    assert outcome.ok
    assert outcome.place == {"topic": TOPIC, "partition": 2, "offset": 0}
    assert outcome.message == "topic orders.paid, partition 2, offset 0"
    (message,) = bed.bus.messages(TOPIC)
    assert json.loads(message.value) == {"dry": False}
    assert message.key is None
    assert dict(message.headers) == {
        "team": b"billing",
        "Idempotency-Key": str(run.launch_id).encode(),
        "Fencing-Token": b"4711",
        "Tickrail-Job": b"nightly",
        "Tickrail-Scheduled-At": b"2026-03-01T02:00:00Z",
        "Tickrail-Attempt": b"2",
        "traceparent": b"00-aa-bb-01",
    }


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("plain text, {no json}", b"plain text, {no json}"),
        ({"order": "{{ payload.id }}", "at": "{{ scheduled_at }}"},
         b'{"order":7,"at":"2026-03-01T02:00:00Z"}'),
        ("{{ payload }}", '{"id":7,"name":"Zoë"}'.encode()),
        ("{{ payload.name }}: {{ attempt }}", "Zoë: 2".encode()),
        ([1, None, True], b"[1,null,true]"),
        (False, b"false"),
    ],
)  # fmt: skip
def test_a_text_is_sent_as_it_is_and_any_other_value_as_json(
    bed: Bed, value: object, sent: bytes
) -> None:
    run = bed.start({"topic": TOPIC, "value": value}, payload={"id": 7, "name": "Zoë"})
    assert bed.outcomes.of(run).ok
    assert [m.value for m in bed.bus.messages(TOPIC)] == [sent]


def test_key_and_headers_are_templates_and_the_key_chooses_the_partition(bed: Bed) -> None:
    target: dict[str, object] = {
        "topic": TOPIC,
        "key": "order-{{ payload.id }}",
        "headers": {"of": "{{ job.name }}"},
    }
    runs = [bed.start(target, payload={"id": 9}) for _ in range(2)]
    places = [bed.outcomes.of(run).place or {} for run in runs]
    assert places[0]["partition"] == places[1]["partition"]
    assert {m.key for m in bed.bus.messages(TOPIC)} == {b"order-9"}
    assert {dict(m.headers)["of"] for m in bed.bus.messages(TOPIC)} == {b"nightly"}


@pytest.mark.parametrize(
    "topic", ["payments", "tickrail.launch.default.high", "tickrail", "xorders.paid"]
)
def test_a_topic_that_the_tenant_may_not_use_is_refused_for_good(bed: Bed, topic: str) -> None:
    bed.bus.create(topic, 1)
    bed.allowed[:] = ["orders.*", "tickrail*"]
    outcome = bed.outcomes.of(bed.start({"topic": topic}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("refused_topic", True, False)
    assert bed.bus.messages(topic) == []


def test_what_a_tenant_may_use_is_asked_once_in_a_while(bed: Bed) -> None:
    runs = [bed.start({"topic": TOPIC}, tenant_id=UUID(int=n % 2)) for n in range(10)]
    assert all(bed.outcomes.of(run).ok for run in runs)
    assert sorted(bed.asked) == [UUID(int=0), UUID(int=1)]


def test_what_a_tenant_may_use_is_asked_anew_after_five_seconds() -> None:
    clock, allowed = FakeClock(), ["orders.*"]
    topics = AllowedTopics(lambda _tenant: allowed, clock, KafkaTargetSettings(prefix="tickrail"))
    tenant = UUID(int=1)
    assert topics.refusal(tenant, TOPIC) is None
    allowed.clear()
    clock.advance(4.9)
    assert topics.refusal(tenant, TOPIC) is None
    clock.advance(0.1)
    assert topics.refusal(tenant, TOPIC) is not None
    allowed.append(TOPIC)
    clock.advance(5)
    assert topics.refusal(tenant, TOPIC) is None


def test_a_database_that_is_away_is_certain_and_tried_again(bed: Bed) -> None:
    bed.away = True
    outcome = bed.outcomes.of(bed.start({"topic": TOPIC}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("unavailable", True, True)
    bed.away = False
    assert bed.outcomes.of(bed.start({"topic": TOPIC})).ok


def test_a_missing_topic_is_certain_and_tried_again(bed: Bed) -> None:
    outcome = bed.outcomes.of(bed.start({"topic": "orders.none"}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("topic_missing", True, True)
    outcome = bed.outcomes.of(bed.start({"topic": TOPIC, "partition": 4}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("topic_missing", True, True)


def test_a_message_that_is_too_large_is_not_tried_again(bed: Bed) -> None:
    bed.bus.limit_bytes = 100
    outcome = bed.outcomes.of(bed.start({"topic": TOPIC, "value": "x" * 101}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("too_large", True, False)


def test_a_payload_without_the_place_that_a_template_names_is_not_tried_again(bed: Bed) -> None:
    outcome = bed.outcomes.of(bed.start({"topic": TOPIC, "key": "{{ payload.no }}"}))
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("invalid_target", True, False)
    assert bed.bus.messages(TOPIC) == []


def test_no_answer_in_time_is_uncertain_and_a_later_report_changes_nothing(bed: Bed) -> None:
    bed.bus.down = True
    run = bed.start({"topic": TOPIC}, timeout=0.2)
    outcome = bed.outcomes.of(run)
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("timed_out", False, True)
    bed.bus.down = False
    until(lambda: bed.bus.messages(TOPIC), 30)
    assert bed.outcomes.of(bed.start({"topic": TOPIC})).ok
    assert len(bed.outcomes) == 2


def test_a_message_that_was_given_up_is_uncertain(bed: Bed) -> None:
    bed.bus.down = True
    run = bed.start({"topic": TOPIC})
    until(lambda: bed.publisher.outstanding, 30)
    bed.publisher.give_up()
    outcome = bed.outcomes.of(run)
    assert (outcome.outcome, outcome.certain, outcome.retryable) == (
        "not_acknowledged",
        False,
        True,
    )


def test_a_cancel_ends_the_run_at_once_as_uncertain(bed: Bed) -> None:
    bed.bus.down = True
    run = bed.start({"topic": TOPIC})
    until(lambda: bed.publisher.outstanding, 30)
    bed.executor.cancel(run, "cancelled")
    outcome = bed.outcomes.of(run)
    assert (outcome.outcome, outcome.certain) == ("cancelled", False)
    bed.executor.cancel(run, "cancelled")
    assert len(bed.outcomes) == 1


def test_a_full_queue_is_certain_and_tried_again(bed: Bed) -> None:
    bed.bus.down = True
    runs = [bed.start({"topic": TOPIC}) for _ in range(101)]
    outcome = bed.outcomes.of(runs[-1])
    assert (outcome.outcome, outcome.certain, outcome.retryable) == ("queue_full", True, True)


def test_close_waits_for_reports_and_interrupts_what_is_left(bed: Bed) -> None:
    arrived = bed.start({"topic": TOPIC})
    assert bed.outcomes.of(arrived).ok
    bed.bus.down = True
    left = bed.start({"topic": TOPIC})
    bed.executor.close(0.1)
    outcome = bed.outcomes.of(left)
    assert (outcome.outcome, outcome.certain) == ("interrupted", False)
    late = bed.start({"topic": TOPIC})
    assert (bed.outcomes.of(late).outcome, bed.outcomes.of(late).certain) == ("interrupted", True)
    assert len(bed.outcomes) == 3

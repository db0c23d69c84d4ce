"""librdkafka's errors as those of core. Nothing above this package sees a KafkaError."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from tickrail.core.ports_bus import (
    BusDeniedError,
    BusError,
    MessageTooLargeError,
    UnknownTopicError,
)

_TOO_LARGE = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
    }
)
_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - public constants, named so by librdkafka
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
        KafkaError.TOPIC_EXCEPTION,
    }
)
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - as above
        KafkaError._SSL,  # noqa: SLF001 - as above
    }
)
_STALE_MEMBER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
        KafkaError._NO_OFFSET,  # noqa: SLF001 - as above
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - as above
        KafkaError._STATE,  # noqa: SLF001 - as above
    }
)


def bus_error(error: KafkaError, topic: str = "") -> BusError:
    """The error of core for one of librdkafka's."""
    code, fatal = error.code(), error.fatal()
    text = f"Kafka: {error.str()} ({error.name()})"
    if topic:
        text += f", topic {topic}"
    if code in _TOO_LARGE:
        return MessageTooLargeError(text, fatal=fatal, topic=topic)
    if code in _TOPIC:
        return UnknownTopicError(text, fatal=fatal, topic=topic)
    if code in _DENIED:
        return BusDeniedError(text, fatal=fatal, topic=topic)
    return BusError(text, fatal=fatal, topic=topic)


def from_exception(error: KafkaException, topic: str = "") -> BusError:
    """The error of core for an exception of confluent_kafka."""
    inner = error.args[0] if error.args else None
    if isinstance(inner, KafkaError):
        return bus_error(inner, topic)
    return BusError(f"Kafka: {error}", topic=topic)


def is_stale(error: KafkaError) -> bool:
    """Whether a commit failed because the assignment is over: an ordinary answer."""
    return error.code() in _STALE_MEMBER

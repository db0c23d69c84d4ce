"""Who of a tenant is told of its quotas: its channels, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.ports_api import Transaction
from tickrail.core.target_kafka import topic_refusal

SUBJECT = "quotas:notify"
"""What the audit log calls a tenant's channels."""


def notify_document(channels: Sequence[Channel]) -> dict[str, Any]:
    """As the API answers it."""
    return {"notify": [str(c) for c in channels]}


def set_notify(tx: Transaction, channels: Sequence[Channel], topic_prefix: str) -> None:
    """Have these told from now on, and no others.

    Args:
        tx: the transaction in which it is written: the secrets named stay until it ends.
        channels: each once.
        topic_prefix: first part of the names of Tickrail's own topics.

    Raises:
        InvalidInputError: a secret is not there, or the tenant may not send to a topic.
    """
    problems = _problems(tx, channels, topic_prefix)
    if problems:
        raise InvalidInputError("The list of channels is not valid.", problems)
    before = tx.quotas.channels()
    if list(before) != list(channels):
        tx.quotas.set_channels(channels)
        tx.audit("quotas.notify", SUBJECT, notify_document(before), notify_document(channels))


def _problems(tx: Transaction, channels: Sequence[Channel], prefix: str) -> list[Problem]:
    hooks = [c.name for c in channels if c.kind is ChannelKind.WEBHOOK]
    missing = tx.secrets.missing(hooks) if hooks else frozenset[str]()
    allowed = tx.kafka_topics() if len(hooks) < len(channels) else ()
    right = f"one of {', '.join(allowed)}" if allowed else "a topic that an operator allowed"
    found = []
    for i, channel in enumerate(channels):
        at = f"/notify/{i}"
        if channel.kind is ChannelKind.WEBHOOK:
            if channel.name in missing:
                expected = "the name of an existing secret; `tickrail secrets set` makes one"
                found.append(Problem(at, f"there is no secret {channel.name!r}", expected))
        elif (why := topic_refusal(channel.name, allowed, prefix)) is not None:
            found.append(Problem(at, why, right))
    return found

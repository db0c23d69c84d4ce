"""What a job needs round it: a queue that serves it, its topic, secrets, a free name."""

from __future__ import annotations

from tickrail.core.definition import Definition
from tickrail.core.errors import InvalidInputError, NameTakenError, Problem
from tickrail.core.ports_api import Transaction
from tickrail.core.target_kafka import topic_refusal


def check_surroundings(tx: Transaction, definition: Definition, topic_prefix: str) -> None:
    """Hold a definition against what there is besides calendars.

    Args:
        tx: the transaction in which it is written: what was found stays until it ends.
        definition: of a job that is made, changed or brought back.
        topic_prefix: first part of the names of Tickrail's own topics.

    Raises:
        InvalidInputError: the queue is not there or does not serve it, it may not send to its
            topic, or a secret is not there.
    """
    _check_queue(tx, definition)
    _check_topic(tx, definition, topic_prefix)
    _check_secrets(tx, definition)


def name_taken(name: str) -> NameTakenError:
    """The error of a new job whose name a live job has."""
    expected = "another name (an HTTP PUT on name:<name> changes the job that is there)"
    said = f"A live job has the name {name!r} already."
    return NameTakenError(said, [Problem("/name", "is taken", expected)])


def _check_queue(tx: Transaction, definition: Definition) -> None:
    kinds = tx.queue_kinds(definition.plan.queue)
    if kinds is None:
        problem = Problem(
            "/queue", f"there is no queue {definition.plan.queue!r}", "an existing queue"
        )
    elif definition.kind not in kinds:
        served = ", ".join(sorted(kinds)) or "no target at all"
        problem = Problem(
            "/queue",
            f"does not serve {definition.kind} targets",
            f"a queue that does ({definition.plan.queue} serves {served})",
        )
    else:
        return
    raise InvalidInputError("The job is not valid.", [problem])


def _check_topic(tx: Transaction, definition: Definition, prefix: str) -> None:
    """A message may go only where the tenant may send; the worker looks again."""
    named = definition.topics
    if not named:
        return
    allowed = tx.kafka_topics()
    right = f"one of {', '.join(allowed)}" if allowed else "a topic that an operator allowed"
    refused = [
        Problem(at, why, right)
        for at, topic in named
        if (why := topic_refusal(topic, allowed, prefix)) is not None
    ]
    if refused:
        raise InvalidInputError("The job is not valid.", refused)


def _check_secrets(tx: Transaction, definition: Definition) -> None:
    named = definition.secrets
    missing = tx.secrets.missing([name for _, name in named]) if named else frozenset()
    if missing:
        expected = "the name of an existing secret; `tickrail secrets set` makes one"
        raise InvalidInputError(
            "The job is not valid.",
            [
                Problem(at, f"there is no secret {name!r}", expected)
                for at, name in named
                if name in missing
            ],
        )

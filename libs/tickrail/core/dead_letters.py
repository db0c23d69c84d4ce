"""Dead letters: why a launch was given up, and which ones a list or an operation is about.

The reason class is told by one table, here. The topic and the view read it row by row, the
database's statements are made of the same table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tickrail.core.ids import JobId, LaunchId
from tickrail.core.states import State

MAX_REDRIVES = 10
"""So often a launch may be redriven: what loops by itself comes to an end."""
TOO_LARGE = "too_large"
WORKER_LOST = "worker_lost"


class Reason(StrEnum):
    """Why a launch was given up.

    `uncertain`: nobody knows whether it took effect, and its job says that a doubled run is worse.
    `too_large`: the message bus does not take its message. `worker_lost`: the worker of its last
    attempt did not come back. `rejected`: Tickrail itself refuses to run it (an address or a topic
    that is not allowed, a definition that cannot be read). `not_retryable`: its target answered
    that trying again does not help. `attempts_exhausted`: every attempt failed.
    """

    UNCERTAIN = "uncertain"
    TOO_LARGE = "too_large"
    WORKER_LOST = "worker_lost"
    REJECTED = "rejected"
    NOT_RETRYABLE = "not_retryable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason, and what must be so: each part that is given.

    Attributes:
        reason: the class.
        state: the launch's state.
        outcome: the outcome of its last attempt.
        prefix: how that outcome begins.
        final: whether trying again was held for useless.
    """

    reason: Reason
    state: State | None = None
    outcome: str | None = None
    prefix: str | None = None
    final: bool = False


RULES = (
    Rule(Reason.UNCERTAIN, state=State.ABANDONED),
    Rule(Reason.TOO_LARGE, outcome=TOO_LARGE),
    Rule(Reason.WORKER_LOST, outcome=WORKER_LOST),
    Rule(Reason.REJECTED, prefix="refused_"),
    Rule(Reason.REJECTED, outcome="unreadable"),
    Rule(Reason.REJECTED, outcome="invalid_target"),
    Rule(Reason.NOT_RETRYABLE, final=True),
)
"""The first rule that fits tells the reason; where none does, the attempts are exhausted."""


def reason_of(state: State, result: Mapping[str, Any] | None) -> Reason:
    """Why a launch that ended in this state with this result was given up."""
    last = result or {}
    outcome = str(last.get("outcome", ""))
    for rule in RULES:
        if (
            rule.state in (None, state)
            and rule.outcome in (None, outcome)
            and outcome.startswith(rule.prefix or "")
            and (not rule.final or last.get("retryable") is False)
        ):
            return rule.reason
    return Reason.ATTEMPTS_EXHAUSTED


def error_text(result: Mapping[str, Any] | None) -> str:
    """The last failure in a line: its outcome and what was said of it."""
    last = result or {}
    return f"{last.get('outcome', 'unknown')}: {last.get('message', '')}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters: those that meet every part; `since <= died_at < until`."""

    launches: Sequence[LaunchId] = ()
    job: JobId | None = None
    queue: str | None = None
    reasons: Sequence[Reason] = ()
    states: Sequence[State] = ()
    tags: Sequence[tuple[str, str | None]] = ()
    since: datetime | None = None
    until: datetime | None = None

"""Patterns that name outcomes of attempts, for the retry policy.

A pattern is one outcome's name (`timed_out`, `connect_failed`, `http_404`, `raised_ValueError`) or
a family with a range: `http_4xx`, `http_500-503`, `exit_64-78`, `signal_1-15`. Besides the
families and what a task raises, the names are a closed list: a typing error would otherwise make a
policy that never holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tickrail.core.documents import nearest

EXPECTED = (
    "the name of an outcome: http_404, http_4xx, http_500-503, exit_3, exit_64-78, signal_9,"
    " raised_<TypeName>, timed_out, connect_failed, ..."
)
MAX_LENGTH = 100


class Known(NamedTuple):
    """An outcome of a failed attempt.

    Attributes:
        name: as patterns have it.
        targets: the kinds of target where it comes about; empty: any.
        certain: whether it is known that the effect did not happen: `yes`, `no`, or when.
        again: whether it is tried again unless the policy says otherwise.
        meaning: what happened.
    """

    name: str
    targets: tuple[str, ...]
    certain: str
    again: str
    meaning: str


_ANY, _WEBHOOK, _KAFKA, _COMMAND, _TASK = (), ("webhook",), ("kafka",), ("command",), ("task",)
_UNLESS_SENT, _UNLESS_BEGUN = "until it was sent", "until it began"
_SNOOZE = "put off without a failure"

KNOWN = (
    Known("timed_out", _ANY, _UNLESS_BEGUN, "yes", "it took longer than the job's `timeout`"),
    Known("worker_lost", _ANY, "no", "yes", "the worker that ran it is gone"),
    Known("invalid_target", _ANY, "yes", "no", "the target cannot be read or filled in"),
    Known("unreadable", _ANY, "yes", "no", "the job's definition cannot be read"),
    Known("not_served", _ANY, "yes", "yes", "its worker runs no targets of this kind"),
    Known("internal", _ANY, _UNLESS_BEGUN, "yes", "a mistake in Tickrail; its log has more"),
    Known(
        "secret_missing", ("webhook", "command"), "yes", "no",
        "the target names a secret that is not there",
    ),
    Known("cannot_start", ("command", "task"), "yes", "yes", "no process could be started"),
    Known("connect_failed", _WEBHOOK, "yes", "yes", "no address of the host takes a connection"),
    Known("connect_timed_out", _WEBHOOK, "yes", "yes", "no connection in time"),
    Known("dns_failed", _WEBHOOK, "yes", "yes", "the host's name has no address"),
    Known("tls_failed", _WEBHOOK, "yes", "yes", "no TLS, or a certificate that is not trusted"),
    Known("connection_lost", _WEBHOOK, _UNLESS_SENT, "yes", "the connection broke off"),
    Known("bad_response", _WEBHOOK, _UNLESS_SENT, "yes", "what came back is no HTTP answer"),
    Known("refused_egress", _WEBHOOK, "yes", "no", "the URL may not be called"),
    Known("bad_redirect", _WEBHOOK, "yes", "yes", "a redirect leads nowhere that may be called"),
    Known("too_many_redirects", _WEBHOOK, "yes", "yes", "more redirects than `redirects`"),
    Known("secret_unreadable", _WEBHOOK, "yes", "yes", "no key of this worker fits the secret"),
    Known(
        "circuit_open", _WEBHOOK, "yes", f"{_SNOOZE}, after five minutes yes",
        "the receiver failed too often in a row and is left alone",
    ),
    Known("origin_busy", _WEBHOOK, "yes", _SNOOZE, "the receiver has too many calls open"),
    Known(
        "unavailable", ("webhook", "kafka"), "yes", f"webhook: {_SNOOZE}; kafka: yes",
        "what the tenant may do cannot be read: the database is away",
    ),
    Known("refused_topic", _KAFKA, "yes", "no", "the tenant may not use the topic"),
    Known("too_large", _KAFKA, "yes", "no", "the message is larger than Kafka takes"),
    Known("topic_missing", _KAFKA, "yes", "yes", "there is no such topic or partition"),
    Known("bus_denied", _KAFKA, "no", "yes", "Kafka refuses the worker's credentials"),
    Known("not_acknowledged", _KAFKA, "no", "yes", "Kafka did not say that it has the message"),
    Known("queue_full", _KAFKA, "yes", "yes", "the worker holds too many messages to be sent"),
    Known("refused_user", _COMMAND, "yes", "no", "it may not run as this user"),
    Known("refused_limits", _COMMAND, "yes", "no", "its limits are above those of the worker"),
    Known("invalid_secret", _COMMAND, "yes", "no", "the secret's value fits into no variable"),
    Known("secrets_unavailable", _COMMAND, "yes", "yes", "its secrets cannot be read"),
    Known("unknown_task", _TASK, "yes", "yes", "the worker's app has no task of the name"),
    Known("invalid_arguments", _TASK, "yes", "no", "the task does not take these arguments"),
    Known("returned_awaitable", _TASK, "yes", "no", "it returned what it should have awaited"),
    Known(
        "snoozed", _TASK, "yes", f"{_SNOOZE}, a thousand times",
        "the task asked to be run later",
    ),
)  # fmt: skip
"""Every outcome of a failure that is no member of a family, those of any target first."""
FAMILIES = (
    Known("http_<status>", _WEBHOOK, "yes", "yes, but 410, 413, 414, 431, 501, 505",
          "the receiver answered with a status outside of `success`"),
    Known("exit_<status>", ("command", "task"), "command: yes; task: no", "yes",
          "the program, or the task's process, ended with another status than 0"),
    Known("signal_<number>", ("command", "task"), "no", "yes",
          "the program, or the task's process, was ended by a signal"),
    Known("raised_<TypeName>", _TASK, "yes", "yes, but `Fail`",
          "the task raised it, or an exception of a class below it"),
)  # fmt: skip
_NAMES = frozenset(known.name for known in KNOWN)
_FAMILIES = {"http": (100, 599), "exit": (0, 255), "signal": (1, 64)}
_NUMBERS = re.compile(r"(http|exit|signal)_(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
_CLASS = re.compile(r"http_([1-5])xx", re.ASCII)
_RAISED = re.compile(r"raised_[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
NEVER = frozenset({"ok", "cancelled", "interrupted", "claim_lost"})
"""What no policy decides about: a success, an asked-for end, a run given back."""


def pattern_problem(pattern: str) -> str | None:
    """Why a text is no pattern, in words; None where it is one."""
    if pattern in NEVER:
        return "is not a failure that a policy decides about"
    if _CLASS.fullmatch(pattern):
        return None
    if found := _NUMBERS.fullmatch(pattern):
        low, high = _FAMILIES[found[1]]
        first, last = int(found[2]), int(found[3] or found[2])
        if not low <= first <= high or not low <= last <= high:
            return f"is outside of {found[1]}_{low} to {found[1]}_{high}"
        return "has its range the wrong way round" if last < first else None
    if pattern.partition("_")[0] in _FAMILIES:
        return "is not a pattern of this family"
    good = pattern in _NAMES or (_RAISED.fullmatch(pattern) and len(pattern) <= MAX_LENGTH)
    return None if good else "is not the name of an outcome"


def expected(pattern: str) -> str:
    """What would be right in place of a text that is no pattern."""
    near = nearest(pattern[:MAX_LENGTH], _NAMES)
    return near if near.startswith("did you mean") else EXPECTED


def matches(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern names one of these outcomes."""
    if found := _CLASS.fullmatch(pattern):
        first = int(found[1]) * 100
        family, low, high = "http", first, first + 99
    elif found := _NUMBERS.fullmatch(pattern):
        family, low, high = found[1], int(found[2]), int(found[3] or found[2])
    else:
        return pattern in names
    return any(_within(name, family, low, high) for name in names)


def _within(name: str, family: str, low: int, high: int) -> bool:
    prefix, _, number = name.partition("_")
    return prefix == family and number.isdecimal() and low <= int(number) <= high

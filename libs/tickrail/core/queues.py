"""What operators and tenants say of queues, and operators of tenants: documents, read."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from tickrail.core.definition import NAME, NAME_EXPECTED
from tickrail.core.documents import Reader, shown, type_name
from tickrail.core.durations import format_duration
from tickrail.core.errors import Problem
from tickrail.core.limits import Rate
from tickrail.core.quotas import Amounts, amounts_document, read_amounts

MAX_RUNNING: Final = 1_000_000
MAX_REASON: Final = 1024
MAX_TOPICS: Final = 200
_TOPIC = re.compile(r"[A-Za-z0-9._*-]{1,249}")
_TOPIC_EXPECTED: Final = "a topic's name, * for any characters"
ANSWERED: Final = frozenset(
    {"name", "paused", "paused_reason", "version", "created_at", "tenant", "depth"}
)
"""What an answer has beside a queue's document: one that was read and sent back may hold them."""
TENANT_ANSWERED: Final = frozenset(
    {"id", "name", "state", "state_reason", "state_at", "version", "created_at"}
)
_MOVING: Final = frozenset({"version", "depth"})
"""Of these those that may have changed since: any value is passed over."""
_OTHERWISE: Final = {
    "paused": "left out; `pause` and `resume` set it",
    "paused_reason": "left out; `pause` sets it",
    "tenant": "left out; a tenant's own limits are its members `max_running` and `rate`",
    "kinds": "left out; an operator sets it",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may run at once, and start in a time; None: as much as there is."""

    max_running: int | None = None
    rate: Rate | None = None

    def document(self) -> dict[str, Any]:
        """As the API answers it."""
        return {"max_running": self.max_running, "rate": rate_document(self.rate)}


@dataclass(frozen=True, slots=True)
class QueueDraft:
    """A queue as an operator wants it."""

    kinds: tuple[str, ...]
    limits: Limits

    def document(self) -> dict[str, Any]:
        """As the API answers it."""
        return {"kinds": list(self.kinds), **self.limits.document()}


@dataclass(frozen=True, slots=True)
class TenantDraft:
    """What an operator sets of a tenant."""

    weight: int = 1
    max_running: int | None = None
    egress: Mapping[str, Any] | None = None
    kafka_topics: tuple[str, ...] = ()
    quotas: Amounts = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As the API answers it."""
        return {
            "weight": self.weight,
            "max_running": self.max_running,
            "egress": self.egress,
            "kafka_topics": list(self.kafka_topics),
            "quotas": amounts_document(self.quotas),
        }


def rate_document(rate: Rate | None) -> dict[str, Any] | None:
    """A rate as the API answers it."""
    if rate is None:
        return None
    return {"count": rate.count, "per": format_duration(timedelta(seconds=rate.seconds))}


def read_only_problems(document: object, current: Mapping[str, Any]) -> Sequence[Problem]:
    """What a document says of members that it cannot set and that are otherwise.

    Args:
        document: as it was sent.
        current: these members as they are.
    """
    if not isinstance(document, dict):
        return ()
    return [
        Problem(
            f"/{name}",
            "cannot be set here, and is not as it is sent",
            _OTHERWISE.get(name, "left out, or as it was answered"),
        )
        for name, value in current.items()
        if name in document and name not in _MOVING and not _agrees(document[name], value)
    ]


def _agrees(sent: object, value: object) -> bool:
    if isinstance(sent, dict) and isinstance(value, Mapping):
        return all(
            name in value and (name in _MOVING or _agrees(told, value[name]))
            for name, told in sent.items()
        )
    return sent == value


def read_queue(
    name: str, document: object, kinds: Collection[str], problems: Sequence[Problem] = ()
) -> QueueDraft:
    """A queue from its whole document.

    Args:
        name: its name, from the path.
        document: the JSON document.
        kinds: the kinds of target that there are.
        problems: what is known to be wrong with it.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader(_without(document, ANSWERED))
    reader.problems.extend(problems)
    if not NAME.fullmatch(name):
        reader.problems.append(Problem("/name", f"is {name[:128]!r}", NAME_EXPECTED))
    served = _texts(reader, "kinds", lambda k: k in kinds, f"one of {', '.join(sorted(kinds))}")
    if not served and len(reader.problems) == len(problems):
        reader.problem("kinds", "is missing or empty", f"some of {', '.join(sorted(kinds))}")
    draft = QueueDraft(tuple(sorted(set(served))), _limits(reader))
    reader.finish("queue")
    return draft


def read_limits(document: object, problems: Sequence[Problem] = ()) -> Limits:
    """A tenant's own limits in a queue; `problems`: what is known to be wrong.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader(_without(document, ANSWERED | {"kinds"}))
    reader.problems.extend(problems)
    limits = _limits(reader)
    reader.finish("limit")
    return limits


def read_tenant(
    document: object,
    egress_problems: Callable[[object], Sequence[Problem]],
    problems: Sequence[Problem] = (),
) -> TenantDraft:
    """What an operator sets of a tenant.

    Args:
        document: the whole JSON document.
        egress_problems: what is wrong with the lists of what targets may reach.
        problems: what is known to be wrong with it.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader(_without(document, TENANT_ANSWERED))
    reader.problems.extend(problems)
    weight = reader.whole("weight", 1, low=1, high=100)
    most = _most(reader)
    lists = reader.raw("egress")
    if lists is not None:
        reader.problems.extend(egress_problems(lists))
    topics = _texts(
        reader, "kafka_topics", lambda t: bool(_TOPIC.fullmatch(t)), _TOPIC_EXPECTED, MAX_TOPICS
    )
    given = reader.raw("quotas")
    amounts = {} if given is None else reader.parse(lambda: read_amounts(given)) or {}
    reader.finish("tenant")
    return TenantDraft(weight, most, lists, tuple(topics), amounts)


def read_new_tenant(
    document: object, egress_problems: Callable[[object], Sequence[Problem]]
) -> tuple[str, TenantDraft]:
    """The name of a new tenant, and what is set of it.

    Raises:
        InvalidInputError: with every problem.
    """
    problems: list[Problem] = []
    name: object = None
    if isinstance(document, dict):
        name = document.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name) or _is_id(name):
            told = "is missing" if "name" not in document else f"is {shown(name)}"
            problems.append(Problem("/name", told, f"{NAME_EXPECTED}; not the form of an id"))
        problems += [
            Problem(f"/{key}", "cannot be set", "left out")
            for key in document
            if key in TENANT_ANSWERED - {"name"}
        ]
    draft = read_tenant(document, egress_problems, problems)
    return str(name), draft


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def read_reason(document: object) -> str:
    """Why a queue is paused or a tenant suspended, from `{"reason": "..."}` or nothing.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader({} if document is None else document)
    reason = reader.text("reason", "", maximum=MAX_REASON) or ""
    reader.finish("reason")
    return reason


def _without(document: object, names: Collection[str]) -> object:
    if not isinstance(document, dict):
        return document
    return {k: v for k, v in document.items() if k not in names}


def _most(reader: Reader) -> int | None:
    if not reader.has("max_running"):
        return None
    return reader.whole("max_running", 1, low=1, high=MAX_RUNNING)


def _limits(reader: Reader) -> Limits:
    most, rate = _most(reader), None
    if reader.has("rate"):
        r = reader.child("rate")
        if not r.has("count") and not r.problems:
            r.problem("count", "is missing", "how many may start")
        count = r.whole("count", 1, low=1, high=MAX_RUNNING)
        per = r.duration(
            "per", timedelta(minutes=1), low=timedelta(seconds=1), high=timedelta(days=1)
        )
        reader.absorb(r)
        rate = Rate(count, per.total_seconds())
    return Limits(most, rate)


def _texts(
    reader: Reader, name: str, right: Callable[[str], bool], expected: str, most: int = 50
) -> Sequence[str]:
    if not reader.has(name):
        return ()
    raw = reader.raw(name)
    if not isinstance(raw, list):
        reader.problem(name, f"is {type_name(raw)}", f"a list of texts, each {expected}")
        return ()
    if len(raw) > most:
        reader.problem(name, f"has {len(raw)} entries", f"at most {most}")
        return ()
    for i, value in enumerate(raw):
        if not isinstance(value, str) or not right(value):
            told = repr(value[:100]) if isinstance(value, str) else type_name(value)
            where = f"{reader.pointer}/{name}/{i}"
            reader.problems.append(Problem(where, f"is {told}", expected))
    return [v for v in raw if isinstance(v, str)]

"""What a job runs: validated target documents (docs: api, "A job").

`parse_target` turns the JSON document into a value and names each thing that is wrong with its
JSON pointer; `target_document` turns the value back. A value that exists is valid. Each kind has a
file of its own: its value, its document, its reader.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tickrail.core.documents import escape
from tickrail.core.errors import InvalidInputError, Problem
from tickrail.core.target_command import (
    Command,
    command_document,
    command_secrets,
    read_command,
)
from tickrail.core.target_fields import TargetFields
from tickrail.core.target_kafka import Kafka, kafka_document, read_kafka
from tickrail.core.target_task import TaskCall, read_task, task_document
from tickrail.core.target_webhook import (
    Webhook,
    read_webhook,
    webhook_document,
    webhook_secrets,
)

KINDS = ("webhook", "kafka", "command", "task", "noop")
"""Every kind of target that has a name."""


@dataclass(slots=True, frozen=True)
class Noop:
    """Nothing at all; succeeds at once. For load tests."""


Target = Webhook | Kafka | Command | TaskCall | Noop


class _Kind(NamedTuple):
    """How a kind of target is read and written, and which secrets it names (where in it, name)."""

    value: type
    read: Callable[[TargetFields], Any]
    document: Callable[[Any], dict[str, object]]
    secrets: Callable[[Any], Iterable[tuple[str, str]]] = lambda _: ()


def _read_noop(fields: TargetFields) -> Noop:
    fields.only()
    return Noop()


def _noop_document(_: Noop) -> dict[str, object]:
    return {}


_KINDS: Mapping[str, _Kind] = {
    "webhook": _Kind(Webhook, read_webhook, webhook_document, webhook_secrets),
    "kafka": _Kind(Kafka, read_kafka, kafka_document),
    "command": _Kind(Command, read_command, command_document, command_secrets),
    "task": _Kind(TaskCall, read_task, task_document),
    "noop": _Kind(Noop, _read_noop, _noop_document),
}
TARGET_KINDS: Final = tuple(_KINDS)
"""The kinds of target that a queue may serve."""


def target_kind(target: Target) -> str:
    """The name of the target's kind."""
    return next(name for name, kind in _KINDS.items() if isinstance(target, kind.value))


def parse_target(doc: object, pointer: str = "/target") -> Target:
    """Read a target document.

    Args:
        doc: `{"<kind>": {...}}`, as decoded from JSON.
        pointer: where the document stands in the whole, for the problems.

    Raises:
        InvalidInputError: with one problem for each thing that is wrong.
    """
    problems: list[Problem] = []
    target = _read(doc, pointer, problems)
    if problems or target is None:
        raise InvalidInputError("The target is not valid.", tuple(problems))
    return target


def target_document(target: Target) -> dict[str, object]:
    """The document of a target, every field named."""
    kind = target_kind(target)
    return {kind: _KINDS[kind].document(target)}


def target_secrets(target: Target, pointer: str = "/target") -> list[tuple[str, str]]:
    """The secrets that a target names: where in the document (a JSON pointer), and the name."""
    kind = target_kind(target)
    return [(f"{pointer}/{kind}/{at}", name) for at, name in _KINDS[kind].secrets(target)]


def _read(doc: object, pointer: str, problems: list[Problem]) -> Target | None:
    if not isinstance(doc, Mapping) or len(doc) != 1:
        problems.append(
            Problem(pointer, "a target is an object with one key, its kind", readable_kinds())
        )
        return None
    name, fields = next(iter(doc.items()))
    at = f"{pointer}/{escape(str(name))}"
    kind = _KINDS.get(str(name))
    if kind is None:
        near = difflib.get_close_matches(str(name), _KINDS, 1)
        hint = f"did you mean {near[0]}?" if near else readable_kinds()
        known = str(name) in KINDS
        problems.append(
            Problem(at, "this kind of target is not available" if known else "unknown kind", hint)
        )
        return None
    if not isinstance(fields, Mapping):
        problems.append(Problem(at, "is not an object", "an object with the target's fields"))
        return None
    found: Target | None = kind.read(TargetFields(fields, at, problems))
    return found


def readable_kinds() -> str:
    """What a target may be, in words."""
    return "one of " + ", ".join(_KINDS)

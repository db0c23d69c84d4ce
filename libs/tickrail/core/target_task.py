"""The task target: a Python function of the worker's own app, called by its name."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tickrail.core.documents import escape, json_problems, type_name
from tickrail.core.target_fields import TargetFields

MAX_ARGS_BYTES = 64 * 1024
"""How long the arguments may be as JSON text; more belongs into the payload."""
TASK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")
TASK_NAME_EXPECTED = "1 to 200 letters, digits, _ . - that begin with a letter or _"
CONTEXT = "context"
"""The argument that a worker fills in, where a function has it."""


@dataclass(slots=True, frozen=True)
class TaskCall:
    """A call of a task.

    Attributes:
        name: what the app calls the task.
        args: its arguments by name, JSON values.
    """

    name: str
    args: Mapping[str, object] = field(default_factory=dict)


def task_document(target: TaskCall) -> dict[str, object]:
    """The fields of its document."""
    return {"name": target.name, "args": dict(target.args)}


def read_task(fields: TargetFields) -> TaskCall | None:
    """The target; problems go to the fields.

    Which tasks there are and what they take is known to the workers alone: here only the shape is
    looked at.
    """
    fields.only("name", "args")
    name = fields.text("name", TASK_NAME_EXPECTED)
    if not fields.has("name"):
        fields.wrong("name", "is missing", "the name of a task of the worker's app")
    elif name is not None and not TASK_NAME.fullmatch(name):
        fields.wrong("name", f"is {name[:100]!r}", TASK_NAME_EXPECTED)
    return TaskCall(name or "", _args(fields))


def _args(fields: TargetFields) -> Mapping[str, object]:
    value = fields.get("args")
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        fields.wrong("args", f"is {type_name(value)}", "an object: arguments by name")
        return {}
    for name in value:
        at = f"args/{escape(str(name)[:100])}"
        if name == CONTEXT:
            fields.wrong(at, "is given by the worker", "another name; the payload is in it")
        elif not str(name).isidentifier() or keyword.iskeyword(str(name)):
            fields.wrong(at, "is not the name of an argument", "a Python name such as customer_id")
    bad = list(json_problems(value, "args"))
    for problem in bad:
        fields.wrong(problem.pointer, problem.message, problem.expected)
    if not bad:
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        if size > MAX_ARGS_BYTES:
            fields.wrong("args", f"has {size} bytes", f"at most {MAX_ARGS_BYTES} bytes")
    return value

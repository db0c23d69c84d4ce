r"""Templates of targets: text with `{{ payload.order.id }}` and the like in it.

Placeholders: `payload` and places inside it (`payload.items.0.name`), `job.name`, `job.id`,
`launch.id`, `scheduled_at`, `attempt`. `\{{` stands for two braces as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import NamedTuple

from tickrail.core.execution import Run

NAMES = ("job.name", "job.id", "launch.id", "scheduled_at", "attempt")
EXPECTED = "payload, payload.<place>, " + ", ".join(NAMES)
MAX_PLACEHOLDERS = 200
"""In one text."""
MAX_FILLED = 1024 * 1024
"""Characters that all placeholders of a body, or of what stands round it, put in together: a small
document may name a large payload many thousand times."""

_TOKEN = re.compile(r"\\\{\{|\{\{([^{}]{0,1000})\}\}|\{\{")
_KEY = re.compile(r"[^\s.{}]{1,200}")


class FillError(Exception):
    """A template cannot be filled in; `str()` says why."""


class MissingValueError(FillError):
    """A placeholder names a place that the payload does not have."""


class TooMuchError(FillError):
    """The placeholders would put in more than may be."""


class Room:
    """How much placeholders may still put in. For the templates of one request."""

    __slots__ = ("_left", "_most")

    def __init__(self, characters: int = MAX_FILLED) -> None:
        """Nothing is put in yet."""
        self._left = self._most = characters

    def take(self, text: str) -> str:
        """The text, for which there is room.

        Raises:
            TooMuchError: there is not.
        """
        self._left -= len(text)
        if self._left < 0:
            raise TooMuchError(f"the placeholders put in more than {self._most} characters")
        return text


class Placeholder(NamedTuple):
    """`{{ path }}`, the path taken apart."""

    path: tuple[str, ...]

    def value(self, run: Run) -> object:
        """What it stands for in a run.

        Raises:
            MissingValueError: the payload has no such place.
        """
        if self.path[0] != "payload":
            return _fact(run, ".".join(self.path))
        value = run.payload
        for i, key in enumerate(self.path[1:], 1):
            if isinstance(value, Mapping) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isascii() and key.isdigit():
                index = int(key[:9])
                if index >= len(value):
                    raise MissingValueError(f"the payload has no {'.'.join(self.path[1 : i + 1])}")
                value = value[index]
            else:
                raise MissingValueError(f"the payload has no {'.'.join(self.path[1 : i + 1])}")
        return value


@dataclass(slots=True, frozen=True)
class Template:
    """A text and its placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @property
    def fixed(self) -> bool:
        """Whether it has no placeholder."""
        return not any(isinstance(part, Placeholder) for part in self.parts)

    def fill(self, shown: Callable[[Placeholder], str]) -> str:
        """The text with each placeholder as `shown` has it."""
        return "".join(p if isinstance(p, str) else shown(p) for p in self.parts)

    def render(self, run: Run, room: Room, quoted: Callable[[str], str] = str) -> str:
        """The text for a run; what is no string is written as JSON.

        Raises:
            FillError: the payload lacks a place, or there is no room.
        """
        return self.fill(lambda p: quoted(room.take(text_of(p.value(run)))))

    def value(self, run: Run, room: Room) -> object:
        """As `render`; a template that is one placeholder and nothing else is that value itself."""
        if len(self.parts) == 1 and isinstance(only := self.parts[0], Placeholder):
            value = only.value(run)
            room.take(text_of(value))
            return value
        return self.render(run, room)


def parse_template(text: str) -> Template:
    """Read a template.

    Raises:
        ValueError: says which placeholder is wrong and what would be right.
    """
    parts: list[str | Placeholder] = []
    at = 0
    plain: list[str] = []
    for found in _TOKEN.finditer(text):
        plain.append(text[at : found.start()])
        at = found.end()
        if found[0].startswith("\\"):
            plain.append("{{")
            continue
        if found[1] is None:
            raise ValueError(r"a placeholder begins and does not end; write \{{ for two braces")
        if joined := "".join(plain):
            parts.append(joined)
        plain = []
        parts.append(_placeholder(found[1].strip()))
    if joined := "".join((*plain, text[at:])):
        parts.append(joined)
    if sum(isinstance(part, Placeholder) for part in parts) > MAX_PLACEHOLDERS:
        raise ValueError(f"at most {MAX_PLACEHOLDERS} placeholders")
    return Template(tuple(parts))


def _placeholder(name: str) -> Placeholder:
    path = tuple(name.split("."))
    if name in NAMES or (path[0] == "payload" and all(_KEY.fullmatch(key) for key in path)):
        return Placeholder(path)
    raise ValueError(f"there is no placeholder {name[:60]!r}; there are {EXPECTED}")


def compile_value(value: object) -> object:
    """A JSON value whose strings are templates, ready for `render_value`.

    Raises:
        ValueError: as `parse_template`.
    """
    if isinstance(value, str):
        template = parse_template(value)
        return template.fill(lambda _: "") if template.fixed else template
    if isinstance(value, Mapping):
        return {key: compile_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [compile_value(item) for item in value]
    return value


def render_value(compiled: object, run: Run, room: Room) -> object:
    """The JSON value for a run.

    Raises:
        FillError: the payload lacks a place, or there is no room.
    """
    if isinstance(compiled, Template):
        return compiled.value(run, room)
    if isinstance(compiled, Mapping):
        return {key: render_value(item, run, room) for key, item in compiled.items()}
    if isinstance(compiled, list):
        return [render_value(item, run, room) for item in compiled]
    return compiled


def text_of(value: object) -> str:
    """A JSON value inside a text: a string as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fact(run: Run, name: str) -> object:
    match name:
        case "job.name":
            return run.job_name
        case "job.id":
            return str(run.job_id)
        case "launch.id":
            return str(run.launch_id)
        case "attempt":
            return run.attempt
        case _:
            return run.scheduled_at.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""`${NAME}` and `${NAME:-default}` in the texts of a document; `$${` stands for `${` itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tickrail.core.documents import escape

_MARK = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SHOWN = 40
_LONG: Final = 8
"""A value of so many characters is replaced wherever it is found, a shorter one where it stands."""
NAME_POINTER: Final = "/name"
"""What is shown in any case: a job's name is in the head of its diff."""


class VariableError(Exception):
    """A text names a variable that is not set, or names none."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables' values; a value is not looked through again.

    A default (`${NAME:-default}`) stands for a variable that is not set or is empty; it ends at
    the first `}`.

    Raises:
        VariableError: a variable is not set and has no default, or what stands there is no name.
    """

    def value(match: re.Match[str]) -> str:
        body = match["body"]
        if body is None:
            return "${"
        shown = match[0][:_SHOWN]
        found = _BODY.fullmatch(body) if match["end"] else None
        if found is None:
            raise VariableError(
                f"{shown!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, and $${{ for a"
                " literal ${"
            )
        name, default = found["name"], found["default"]
        if default is not None:
            return variables.get(name) or default
        if name not in variables:
            raise VariableError(
                f"the variable {name} is not set (${{{name}:-default}} gives a default,"
                f" $${{{name}}} stands for the text ${{{name}}})"
            )
        return variables[name]

    return _MARK.sub(value, text)


def escaped(text: str) -> str:
    """The text as a document holds it, so that `expand` gives it back."""
    return text.replace("${", "$${")


def used(text: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables whose values a text gets, each with its value; defaults are none."""
    found: dict[str, str] = {}
    for match in _MARK.finditer(text):
        named = _BODY.fullmatch(match["body"]) if match["body"] is not None else None
        if named is not None and variables.get(named["name"]):
            found[named["name"]] = variables[named["name"]]
    return found


@dataclass(frozen=True)
class Hidden:
    """The values of variables in one document.

    Attributes:
        written: JSON pointer -> the text as the file has it.
        values: a value that is replaced wherever it is found -> what stands for it.
    """

    written: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text without values."""
        for value, name in sorted(self.values.items(), key=lambda v: -len(v[0])):
            text = text.replace(value, name)
        return text


def hidden_in(written: Any, variables: Mapping[str, str]) -> Hidden:  # noqa: ANN401 - any JSON
    """The values of variables that a document gets.

    Args:
        written: the document before they were filled in.
        variables: what they stand for.
    """
    places: dict[str, str] = {}
    values: dict[str, str] = {}
    for pointer, text in _texts(written, ""):
        found = used(text, variables)
        if found and pointer != NAME_POINTER:
            places[pointer] = text
            values |= {v: f"${{{name}}}" for name, v in found.items() if len(v) >= _LONG}
    return Hidden(places, values)


def _texts(value: Any, pointer: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield pointer, value
    inside: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, inner in inside:
        yield from _texts(inner, f"{pointer}/{escape(str(key))}")

"""YAML as JSON: the values of YAML 1.2's core schema, so that `2026-12-24` and `on` stay texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_TAG = "tag:yaml.org,2002:"
_PLAIN = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)


_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")
"""Ends of lines that only a text in double quotes keeps."""


class _JsonLoader(yaml.SafeLoader):
    """Makes nothing but what JSON has.

    YAML 1.1, which the library reads by itself, takes dates out of texts, `22:00` for 1320 and `on`
    for true.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the library's own: of the class
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def construct_object(self, node: Node, deep: bool = True) -> Any:  # noqa: ANN401, ARG002 - the library's signature
        """As the library does, at once in full: what contains itself is refused."""
        return super().construct_object(node, deep=True)

    def construct_mapping(self, node: MappingNode, deep: bool = True) -> dict[Hashable, Any]:
        """An object; its keys are texts as they are written."""
        self.flatten_mapping(node)
        found: dict[Hashable, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise ConstructorError(None, None, "a key is no text", key.start_mark)
            found[key.value] = self.construct_object(value, deep=deep)
        return found


def _refuse_twice(node: MappingNode) -> None:
    """Refuse an object with a key that is there twice; what is merged in does not count."""
    keys: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, ScalarNode) and key.value in keys:
            said = f"the key {key.value!r} is there twice"
            raise ConstructorError(None, None, said, key.start_mark)
        keys.add(str(key.value))


def _bool(loader: _JsonLoader, node: ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() == "true"


def _int(loader: _JsonLoader, node: ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    try:
        return int(text)
    except ValueError:
        raise _no_number(text, node) from None


def _float(loader: _JsonLoader, node: ScalarNode) -> float:
    text = str(loader.construct_scalar(node))
    try:
        found = float(text)
    except ValueError:
        raise _no_number(text, node) from None
    if not math.isfinite(found):
        raise _no_number(text, node)
    return found


def _no_number(text: str, node: ScalarNode) -> ConstructorError:
    return ConstructorError(None, None, f"{text[:40]} is no number of JSON", node.start_mark)


for _name, _pattern, _first in _PLAIN:
    _JsonLoader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})\\Z"), _first)
_CONSTRUCTORS: dict[str | None, Any] = {
    _TAG + "null": yaml.SafeLoader.construct_yaml_null,
    _TAG + "bool": _bool,
    _TAG + "int": _int,
    _TAG + "float": _float,
    _TAG + "str": yaml.SafeLoader.construct_yaml_str,
    _TAG + "timestamp": yaml.SafeLoader.construct_yaml_str,
    _TAG + "seq": yaml.SafeLoader.construct_yaml_seq,
    _TAG + "map": yaml.SafeLoader.construct_yaml_map,
    None: yaml.SafeLoader.construct_undefined,
}
_JsonLoader.yaml_constructors = _CONSTRUCTORS


def parse_yaml(text: str) -> Any:  # noqa: ANN401 - any JSON
    """The value of a YAML document, as JSON has it.

    Raises:
        yaml.YAMLError: it cannot be read, or says what JSON cannot.
        RecursionError: it is nested too deep.
    """
    loader = _JsonLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _expand(node, lambda value, _: value, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


@dataclass(frozen=True)
class YamlDocument:
    """One document of a stream.

    Attributes:
        value: as JSON has it.
        line: on which it begins, from 1.
    """

    value: Any
    line: int
    _node: Node = field(repr=False)

    def line_of(self, pointer: str) -> int:
        """The line of what a JSON pointer names, or of the nearest thing around it."""
        node, line = self._node, self.line
        for part in pointer.split("/")[1:]:
            word = part.replace("~1", "/").replace("~0", "~")
            inner = _inside(node, word)
            if inner is None:
                break
            node, line = inner
        return line


def _inside(node: Node, word: str) -> tuple[Node, int] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == word:
                return value, key.start_mark.line + 1
    elif isinstance(node, SequenceNode) and word.isdigit() and int(word) < len(node.value):
        found = node.value[int(word)]
        return found, found.start_mark.line + 1
    return None


def parse_stream(text: str, expand: Callable[[str, int], str]) -> list[YamlDocument]:
    """The documents of a YAML stream, empty ones left out.

    Args:
        text: the stream.
        expand: called with each text that is no key and holds `${`, and its line. What it makes of
            a text without quotes may be a number, a boolean or null.

    Raises:
        yaml.YAMLError: it cannot be read, or says what JSON cannot.
        RecursionError: it is nested too deep.
    """
    loader, found = _JsonLoader(text), []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                break
            _expand(node, expand, set())
            document = loader.construct_document(node)
            if document is not None:
                found.append(YamlDocument(document, node.start_mark.line + 1, node))
    finally:
        loader.dispose()
    return found


def _expand(node: Node, expand: Callable[[str, int], str], seen: set[int]) -> None:
    if id(node) in seen:  # an alias: the same node again, and its text is done
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        if "${" in node.value:
            node.value = expand(node.value, node.start_mark.line + 1)
            if node.style is None:
                node.tag = _TAG + _kind(node.value)
    elif isinstance(node, MappingNode):
        _refuse_twice(node)
        for _, value in node.value:
            _expand(value, expand, seen)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            _expand(value, expand, seen)


def _kind(text: str) -> str:
    """What a text without quotes is."""
    kinds = (name for name, pattern, _ in _PLAIN if re.fullmatch(pattern, text))
    return next(kinds, "str")


class _JsonDumper(yaml.SafeDumper):
    """Writes what `_JsonLoader` reads back as it was."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - the library's signature
        """Nothing is written once and named elsewhere."""
        return True


def _text(dumper: _JsonDumper, text: str) -> ScalarNode:
    # The library quotes what YAML 1.1 would not read as a text; quoted here: what 1.2 would not.
    style = None if _kind(text) == "str" else "'"
    if _BREAKS & set(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_JsonDumper.add_representer(str, _text)


def dump_yaml(value: object) -> str:
    """A JSON value as a YAML document that people read; `parse_yaml` gives it back."""
    return yaml.dump(
        value, Dumper=_JsonDumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )

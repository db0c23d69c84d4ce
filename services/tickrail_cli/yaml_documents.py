"""YAML as JSON: the values of YAML 1.2's core schema, so that `2026-12-24` and `on` stay texts."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode

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
    return yaml.load(text, Loader=_JsonLoader)  # noqa: S506 - a safe loader with fewer types

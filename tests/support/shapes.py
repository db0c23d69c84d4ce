"""What a document holds, as two sides say it: a schema of the OpenAPI document, and Python types.

A shape is a mapping from members to shapes; of a leaf it says which words it may be, whether it is
an instant, and whether it may be null. `differences` compares two, and says where they part.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from tickrail.sdk.client.models import Model


@dataclass
class Shape:
    """A document, or a value in it.

    Attributes:
        members: of an object whose members are known.
        required: those that must be there.
        words: the only texts that it may be, where that is so.
        instant: whether it is one.
        null: whether it may be null.
        anything: whether nothing is known of it.
        variants: objects by their member `kind`.
    """

    members: dict[str, Shape] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    words: set[object] = field(default_factory=set)
    instant: bool = False
    null: bool = False
    anything: bool = False
    variants: dict[str, Shape] = field(default_factory=dict)

    def absorb(self, other: Shape) -> None:
        """Take up what another says of the same value."""
        for name, shape in other.members.items():
            self.members.setdefault(name, Shape()).absorb(shape)
        self.required |= other.required
        self.words |= other.words
        self.instant |= other.instant
        self.null |= other.null
        self.anything |= other.anything
        self.variants |= other.variants


def of_schema(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Shape:
    """The shape of a schema; lists have that of their items."""
    shape = Shape()
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        found = of_schema(document, one)
        if "discriminator" in schema:
            [kind] = found.members["kind"].words
            shape.variants[str(kind)] = found
        else:
            shape.absorb(found)
    for name, member in schema.get("properties", {}).items():
        shape.members[name] = of_schema(document, member)
    shape.required = set(schema.get("required", ()))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shape.absorb(of_schema(document, schema[key]))
    shape.words |= set(schema.get("enum", ())) | ({schema["const"]} if "const" in schema else set())
    kinds = schema.get("type", ())
    shape.null |= "null" in (kinds if isinstance(kinds, list) else [kinds])
    shape.instant |= schema.get("format") == "date-time"
    known = {"$ref", "type", "anyOf", "oneOf", "allOf", "properties", "enum", "const"}
    shape.anything |= not known & set(schema) or schema.get("additionalProperties") is True
    return shape


def of_type(hint: Any, inside: tuple[Any, ...] = ()) -> Shape:
    """The shape of a type: a model, a TypedDict, a list or union of them, or a plain value.

    Of a document within itself nothing is said.
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint in inside:
        return Shape(anything=True)
    if origin in _WITHIN:
        return of_type(args[_WITHIN[origin]], inside)
    if origin in {Union, types.UnionType}:
        return _union(args, inside)
    if origin is Literal:
        return Shape(words=set(args))
    if isinstance(hint, type) and (is_typeddict(hint) or issubclass(hint, Model)):
        return (of_typed_dict if is_typeddict(hint) else _of_model)(hint, inside)
    return Shape(anything=hint is Any, null=hint is type(None), instant=hint is datetime)


_WITHIN: Mapping[Any, int] = {
    Required: 0, NotRequired: 0, Sequence: 0, Iterable: 0, tuple: 0, Mapping: 1,
}  # fmt: skip
"""Of a type that has another in it: which of its arguments that is."""


def of_typed_dict(kind: type, inside: tuple[Any, ...] = ()) -> Shape:
    """The shape of a TypedDict; a name with an underscore at its end is the one without."""
    shape = Shape()
    for name, hint in get_type_hints(kind, include_extras=True).items():
        plain = name.removesuffix("_")
        shape.members[plain] = of_type(hint, (*inside, kind))
        total = getattr(kind, "__total__", True)
        if get_origin(hint) is Required or (total and get_origin(hint) is not NotRequired):
            shape.required.add(plain)
    return shape


def _union(args: Iterable[Any], inside: tuple[Any, ...]) -> Shape:
    shape = Shape()
    for one in args:
        shape.absorb(of_type(one, inside))
    return shape


def _of_model(kind: type[Model], inside: tuple[Any, ...]) -> Shape:
    if found := vars(kind).get("variants"):
        return Shape(variants={name: _of_model(one, inside) for name, one in found.items()})
    hints = get_type_hints(kind)
    named = [one.name for one in fields(kind) if one.name != "raw"]
    inside = (*inside, kind)
    return Shape({name.removesuffix("_"): of_type(hints[name], inside) for name in named})


def differences(
    api: Shape, client: Shape, *, answer: bool, where: str = "", depth: int = 6
) -> Iterator[str]:
    """Where the client's shape is not that of the API.

    Args:
        api: what the API's document says.
        client: what the client's types say.
        answer: whether it is an answer, whose words the client leaves open and whose nulls count.
        where: the place so far.
        depth: how deep to look.
    """
    if api.variants or client.variants:
        yield from _names(set(api.variants), set(client.variants), f"{where} kind")
        for kind in set(api.variants) & set(client.variants):
            one, other = api.variants[kind], client.variants[kind]
            yield from differences(one, other, answer=answer, where=f"{where}({kind})")
        return
    if api.members and (client.members or not client.anything):
        yield from _names(set(api.members), set(client.members), where or "/")
    if not answer and api.words and not client.anything and api.words != client.words:
        yield f"{where}: the API takes {sorted(map(str, api.words))}, the client {client.words}"
    if answer and not (api.anything or client.anything):
        if api.instant != client.instant:
            yield f"{where}: an instant on one side only"
        if api.null != client.null:
            yield f"{where}: null on one side only"
    for name in sorted(set(api.members) & set(client.members)) if depth else ():
        at = f"{where}/{name}"
        one, other = api.members[name], client.members[name]
        yield from differences(one, other, answer=answer, where=at, depth=depth - 1)


def _names(api: set[str], client: set[str], where: str) -> Iterator[str]:
    for name in sorted(api - client):
        yield f"{where}: the client lacks {name}"
    for name in sorted(client - api):
        yield f"{where}: the API lacks {name}"

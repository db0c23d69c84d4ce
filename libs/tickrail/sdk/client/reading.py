"""Answers as values: frozen dataclasses with aware datetimes and timedeltas.

A member that this version does not know is no mistake: it stays in `raw`. One that an older
server does not send is None, empty, or the default of its class.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timedelta
from functools import cache, partial
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from tickrail.core.durations import parse_duration
from tickrail.sdk.client.errors import UnexpectedAnswerError

T = TypeVar("T")
Convert = Callable[[Any], Any]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def model(made: type[T]) -> type[T]:
    """Make a class of answers: a frozen dataclass whose members are given by name."""
    return dataclass(frozen=True, kw_only=True)(made)


@model
class Model:
    """What every answer has.

    Attributes:
        raw: the JSON object as it came, with the members that this version does not know.
    """

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    variants: ClassVar[Mapping[str, type[Model]]] = {}
    """Classes by the value of the member `kind`, where a list holds several."""

    @classmethod
    def read(cls, document: object) -> Self:
        """The value of a JSON object.

        Raises:
            UnexpectedAnswerError: it is none of this class.
        """
        try:
            return _object(cls, document)
        except _Mismatch as error:
            where = "".join(f"/{part}" for part in reversed(error.path))
            raise UnexpectedAnswerError(
                f"The answer is no {cls.__name__} that this client can read: {where or 'it'}"
                f" {error.words}"
            ) from None


class _Mismatch(Exception):  # noqa: N818 - inside this module alone
    """What does not fit, and where: the path's parts, the last one first."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words
        self.path: list[str | int] = []


class _Member(NamedTuple):
    """How a member is read; `default` makes what stands for one that is missing."""

    attribute: str
    name: str
    convert: Convert
    default: Callable[[], Any] | None


M = TypeVar("M", bound=Model)


def _object(kind: type[M], document: object) -> M:
    if not isinstance(document, dict):
        raise _Mismatch(f"is {type(document).__name__} and no object")
    variants = vars(kind).get("variants", {})  # not those of a base class
    wanted = variants.get(str(document.get("kind")), kind)
    values: dict[str, Any] = {"raw": document}
    for member in _members(wanted):
        if member.name in document:
            values[member.attribute] = _at(member.name, member.convert, document[member.name])
        elif member.default is not None:
            values[member.attribute] = member.default()
        else:
            raise _Mismatch(f"has no {member.name}")
    found: M = wanted(**values)
    return found


def _at(place: str | int, convert: Convert, value: object) -> Any:  # noqa: ANN401 - any value
    try:
        return convert(value)
    except _Mismatch as error:
        error.path.append(place)
        raise


@cache
def _members(kind: type[Model]) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    found = []
    for one in fields(kind):
        if one.name == "raw":
            continue
        hint, default = hints[one.name], _missing(hints[one.name])
        if one.default is not MISSING:
            default = partial(_itself, one.default)
        elif one.default_factory is not MISSING:
            default = one.default_factory
        found.append(_Member(one.name, one.name.removesuffix("_"), _converter(hint), default))
    return tuple(found)


def _itself(value: T) -> T:
    return value


def _missing(hint: Any) -> Callable[[], Any] | None:  # noqa: ANN401 - any annotation
    if hint is Any or type(None) in get_args(hint):
        return lambda: None
    origin = get_origin(hint)
    return tuple if origin is tuple else dict if origin is Mapping else None


def _converter(hint: Any) -> Convert:  # noqa: ANN401 - any annotation
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        words = {w for a in args if get_origin(a) is Literal for w in get_args(a)}
        if type(None) in args:
            words.add(None)
        [one] = [a for a in args if a is not type(None) and get_origin(a) is not Literal]
        return _or_a_word(words, _converter(one))
    if origin is tuple:
        return _list(_converter(args[0]))
    if origin is Mapping:
        return _mapping(_converter(args[1]))
    if isinstance(hint, type) and issubclass(hint, Model):
        return lambda value: _object(hint, value)
    return _SCALARS[hint]


def _or_a_word(words: Collection[object], other: Convert) -> Convert:
    """A value that is one of a few words, null among them perhaps, or something else."""

    def convert(value: object) -> Any:  # noqa: ANN401 - any value
        is_word = value is None or isinstance(value, str)
        return value if is_word and value in words else other(value)

    return convert


def _list(item: Convert) -> Convert:
    def convert(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Mismatch(f"is {type(value).__name__} and no array")
        return tuple(_at(i, item, one) for i, one in enumerate(value))

    return convert


def _mapping(item: Convert) -> Convert:
    def convert(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Mismatch(f"is {type(value).__name__} and no object")
        return {name: _at(name, item, one) for name, one in value.items()}

    return convert


def _parsed(parse: Callable[[str], T], words: str) -> Convert:
    def convert(value: object) -> T:
        try:
            return parse(_text(value))
        except ValueError:
            raise _Mismatch(f"is {value!r:.40} and no {words}") from None

    return convert


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.utcoffset() is None:
        raise ValueError(text)
    return found


def _exactly(kind: type[T]) -> Callable[[object], T]:
    def convert(value: object) -> T:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _Mismatch(f"is {value!r:.40} and no {kind.__name__}")
        return value

    return convert


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Mismatch(f"is {value!r:.40} and no number")
    return float(value)


_text = _exactly(str)
_SCALARS: Mapping[Any, Convert] = {
    Any: _itself,
    str: _text,
    int: _exactly(int),
    bool: _exactly(bool),
    float: _number,
    datetime: _parsed(_instant, "instant"),
    timedelta: _parsed(parse_duration, "length of time"),
}

"""Reads a JSON document field by field and gathers every problem, not only the first.

Each problem names its place as a JSON pointer (RFC 6901) and says what would be right; an unknown
field is refused with the nearest known name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar

from tickrail.core.durations import format_duration, parse_duration
from tickrail.core.errors import InvalidInputError, Problem

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
K = TypeVar("K")

_WITH_TEXT = (str, dict, list)
MAX_DEPTH = 64
_MOST_PROBLEMS = 100
MAX_UNKNOWN = 20
"""So many unknown fields of an object are named: the nearest known name takes time to find."""
_FIRST_YEAR = 1970


def type_name(value: object) -> str:
    """What JSON calls a value's type."""
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def shown(value: object, longest: int = 60) -> str:
    """A value as a message quotes it: a text in quotes, all else as JSON writes it."""
    if isinstance(value, str):
        return repr(value[:longest])
    try:
        return json.dumps(value, ensure_ascii=False)[:longest]
    except (TypeError, ValueError, RecursionError):
        return type_name(value)


def text_problem(value: str) -> str | None:
    """Why a text cannot be stored, or None: NUL and lone surrogates have no place in UTF-8 text."""
    if "\x00" in value:
        return "contains the character U+0000"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains half of a surrogate pair"
    return None


def json_problems(value: object, pointer: str) -> Iterable[Problem]:
    """What in a JSON value cannot be stored: bad texts anywhere, nesting beyond 64 levels.

    The first of them: a hundred tell as much as a hundred thousand.
    """
    return islice(_json_problems(value, pointer, 1), _MOST_PROBLEMS)


def _json_problems(value: object, pointer: str, depth: int) -> Iterator[Problem]:
    if depth > MAX_DEPTH:
        yield Problem(pointer, "is nested too deeply", f"at most {MAX_DEPTH} levels")
        return
    if isinstance(value, str):
        if why := text_problem(value):
            yield Problem(pointer, why, "text that UTF-8 can hold, without U+0000")
    elif isinstance(value, dict):
        for key in value:
            if why := text_problem(key):
                yield Problem(pointer, f"has a key that {why}", "text that UTF-8 can hold")
        for key, item in _doubtful(value.items()):
            yield from _json_problems(item, f"{pointer}/{escape(key)}", depth + 1)
    elif isinstance(value, list):
        for i, item in _doubtful(enumerate(value)):
            yield from _json_problems(item, f"{pointer}/{i}", depth + 1)


def _doubtful(members: Iterable[tuple[K, object]]) -> Iterator[tuple[K, object]]:
    """Those that there may be a problem in: a walk over the many that are sound is to be quick."""
    for key, item in members:
        if isinstance(item, _WITH_TEXT) and (
            not isinstance(item, str) or not item.isascii() or "\x00" in item
        ):
            yield key, item


def least_size(value: object, enough: int) -> int:
    """Bytes that a JSON value has at least, without spaces.

    Stops where it is more than `enough`, so it costs no more steps than that has bytes.
    """
    found, rest = 0, [value]
    while rest and found <= enough:
        here = rest.pop()
        if isinstance(here, str):
            found += len(here) + 2
        elif isinstance(here, dict | list):
            count = len(here)
            if found + 2 * count > enough:  # a value and a comma
                return found + 2 * count
            inner = here.values() if isinstance(here, dict) else here
            more = [x for x in inner if isinstance(x, _WITH_TEXT)]
            found += 2 * count + 1 - len(more)
            if isinstance(here, dict):
                found += sum(len(key) + 3 for key in here)
            rest += more
        else:
            found += 1
    return found


def escape(key: str) -> str:
    """One token of a JSON pointer."""
    return key.encode("utf-8", "replace").decode().replace("~", "~0").replace("/", "~1")


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean ...` for an unknown name, or all the known ones."""
    known = sorted(map(str, known))  # members of an enumeration too: said as their values
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else "one of " + ", ".join(known)


class Reader:
    """Reads one object of a document.

    Every getter answers the default when the field is absent and also when it is wrong (a problem
    is then noted), so that reading goes on and all problems come out together from `finish()`.
    """

    def __init__(self, doc: object, pointer: str = "") -> None:
        self.pointer = pointer
        self.problems: list[Problem] = []
        self._doc: Mapping[str, Any] = {}
        self._known: set[str] = set()
        if isinstance(doc, dict):
            self._doc = doc
        else:
            self.problems.append(Problem(pointer, f"is {type_name(doc)}", "an object"))

    def problem(self, name: str, message: str, expected: str = "") -> None:
        """Note a problem with a field."""
        self.problems.append(Problem(f"{self.pointer}/{escape(name)}", message, expected))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null; makes the name known."""
        self._known.add(name)
        return self._doc.get(name) is not None

    def without_meaning(self, names: Iterable[str], beside: str, expected: str) -> None:
        """Note each of these fields that is there: they are known, but not beside this."""
        for name in names:
            if self.has(name):
                self.problem(name, f"has no meaning beside {beside}", expected)

    def without_empty(self) -> None:
        """Note each known field that holds null, an empty text or an empty array.

        For a filter, after its fields were read: a condition that came out empty (a list of ids
        that a client computed) must not be taken for no condition, which is all there is.
        """
        noted = [f"{problem.pointer}/" for problem in self.problems]
        for name, value in self._doc.items():
            where = f"{self.pointer}/{escape(name)}"
            told = any(place.startswith(f"{where}/") for place in noted)
            if name in self._known and value in (None, "", []) and not told:
                said = "is null" if value is None else "is empty"
                expected = "a condition; without it, leave the member out"
                self.problems.append(Problem(where, said, expected))

    def names(self, name: str) -> bool:
        """Whether the document says the field, be it null; makes the name known."""
        self._known.add(name)
        return name in self._doc

    def raw(self, name: str) -> Any:  # noqa: ANN401 - a JSON value of any kind
        """The field as it is."""
        self._known.add(name)
        return self._doc.get(name)

    def text(
        self,
        name: str,
        default: str | None = None,
        *,
        maximum: int = 10_000,
        pattern: re.Pattern[str] | None = None,
        expected: str = "a string",
    ) -> str | None:
        """A text of at most `maximum` characters that matches the pattern in full."""
        if not self.has(name):
            return default
        value = self._doc[name]
        if not isinstance(value, str):
            self.problem(name, f"is {type_name(value)}", expected)
            return default
        if why := text_problem(value):
            self.problem(name, why, "text that UTF-8 can hold, without U+0000")
            return default
        if len(value) > maximum:
            self.problem(name, f"has {len(value)} characters", f"at most {maximum}")
            return default
        if pattern is not None and not pattern.fullmatch(value):
            self.problem(name, f"is {value[:100]!r}", expected)
            return default
        return value

    def whole(self, name: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        if not self.has(name):
            return default
        value = self._doc[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            told = shown(value, 40) if isinstance(value, int | float) else type_name(value)
            self.problem(name, f"is {told}", f"a whole number from {low} to {high}")
            return default
        return value

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        """A number within bounds."""
        if not self.has(name):
            return default
        value = self._doc[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high:
            told = shown(value, 40) if isinstance(value, int | float) else type_name(value)
            self.problem(name, f"is {told}", f"a number from {low:g} to {high:g}")
            return default
        return float(value)

    def choice(self, name: str, default: E) -> E:
        """One of an enumeration's values."""
        if not self.has(name):
            return default
        kind = type(default)
        value = self._doc[name]
        try:
            return kind(value)
        except ValueError:
            known = [e.value for e in kind]
            self.problem(name, f"is {shown(value)}", nearest(str(value)[:200], known))
            return default

    def duration(
        self,
        name: str,
        default: timedelta,
        *,
        low: timedelta = timedelta(0),
        high: timedelta = timedelta(days=3660),
    ) -> timedelta:
        """A duration such as `30s` or `1h30m` within bounds."""
        if not self.has(name):
            return default
        value = self._doc[name]
        if not isinstance(value, str):
            self.problem(name, f"is {type_name(value)}", "a duration such as 30s, 5m, 1h30m, 2d")
            return default
        try:
            parsed = parse_duration(value)
        except ValueError as e:
            self.problem(name, str(e), "a duration such as 30s, 5m, 1h30m, 2d")
            return default
        if not low <= parsed <= high:
            bounds = f"from {format_duration(low)} to {format_duration(high)}"
            self.problem(name, f"is {value}", bounds)
            return default
        return parsed

    def instant(self, name: str) -> datetime | None:
        """An RFC 3339 instant with an offset, answered in UTC; None when absent."""
        text = self.text(name, maximum=64)
        if text is None:
            return None
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            value = None
        if value is None or value.tzinfo is None:
            self.problem(name, f"is {text[:60]!r}", "an instant with offset: 2026-03-01T09:00:00Z")
            return None
        try:
            found = value.astimezone(UTC)
        except OverflowError:
            found = None
        if found is None or found.year < _FIRST_YEAR:
            self.problem(name, f"is {text[:60]!r}", "an instant from 1970 to 9999")
            return None
        return found

    def flag(self, name: str, default: bool) -> bool:
        """A boolean. Null is not taken for the default: a flag may be what holds an act back."""
        if not self.names(name):
            return default
        value = self._doc[name]
        if not isinstance(value, bool):
            self.problem(name, f"is {type_name(value)}", "true or false")
            return default
        return value

    def child(self, name: str) -> Reader:
        """The reader of an object inside; its problems are gathered by `absorb`."""
        value = self._doc[name] if self.has(name) else {}
        return Reader(value, f"{self.pointer}/{escape(name)}")

    def absorb(self, child: Reader) -> None:
        """Take over what a child found."""
        child.check_unknown()
        self.problems.extend(child.problems)

    def parse(self, call: Callable[[], T]) -> T | None:
        """Run another parser and take over its problems."""
        try:
            return call()
        except InvalidInputError as e:
            self.problems.extend(e.problems or [Problem(self.pointer, e.detail)])
            return None

    def check_unknown(self) -> None:
        """Note each field that nobody asked for."""
        unknown = (name for name in self._doc if name not in self._known)
        for name in islice(unknown, MAX_UNKNOWN):
            self.problem(str(name)[:100], "is not a known field", nearest(name, self._known))

    def finish(self, what: str) -> None:
        """Refuse the document if anything is wrong with it.

        Raises:
            InvalidInputError: with every problem found.
        """
        self.check_unknown()
        if self.problems:
            raise InvalidInputError(f"The {what} is not valid.", self.problems)

"""Reads the fields of a target's document one by one, and keeps what is wrong with them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from itertools import islice

from tickrail.core.documents import MAX_UNKNOWN, escape, json_problems
from tickrail.core.errors import Problem

MAX_TEXT = 128 * 1024
"""Linux refuses one argument or variable longer than this."""


class TargetFields:
    """The fields of one document, read one by one; what is wrong goes into `problems`."""

    def __init__(self, fields: Mapping[object, object], at: str, problems: list[Problem]) -> None:
        self._fields = {str(k): v for k, v in fields.items()}
        self._at = at
        self._problems = problems

    def wrong(self, field: str, message: str, expected: str = "") -> None:
        """Keep a problem of a field; of the whole document where it is empty."""
        where = f"{self._at}/{field}" if field else self._at
        self._problems.append(Problem(where, message, expected))

    def only(self, *known: str) -> None:
        """Refuse fields of other names."""
        unknown = (name for name in self._fields if name not in known)
        for name in islice(unknown, MAX_UNKNOWN):
            near = difflib.get_close_matches(name, known, 1)
            right = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            self.wrong(escape(name), "unknown field", right)

    def has(self, field: str) -> bool:
        """Whether it is there and not null."""
        return self._fields.get(field) is not None

    def get(self, field: str) -> object:
        """The value as it came; None where it is not there."""
        return self._fields.get(field)

    def text(self, field: str, expected: str, *, limit: int = MAX_TEXT) -> str | None:
        """A string without NUL, or None when it is not there or not right."""
        value = self._fields.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong(field, "is not a string", expected)
            return None
        return value if self.clean(field, value, limit) else None

    def clean(self, field: str, value: str, limit: int = MAX_TEXT) -> bool:
        """Whether a text can be handed to a program: no NUL, valid Unicode, not too long."""
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            self.wrong(field, "holds a lone surrogate", "valid Unicode")
            return False
        if "\x00" in value:
            self.wrong(field, "holds a NUL character", "text without NUL")
            return False
        if size > limit:
            self.wrong(field, f"has {size} bytes", f"at most {limit} bytes")
            return False
        return True

    def json(self, field: str) -> object:
        """Any JSON value that can be stored; None when it is not there or not right."""
        value = self._fields.get(field)
        problems = list(json_problems(value, f"{self._at}/{field}"))
        self._problems.extend(problems)
        return None if problems else value

    def pairs(self, field: str) -> list[tuple[str, str]]:
        """An object of strings."""
        value = self._fields.get(field)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            self.wrong(field, "is not an object", "an object of strings")
            return []
        pairs: list[tuple[str, str]] = []
        for name, text in value.items():
            where = f"{field}/{escape(str(name))}"
            if not isinstance(text, str):
                self.wrong(where, "is not a string", "a string")
            elif self.clean(where, text):
                pairs.append((str(name), text))
        return pairs

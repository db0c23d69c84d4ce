"""Secrets by reference: `{"secret": "name"}` in a target, the value only where it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from tickrail.core.target_fields import TargetFields

SECRET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
NAME_EXPECTED = "1 to 128 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
MAX_SECRET = 64 * 1024
"""Bytes of a value in UTF-8."""
MASK = "***"
_REFERENCE_EXPECTED = '{"secret": "name"}'
_MIN_WORD = 8
_MIN_CUT = 4
_MOST_LINES = 1000
"""Of a value: as many as a secret of 64 KiB has in PEM. Each is looked for in what comes back."""


@dataclass(slots=True, frozen=True)
class SecretRef:
    """Stands for the value of the tenant's secret of this name."""

    name: str

    def document(self) -> dict[str, object]:
        """As it is written."""
        return {"secret": self.name}


class SecretReader(Protocol):
    """Reads values. Safe to use from several threads."""

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        """The values of a tenant's secrets; those that are not there are left out.

        Raises:
            UnavailableError: the database does not answer.
            SetupError: a value cannot be decrypted with the keys of this process.
        """
        ...


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """What may be told of a secret."""

    name: str
    updated_at: datetime


class SecretRecords(Protocol):
    """Secrets of the transaction's tenant, written and never read back.

    A job that names secrets shares their rows until it commits; `find` with `lock` holds one. So a
    job begins to name a secret either before its deletion, which then finds the job, or after it.
    """

    def find(self, name: str, *, lock: bool = False, change: bool = False) -> SecretRecord | None:
        """The secret; `lock` holds its row until the transaction ends.

        So does `change`, which keeps others from changing it and waits for no job that names it.
        """
        ...

    def page(self, after: str, limit: int) -> Sequence[SecretRecord]:
        """Secrets by name, those after `after`."""
        ...

    def missing(self, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that are not there; the rows of the others are shared."""
        ...

    def put(self, name: str, value: bytes) -> bool:
        """Encrypt and keep a value; whether it is new.

        Raises:
            SetupError: this process has no key.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove a secret; the row is held by the caller."""
        ...

    def definitions_with(self, name: str, after: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        """Some live jobs, by name and after `after`, that may name it: (name, definition).

        Of the definition only `target` and `on_failures` are there.
        Empty when there are no more. What merely looks like a reference may be among them.
        """
        ...


def read_reference(fields: TargetFields, where: str, value: object) -> SecretRef | None:
    """A reference; what is wrong with it goes to the fields."""
    if not isinstance(value, Mapping) or set(value) != {"secret"}:
        fields.wrong(where, "is not a reference to a secret", _REFERENCE_EXPECTED)
        return None
    name = value["secret"]
    if not isinstance(name, str) or not SECRET_NAME.fullmatch(name):
        fields.wrong(f"{where}/secret", "is not a secret's name", NAME_EXPECTED)
        return None
    return SecretRef(name)


def _begun(text: str, value: str) -> int:
    """How many characters at the text's end are the start of the value, if at least four."""
    if len(value) <= _MIN_CUT:
        return 0
    at = max(0, len(text) - len(value) + 1)
    while (at := text.find(value[:_MIN_CUT], at)) >= 0:
        if value.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


def _spellings(text: str) -> Iterable[str]:
    """What a text may look like where it comes back."""
    yield json.dumps(text)[1:-1]
    if not text.isascii():
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        with suppress(UnicodeEncodeError):
            yield text.encode("latin-1").decode("utf-8", "replace")


class Masker:
    """Replaces values of secrets in what is kept of a run.

    A value is also found as JSON writes it inside a string, as a header carries it (Latin-1, read
    as UTF-8), and by its longer parts: of `Bearer abcdefgh` the second word alone, of a text of
    several lines each line.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        found: set[str] = set()
        for value in values:
            text = value.decode("utf-8", "replace").strip()
            lines = text.split("\n")
            # Lines such as `-----BEGIN CERTIFICATE-----` tell nothing, and are everywhere.
            parts = [x for x in lines[:_MOST_LINES] if x[:5] != "-----"]
            if len(lines) == 1:
                parts = text.split()
            words = [w for w in map(str.strip, parts) if len(w) >= _MIN_WORD]
            bare = [w.removeprefix("whsec_") for w in words]
            for part in (text, *words, *bare):
                found |= {part, *_spellings(part)}
        self._found = sorted((t for t in found if t), key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def texts(self) -> Sequence[str]:
        """The texts that are replaced, the longest first."""
        return tuple(self._found)

    @property
    def longest(self) -> int:
        """Bytes of the longest text that is replaced."""
        return max((len(t.encode()) for t in self._found), default=0)

    def mask(self, text: str, *, cut: bool = False) -> str:
        """The text without values.

        Args:
            text: what came back.
            cut: whether the text goes on: then the start of a value at its end goes, too.
        """
        for value in self._found:
            text = text.replace(value, MASK)
        if cut:
            for value in self._found:
                if size := _begun(text, value):
                    return text[:-size] + MASK
        return text
